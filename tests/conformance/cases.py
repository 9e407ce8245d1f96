"""What both front ends must get right: small graphs, specs that cut them, and how many chunks come of it.

Free of TVM. A front end builds each graph in its own IR and compares with ``Case.expected``. Cases named after faults
of the public record (``a08`` ...) carry what was reported in ``about``.
"""

from __future__ import annotations

from conformance import convolutions, graphs, resizes, transposed

CASES = (*convolutions.CASES, *transposed.CASES, *resizes.CASES, *graphs.CASES)
