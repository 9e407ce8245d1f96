"""A chunk of a convolution as a sum of operators: which part of the map and of the kernel each of them takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose, Window, conv_window
from tvm_sramtile.ints import Range, cut
from tvm_sramtile.ir import Step
from tvm_sramtile.plan.cut import Cut
from tvm_sramtile.plan.plan import Chunk, StepPlan

Convolution = Conv2d | Conv2dTranspose
Units = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ConvTerm:
    """One operator of the sum.

    Attributes:
        channels, rows, cols: the part of the map that it reads.
        weights: the ranges of the kernel's axes O, I, H and W.
        groups: how many the operator has.
        pads: top, left, bottom, right; those of the map, or of a transposed convolution ``crop`` less ``added``.
    """

    channels: Range
    rows: Range
    cols: Range
    weights: dict[str, Range]
    groups: int
    pads: tuple[int, int, int, int]

    @property
    def crop(self) -> tuple[int, int, int, int]:
        """Of a transposed convolution: what is cropped."""
        top, left, bottom, right = (max(0, pad) for pad in self.pads)
        return top, left, bottom, right

    @property
    def added(self) -> tuple[int, int, int, int]:
        """Of a transposed convolution: rows and columns that have no contributor."""
        top, left, bottom, right = (max(0, -pad) for pad in self.pads)
        return top, left, bottom, right


def conv_terms(op: Convolution, cut_: Cut | StepPlan, chunk: Chunk, units: Units | None) -> Iterator[ConvTerm]:
    """The operators whose sum over input channels and kernel is a chunk; none where the chunk reads nothing."""
    for channels, weights, groups in _channel_parts(op, chunk, cut_):
        for rows, cols in kernel_parts(op, cut_, units):
            row, col = _windows(op, chunk, rows, cols)
            if len(row.read) and len(col.read):
                pads = (row.pad_before, col.pad_before, row.pad_after, col.pad_after)
                yield ConvTerm(channels, row.read, col.read, {**weights, "H": rows, "W": cols}, groups, pads)


def kernel_parts(op: Convolution, cut_: Cut | StepPlan, units: Units | None) -> tuple[tuple[Range, Range], ...]:
    """The taps (rows, cols) of the kernel that one operator of the graph computes at a time.

    Of a plain convolution these are the passes. A transposed one is cut into blocks of so many neighbouring taps that
    each phase has as many as a unit: one operator then stands for a pass in each phase. Where the weights of only one
    pass are in memory at a time, a block has no more taps than that.
    """
    if not isinstance(op, Conv2dTranspose):
        return tuple((one.rows, one.cols) for one in cut_.passes)
    if cut_.passes_resident:
        unit = op.kernel if units is None else max(units, key=lambda pair: (pair[0] * pair[1], pair))
        steps = [stride // gcd(stride, dilation) for stride, dilation in zip(op.strides, op.dilation, strict=True)]
        block = [unit[axis] * steps[axis] for axis in range(2)]
    else:
        largest = max(cut_.passes, key=lambda one: one.taps)
        block = [len(largest.rows), len(largest.cols)]
    return tuple((row, col) for row in cut(op.kernel[0], block[0]) for col in cut(op.kernel[1], block[1]))


def takes_several(step: Step, cut_: Cut | StepPlan, units: Units | None) -> bool:
    """Whether a step that is cut so is more than one operator of the graph."""
    pieces = len(cut_.rows) * len(cut_.cols) * len(cut_.channels) * len(cut_.in_channels)
    if isinstance(step.op, Conv2d | Conv2dTranspose):
        pieces *= len(kernel_parts(step.op, cut_, units))
    return pieces > 1


def _channel_parts(
    op: Convolution, chunk: Chunk, cut_: Cut | StepPlan
) -> Iterator[tuple[Range, dict[str, Range], int]]:
    """The parts of the sum over channels: input channels, the ranges of the kernel's O and I, and groups."""
    found, source = op.groups_of(chunk.channels), op.in_channel_range(chunk.channels)
    first = found.start * op.out_channels_per_group
    within = Range(chunk.channels.start - first, chunk.channels.stop - first)
    if len(found) > 1:
        within = Range(0, op.out_channels_per_group)
    for part in cut_.in_channels:
        ins = source if len(cut_.in_channels) == 1 else Range(source.start + part.start, source.start + part.stop)
        if isinstance(op, Conv2dTranspose):
            yield ins, {"I": ins, "O": within}, len(found)
        else:
            yield ins, {"I": part, "O": chunk.channels}, len(found)


def _windows(op: Convolution, chunk: Chunk, rows: Range, cols: Range) -> tuple[Window, Window]:
    """What some taps read along each axis for the outputs of a chunk."""
    before = [op.padding[axis] - taps.start * op.dilation[axis] for axis, taps in enumerate((rows, cols))]
    if isinstance(op, Conv2dTranspose):
        part = replace(op, kernel=(len(rows), len(cols)), padding=(before[0], before[1], 0, 0))
        return part.row_window(chunk.row.out), part.col_window(chunk.col.out)
    row, col = (
        conv_window(out, size, len(taps), op.strides[axis], op.dilation[axis], before[axis])
        for axis, (out, size, taps) in enumerate(((chunk.row.out, op.in_rows, rows), (chunk.col.out, op.in_cols, cols)))
    )
    return row, col
