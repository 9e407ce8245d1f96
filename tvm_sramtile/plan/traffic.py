"""DRAM traffic of a cut, in closed form.

Chunks run as nested loops. An operand takes, with each chunk, the product of its extents along the axes; what it has in
common with the chunk before is in SRAM already. From one chunk to the next, one axis goes a step on, those outside it
stay, and those inside it start again: the shared parts are products too, and so is their sum over all such steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tvm_sramtile.geometry import Elementwise, Resize2d
from tvm_sramtile.ints import Range
from tvm_sramtile.ir import Step, dtype_bytes
from tvm_sramtile.isa.table import TABLE_ENTRY_BYTES
from tvm_sramtile.plan.capacity import vectors
from tvm_sramtile.plan.cut import Convolution, Cut, pass_reads
from tvm_sramtile.plan.plan import AxisName, Order, Traffic


@dataclass(frozen=True, slots=True)
class Along:
    """An operand's extents along one axis, over the chunks of that axis.

    Attributes:
        total: their sum.
        kept: the sum of what each chunk but the first shares with the one before.
        wrapped: what the first chunk shares with the last.
    """

    total: int
    kept: int
    wrapped: int

    @staticmethod
    def same(count: int) -> Along:
        """Of an operand that the axis does not change."""
        return Along(count, count - 1, 1)

    @staticmethod
    def new(parts: Sequence[Range]) -> Along:
        """Of an operand that is loaded anew each time."""
        return Along(sum(map(len, parts)), 0, 0)

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


def loaded(axes: Mapping[AxisName, Along], order: Order) -> int:
    """How much of an operand is loaded."""
    along = [axes[name] for name in order]
    kept = (
        prod(one.total for one in along[:at]) * axis.kept * prod(one.wrapped for one in along[at + 1 :])
        for at, axis in enumerate(along)
    )
    return prod(one.total for one in along) - sum(kept)


def loads_once_per_call(cut: Cut, *, only_step: bool) -> bool:
    """Whether weights and vectors can stay in SRAM over all images of a call."""
    return only_step and len(cut.channels) == 1 and len(cut.in_channels) == 1 and cut.passes_resident


def traffic_of(step: Step, cut: Cut, *, once_per_call: bool) -> Traffic:
    """The bytes of one call with the step's batch."""
    channels = loaded(_by_channel(cut), cut.order)
    weight_bytes = _kernel_bytes(step, cut, channels)
    weight_bytes += sum(channels * dtype_bytes(tensor.dtype) for _, tensor in vectors(step))
    out_elems = step.op.out_channels * step.op.out_rows * step.op.out_cols
    return Traffic(
        input_bytes=step.images * _input_elems(step, cut) * dtype_bytes(step.data.dtype),
        weight_bytes=weight_bytes * (1 if once_per_call else step.images) + step.images * _table_bytes(step, cut),
        output_bytes=step.images * out_elems * dtype_bytes(step.output.dtype),
    )


def _by_channel(cut: Cut) -> dict[AxisName, Along]:
    """What depends on the output channels alone: weights and vectors."""
    return {
        "channels": Along.of(cut.channels), "rows": Along.same(len(cut.rows)), "cols": Along.same(len(cut.cols))
    }  # fmt: skip


def _kernel_bytes(step: Step, cut: Cut, channels: int) -> int:
    """The weights of all taps that reach an output; ``channels`` are loaded where nothing else takes their place."""
    op = step.op
    if step.weight is None or not isinstance(op, Convolution):
        return 0
    taps = [kernel_pass.taps for kernel_pass in cut.passes if kernel_pass.taps]
    turns = len(cut.in_channels) * (1 if cut.passes_resident else len(taps))
    outs = op.out_channels * cut.spatial if turns > 1 else channels
    return outs * op.in_channels_per_group * sum(taps) * dtype_bytes(step.weight.dtype)


def _input_elems(step: Step, cut: Cut) -> int:
    """Elements of the input map, and of an elementwise partner map, that one image loads."""
    if cut.input_per_pass and isinstance(step.op, Convolution):
        channels = sum(len(step.op.in_channel_range(part)) for part in cut.channels)
        return channels * sum(sum(map(len, rows)) * sum(map(len, cols)) for rows, cols in pass_reads(step.op, cut))
    elems = loaded(input_axes(step, cut), cut.order)
    return 2 * elems if isinstance(step.op, Elementwise) and step.op.partner == "map" else elems


def input_axes(step: Step, cut: Cut) -> dict[AxisName, Along]:
    """The input map along the axes: channels, rows and columns; chunks that lie wholly in padding read none."""
    rows, cols = ([span.read for span in spans if len(span.read)] for spans in (cut.rows, cut.cols))
    sources = [step.op.in_channel_range(part) for part in cut.channels]
    if len(cut.in_channels) > 1:  # a part of the channels takes the place of another
        return {"channels": Along.new(sources), "rows": Along.new(rows), "cols": Along.new(cols)}
    return {
        "channels": Along.of(sources),
        "rows": Along.of(rows, rolled=cut.rolled),
        "cols": Along.of(cols),
    }


def _table_bytes(step: Step, cut: Cut) -> int:
    op = step.op
    if not isinstance(op, Resize2d):
        return 0
    channels, rows, cols = (Along.same(len(parts)) for parts in (cut.channels, cut.rows, cut.cols))
    own_rows, own_cols = (Along.of([span.out for span in spans]) for spans in (cut.rows, cut.cols))
    row_entries = loaded({"channels": channels, "rows": own_rows, "cols": cols}, cut.order)
    col_entries = loaded({"channels": channels, "rows": rows, "cols": own_cols}, cut.order)
    return (row_entries * op.rows.taps + col_entries * op.cols.taps) * TABLE_ENTRY_BYTES
