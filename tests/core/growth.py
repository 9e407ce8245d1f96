"""How time grows with the size of a problem: what must be linear is compared with itself in one run."""

from __future__ import annotations

import time
from collections.abc import Callable


def seconds(call: Callable[[], object]) -> float:
    """The least processor time of three calls."""
    found = []
    for _ in range(3):
        start = time.process_time()
        call()
        found.append(time.process_time() - start)
    return min(found)


def assert_linear(small: Callable[[], object], large: Callable[[], object], times: int) -> None:
    """``large``, which is so many times as large as ``small``, takes at most three times as long as that says."""
    assert seconds(large) < 3 * times * seconds(small)
