"""What operators yield, in plain numpy and in float64: independent of the package, and of TVM."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float32]


def conv2d(
    data: Float,
    weight: Float,
    bias: Float | None = None,
    *,
    strides: tuple[int, int] = (1, 1),
    padding: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    clip: tuple[float | None, float | None] = (None, None),
) -> Float:
    """Convolution of a map [image, channel, row, col] with weights [out, in of a group, row, col], float64 sums.

    ``padding`` is (top, left, bottom, right). Taps in padding are left out rather than multiplied, so that NaN and
    infinity in a weight stay where they belong. ``bias`` has one element a channel, in any shape.
    """
    images, channels, rows, cols = data.shape
    outs, ins, kernel_rows, kernel_cols = weight.shape
    top, left, bottom, right = padding
    out_rows = (rows + top + bottom - dilation[0] * (kernel_rows - 1) - 1) // strides[0] + 1
    out_cols = (cols + left + right - dilation[1] * (kernel_cols - 1) - 1) // strides[1] + 1
    if out_rows < 1 or out_cols < 1 or channels != ins * groups or outs % groups:
        raise ValueError(f"no such convolution: data {data.shape}, weight {weight.shape}, {groups} groups")
    # A map around the map says which positions are real; what is not real is never looked at.
    padded = np.zeros((images, channels, rows + top + bottom, cols + left + right))
    padded[:, :, top : top + rows, left : left + cols] = data
    real = np.zeros(padded.shape[2:], bool)
    real[top : top + rows, left : left + cols] = True
    sums = np.zeros((images, outs, out_rows, out_cols))
    for kernel_row in range(kernel_rows):
        down = slice(kernel_row * dilation[0], kernel_row * dilation[0] + (out_rows - 1) * strides[0] + 1, strides[0])
        for kernel_col in range(kernel_cols):
            shift = kernel_col * dilation[1]
            across = slice(shift, shift + (out_cols - 1) * strides[1] + 1, strides[1])
            reads, mask = padded[:, :, down, across], real[down, across]
            for out in range(outs):
                first = out // (outs // groups) * ins
                for channel in range(ins):
                    tap = float(weight[out, channel, kernel_row, kernel_col])
                    sums[:, out, mask] += reads[:, first + channel, mask] * tap
    if bias is not None:
        sums += bias.astype(np.float64).reshape(1, outs, 1, 1)
    low, high = clip
    sums = sums if low is None else np.maximum(sums, low)
    sums = sums if high is None else np.minimum(sums, high)
    return sums.astype(np.float32)


def tolerance(terms: int) -> float:
    """How far float32 sums of ``terms`` products of numbers of about 1 may lie from the exact ones."""
    return 1e-6 * (8 + terms)
