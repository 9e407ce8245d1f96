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
            for group in range(groups):
                into = sums[:, group * outs // groups : (group + 1) * outs // groups]
                taps = weight[group * outs // groups : (group + 1) * outs // groups, :, kernel_row, kernel_col]
                read = reads[:, group * ins : (group + 1) * ins, mask]
                into[:, :, mask] += np.einsum("nip,oi->nop", read, taps.astype(np.float64))
    if bias is not None:
        sums += bias.astype(np.float64).reshape(1, outs, 1, 1)
    low, high = clip
    sums = sums if low is None else np.maximum(sums, low)
    sums = sums if high is None else np.minimum(sums, high)
    return sums.astype(np.float32)


def conv2d_transpose(
    data: Float,
    weight: Float,
    bias: Float | None = None,
    *,
    strides: tuple[int, int] = (1, 1),
    padding: tuple[int, int, int, int] = (0, 0, 0, 0),
    output_padding: tuple[int, int] = (0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    clip: tuple[float | None, float | None] = (None, None),
) -> Float:
    """Transposed convolution by weights [in, out of a group, row, col]: each element is spread over a canvas.

    The canvas has ``output_padding`` more rows and columns at its end; ``padding`` is cropped from its sides.
    """
    images, channels, rows, cols = data.shape
    _, outs, kernel_rows, kernel_cols = weight.shape
    canvas_rows = (rows - 1) * strides[0] + dilation[0] * (kernel_rows - 1) + 1 + output_padding[0]
    canvas_cols = (cols - 1) * strides[1] + dilation[1] * (kernel_cols - 1) + 1 + output_padding[1]
    canvas = np.zeros((images, outs * groups, canvas_rows, canvas_cols))
    for kernel_row, kernel_col in np.ndindex(kernel_rows, kernel_cols):
        start = kernel_row * dilation[0], kernel_col * dilation[1]
        down = slice(start[0], start[0] + (rows - 1) * strides[0] + 1, strides[0])
        across = slice(start[1], start[1] + (cols - 1) * strides[1] + 1, strides[1])
        for group in range(groups):
            ins = slice(group * channels // groups, (group + 1) * channels // groups)
            taps = weight[ins, :, kernel_row, kernel_col].astype(np.float64)
            spread = np.einsum("nirc,io->norc", data[:, ins].astype(np.float64), taps)
            canvas[:, group * outs : (group + 1) * outs, down, across] += spread
    top, left, bottom, right = padding
    sums = canvas[:, :, top : canvas_rows - bottom, left : canvas_cols - right]
    if bias is not None:
        sums = sums + bias.astype(np.float64).reshape(1, -1, 1, 1)
    low, high = clip
    sums = sums if low is None else np.maximum(sums, low)
    sums = sums if high is None else np.minimum(sums, high)
    return sums.astype(np.float32)


def pool2d(
    data: Float,
    kind: str,
    kernel: tuple[int, int],
    extents: tuple[int, int],
    *,
    strides: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    dilation: tuple[int, int] = (1, 1),
) -> Float:
    """Pooling to a map of ``extents`` (rows, cols), window by window; ``padding`` is (top, left).

    ``kind``: "max", or the sum divided by the window's size ("average_all") or by how many of its positions lie in
    the map, at least 1 ("average_valid"). The greatest of nothing is the lowest finite number.
    """
    pooled = np.zeros((*data.shape[:2], *extents))
    for row, col in np.ndindex(*extents):
        rows = [row * strides[0] - padding[0] + tap * dilation[0] for tap in range(kernel[0])]
        cols = [col * strides[1] - padding[1] + tap * dilation[1] for tap in range(kernel[1])]
        inside = [data[:, :, r, c] for r in rows for c in cols if 0 <= r < data.shape[2] and 0 <= c < data.shape[3]]
        window = np.array(inside, np.float64).reshape(-1, *data.shape[:2])
        if kind == "max":
            pooled[:, :, row, col] = np.max(window, axis=0, initial=np.finfo(np.float32).min)
        else:
            size = kernel[0] * kernel[1] if kind == "average_all" else max(1, len(window))
            pooled[:, :, row, col] = window.sum(axis=0) / size
    return pooled.astype(np.float32)


def dense(data: Float, weight: Float, bias: Float | None = None) -> Float:
    """A row of features an image times the transposed weights [out, in]."""
    sums = data.astype(np.float64) @ weight.astype(np.float64).T
    return (sums if bias is None else sums + bias.reshape(-1)).astype(np.float32)


def elementwise(function: str, data: Float, partner: Float | float = 0.0, value: float = 0.0) -> Float:
    """A function of each element; ``partner`` is its second operand or first parameter, ``value`` its second."""
    a, b = data.astype(np.float64), np.asarray(partner, np.float64)
    with np.errstate(all="ignore"):
        computed = {
            "copy": lambda: a,
            "add": lambda: a + b,
            "subtract": lambda: a - b,
            "reverse_subtract": lambda: b - a,
            "multiply": lambda: a * b,
            "divide": lambda: a / b,
            "reverse_divide": lambda: b / a,
            "maximum": lambda: np.where(a > b, a, b),
            "minimum": lambda: np.where(a < b, a, b),
            "prelu": lambda: np.where(a > 0, a, a * b),
            "leaky_relu": lambda: np.where(a > 0, a, a * b),
            "clip": lambda: np.clip(a, b, value),
            "sigmoid": lambda: np.exp(-np.logaddexp(0, -a)),
            "tanh": lambda: np.tanh(a),
            "exp": lambda: np.exp(a),
            "sqrt": lambda: np.sqrt(a),
            "abs": lambda: np.abs(a),
            "negative": lambda: -a,
            "silu": lambda: a * np.exp(-np.logaddexp(0, -a)),
            "hard_swish": lambda: np.where(a <= -3, 0, np.where(a >= 3, a, a * (a + 3) / 6)),
        }[function]()
        return np.broadcast_to(computed, a.shape).astype(np.float32)


def tolerance(terms: int) -> float:
    """How far float32 sums of ``terms`` products of numbers of about 1 may lie from the exact ones."""
    return 1e-6 * (8 + terms)
