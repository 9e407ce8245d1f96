"""DRAM traffic of a cut, in closed form."""

from __future__ import annotations

from tvm_sramtile.geometry import Elementwise, Resize2d
from tvm_sramtile.ir import Step, dtype_bytes
from tvm_sramtile.isa.table import TABLE_ENTRY_BYTES
from tvm_sramtile.plan.capacity import vectors
from tvm_sramtile.plan.cut import Convolution, Cut
from tvm_sramtile.plan.plan import Traffic


def loads_weights_once(cut: Cut) -> bool:
    """Whether each weight crosses the chip's edge once an image: nothing else takes its place before it is done."""
    return cut.spatial == 1 or (len(cut.in_channels) == 1 and cut.passes_resident)


def loads_once_per_call(cut: Cut, *, only_step: bool) -> bool:
    """Whether weights and vectors can stay in SRAM over all images of a call."""
    return only_step and len(cut.channels) == 1 and len(cut.in_channels) == 1 and cut.passes_resident


def traffic_of(step: Step, cut: Cut, *, once_per_call: bool) -> Traffic:
    """The bytes of one call with the step's batch."""
    weight_bytes = _kernel_bytes(step, cut) * (1 if loads_weights_once(cut) else cut.spatial)
    weight_bytes += sum(step.op.out_channels * dtype_bytes(tensor.dtype) for _, tensor in vectors(step))
    out_elems = step.op.out_channels * step.op.out_rows * step.op.out_cols
    return Traffic(
        input_bytes=step.images * _input_elems(step, cut) * dtype_bytes(step.data.dtype),
        weight_bytes=weight_bytes * (1 if once_per_call else step.images) + step.images * _table_bytes(step, cut),
        output_bytes=step.images * out_elems * dtype_bytes(step.output.dtype),
    )


def _kernel_bytes(step: Step, cut: Cut) -> int:
    """The weights of all taps that reach an output."""
    op = step.op
    if step.weight is None or not isinstance(op, Convolution):
        return 0
    tap_elems = op.out_channels * op.in_channels_per_group
    return sum(kernel_pass.taps for kernel_pass in cut.passes) * tap_elems * dtype_bytes(step.weight.dtype)


def _input_elems(step: Step, cut: Cut) -> int:
    """Elements of the input map, and of an elementwise partner map, that one image loads."""
    op = step.op
    area = sum(len(span.read) for span in cut.rows) * sum(len(span.read) for span in cut.cols)
    ranges = [op.in_channel_range(channels) for channels in cut.channels]
    if cut.spatial == 1 and len(cut.in_channels) == 1:  # what the last range of channels loaded is still there
        ranges = [one for one, before in zip(ranges, [None, *ranges], strict=False) if one != before]
    elems = area * sum(len(one) for one in ranges)
    return 2 * elems if isinstance(op, Elementwise) and op.partner == "map" else elems


def _table_bytes(step: Step, cut: Cut) -> int:
    op = step.op
    if not isinstance(op, Resize2d):
        return 0
    row_loads = 1 if len(cut.rows) == 1 else len(cut.channels)
    col_loads = 1 if len(cut.cols) == 1 else len(cut.channels) * len(cut.rows)
    entries = row_loads * op.out_rows * op.rows.taps + col_loads * op.out_cols * op.cols.taps
    return entries * TABLE_ENTRY_BYTES
