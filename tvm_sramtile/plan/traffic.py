"""DRAM traffic of cuts, in closed form.

Chunks run as nested loops. An operand takes, with each chunk, the product of its extents along the axes; what it has in
common with the chunk before is in SRAM already. From one chunk to the next, one axis goes a step on, those outside it
stay, and those inside it start again: the shared parts are products too, and so is their sum over all such steps.

The numbers along rows and columns may be arrays, which stand for many cuts at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm_sramtile.geometry import Resize2d
from tvm_sramtile.ints import Range
from tvm_sramtile.ir import Step, dtype_bytes
from tvm_sramtile.isa.table import TABLE_ENTRY_BYTES
from tvm_sramtile.plan.capacity import vectors
from tvm_sramtile.plan.cut import Convolution, Cut, maps_loaded, pass_reads
from tvm_sramtile.plan.plan import AxisName, Order, Span, Traffic

Count = Any  # an integer, or an array of them


@dataclass(frozen=True, slots=True)
class Along:
    """An operand's extents along one axis, over the chunks of that axis.

    Attributes:
        total: their sum.
        kept: the sum of what each chunk but the first shares with the one before.
        wrapped: what the first chunk shares with the last.
    """

    total: Count
    kept: Count
    wrapped: Count

    @staticmethod
    def same(count: Count) -> Along:
        """Of an operand that the axis does not change."""
        return Along(count, count - 1, 1)

    @staticmethod
    def new(total: Count) -> Along:
        """Of an operand that is loaded anew each time."""
        return Along(total, 0, 0)

    @staticmethod
    def of(parts: Sequence[Range], *, rolled: bool = False) -> Along:
        """Of an operand that has these parts; what two of them share counts only when they are equal, or ``rolled``."""
        kept = sum(shared(new, old, rolled=rolled) for new, old in zip(parts[1:], parts, strict=False))
        wrapped = shared(parts[0], parts[-1], rolled=rolled) if parts else 0
        return Along(sum(map(len, parts)), kept, wrapped)


def shared(new: Range, old: Range, *, rolled: bool) -> int:
    """How much of ``new`` need not be loaded after ``old``: all where they are equal; ``rolled``: its first part."""
    if new == old:
        return len(new)
    return max(0, min(new.stop, old.stop) - new.start) if rolled and new.start >= old.start else 0


def loaded(axes: Mapping[AxisName, Along], order: Order) -> Count:
    """How much of an operand is loaded."""
    along = [axes[name] for name in order]
    kept = (
        prod(one.total for one in along[:at]) * axis.kept * prod(one.wrapped for one in along[at + 1 :])
        for at, axis in enumerate(along)
    )
    return prod(one.total for one in along) - sum(kept)


@dataclass(frozen=True, slots=True)
class Axis:
    """The chunks along channels, rows or columns.

    Attributes:
        count: how many.
        outs: their outputs.
        reads: what they read of the input; rows and columns that lie wholly in padding read nothing.
        by_pass: what each pass reads in all of them.
    """

    count: Count
    outs: Along
    reads: Along
    by_pass: tuple[Count, ...] = ()


def traffic_of(step: Step, cut: Cut, *, once_per_call: bool) -> Traffic:
    """The bytes of one call with the step's batch."""
    by_pass: list[tuple[int, ...]] = [(), ()]
    if cut.input_per_pass and isinstance(step.op, Convolution):
        reads = pass_reads(step.op, cut)
        by_pass = [tuple(sum(map(len, one[axis])) for one in reads) for axis in (0, 1)]
    rows, cols = span_axis(cut.rows, by_pass[0], rolled=cut.rolled), span_axis(cut.cols, by_pass[1])
    return traffic_along(step, cut, channel_axis(step, cut), rows, cols, once_per_call=once_per_call)


def channel_axis(step: Step, cut: Cut) -> Axis:
    """The loop over output channels: over shelves of chunks whose weights are in SRAM together."""
    sources = Along.of([step.op.in_channel_range(part) for part in cut.held])
    return Axis(len(cut.held), Along.of(cut.held), sources)


def span_axis(spans: Sequence[Span], by_pass: tuple[int, ...] = (), *, rolled: bool = False) -> Axis:
    """The chunks along rows or columns."""
    reads = Along.of([span.read for span in spans if len(span.read)], rolled=rolled)
    return Axis(len(spans), Along.of([span.out for span in spans]), reads, by_pass)


def loads_once_per_call(cut: Cut, *, only_step: bool) -> bool:
    """Whether weights and vectors can stay in SRAM over all images of a call."""
    return only_step and len(cut.held) == 1 and len(cut.in_channels) == 1 and cut.passes_resident


def traffic_along(step: Step, cut: Cut, channels: Axis, rows: Axis, cols: Axis, *, once_per_call: Count) -> Traffic:
    """The same for chunks along these axes, not those of ``cut``."""
    row, col = Along.same(rows.count), Along.same(cols.count)
    outs = loaded({"channels": channels.outs, "rows": row, "cols": col}, cut.order)
    weight_bytes = _kernel_bytes(step, cut, outs, rows.count * cols.count)
    weight_bytes = weight_bytes + sum(outs * dtype_bytes(tensor.dtype) for _, tensor in vectors(step))
    out_elems = step.op.out_channels * step.op.out_rows * step.op.out_cols
    return Traffic(
        input_bytes=step.images * _input_elems(step, cut, channels, rows, cols) * dtype_bytes(step.data.dtype),
        weight_bytes=weight_bytes * (step.images - (step.images - 1) * once_per_call)
        + step.images * _table_bytes(step, cut, channels, rows, cols),
        output_bytes=step.images * out_elems * dtype_bytes(step.output.dtype) if cut.around.stores else 0,
    )


def _kernel_bytes(step: Step, cut: Cut, channels: Count, spatial: Count) -> Count:
    """The weights of all taps that reach an output; ``channels`` are loaded where nothing else takes their place."""
    op = step.op
    if step.weight is None or not isinstance(op, Convolution):
        return 0
    taps = [kernel_pass.taps for kernel_pass in cut.passes if kernel_pass.taps]
    turns = len(cut.in_channels) * (1 if cut.passes_resident else len(taps))
    outs = op.out_channels * spatial if turns > 1 else channels
    return outs * op.in_channels_per_group * sum(taps) * dtype_bytes(step.weight.dtype)


def _input_elems(step: Step, cut: Cut, channels: Axis, rows: Axis, cols: Axis) -> Count:
    """Elements of the input map, and of an elementwise partner map, that one image loads."""
    maps = maps_loaded(step, cut.around)
    if not maps:
        return 0
    if cut.input_per_pass:
        return channels.reads.total * sum(row * col for row, col in zip(rows.by_pass, cols.by_pass, strict=True))
    axes: dict[AxisName, Along] = {"channels": channels.reads, "rows": rows.reads, "cols": cols.reads}
    if len(cut.in_channels) > 1:  # a part of the channels takes the place of another
        axes = {name: Along.new(along.total) for name, along in axes.items()}
    return maps * loaded(axes, cut.order)


def _table_bytes(step: Step, cut: Cut, channels: Axis, rows: Axis, cols: Axis) -> Count:
    op = step.op
    if not isinstance(op, Resize2d):
        return 0
    channel, row, col = (Along.same(axis.count) for axis in (channels, rows, cols))
    row_entries = loaded({"channels": channel, "rows": rows.outs, "cols": col}, cut.order)
    col_entries = loaded({"channels": channel, "rows": row, "cols": cols.outs}, cut.order)
    return (row_entries * op.rows.taps + col_entries * op.cols.taps) * TABLE_ENTRY_BYTES
