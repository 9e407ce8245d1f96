"""One axis of a sliding window: which part of the map a range of outputs reads, and the pads that remain."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_sramtile.ints import Range, ceil_div


@dataclass(frozen=True, slots=True)
class Window:
    """What a range of outputs reads along one axis.

    Attributes:
        read: the least range of the map that holds every position read; empty when all of it lies in padding.
        pad_before, pad_after: what to pad ``read`` with so that the same operator on it yields just these outputs.
    """

    read: Range
    pad_before: int
    pad_after: int


def conv_extent(size: int, kernel: int, stride: int, dilation: int, pad_before: int, pad_after: int) -> int:
    """Output positions along one axis, at least 0: ``(size + pads - (dilation*(kernel - 1) + 1)) // stride + 1``."""
    return max(0, (size + pad_before + pad_after - dilation * (kernel - 1) - 1) // stride + 1)


def conv_window(out: Range, size: int, kernel: int, stride: int, dilation: int, pad_before: int) -> Window:
    """The window of the outputs ``out`` (not empty): formula (2), clipped at the map's edges and tightened.

    Output ``o`` reads positions ``o*stride - pad_before + dilation*tap``. After clipping, positions at either end that
    no output reads (dilation > 1 or stride > kernel) are left out as well.
    """
    start = out.start * stride - pad_before
    stop = (out.stop - 1) * stride - pad_before + dilation * (kernel - 1) + 1
    first = _first_read(start, len(out), size, kernel, stride, dilation)
    if first is None:
        return Window(Range(0, 0), stop - start, 0)
    # The last position is the first one of the axis reversed.
    last = size - 1 - (_first_read(size - stop, len(out), size, kernel, stride, dilation) or 0)
    return Window(Range(first, last + 1), first - start, stop - last - 1)


def _first_read(start: int, outputs: int, size: int, kernel: int, stride: int, dilation: int) -> int | None:
    """The least of the positions ``start + stride*output + dilation*tap`` that lie in the map.

    Of the taps that do so in the first output, only the first can have it; and of the others only the last ``stride``
    ones: those before read the same positions with later outputs.
    """
    inside = min(kernel, max(0, ceil_div(-start, dilation)))
    first: int | None = None
    for tap in range(max(0, inside - stride), min(kernel, inside + 1)):
        position = start + dilation * tap
        output = max(0, ceil_div(-position, stride))
        position += stride * output
        if output < outputs and position < size and (first is None or position < first):
            first = position
    return first
