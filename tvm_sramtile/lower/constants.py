"""Constants as they lie in a program: weights packed for the accelerator, all else as it is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tvm_sramtile.ints import Range, cut


def pack_weights(weights: NDArray[np.generic], lanes: int) -> bytes:
    """Weights (O, I, rows, cols) in the table's order: [output block][input block][row][col][input][output].

    Only real channels are stored: the last blocks may be short.
    """
    out_channels, in_channels = weights.shape[:2]
    pieces = []
    for out in cut(out_channels, lanes):
        for ins in cut(in_channels, lanes):
            pieces.append(_block(weights, out, ins).tobytes())
    return b"".join(pieces)


def _block(weights: NDArray[np.generic], out: Range, ins: Range) -> NDArray[np.generic]:
    return np.ascontiguousarray(weights[out.start : out.stop, ins.start : ins.stop].transpose(2, 3, 1, 0))
