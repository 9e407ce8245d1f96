"""DRAM traffic of a cut, in closed form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvm_sramtile.geometry import Elementwise, Resize2d
from tvm_sramtile.ints import Range
from tvm_sramtile.ir import Step, dtype_bytes
from tvm_sramtile.isa.table import TABLE_ENTRY_BYTES
from tvm_sramtile.plan.capacity import vectors
from tvm_sramtile.plan.cut import Convolution, Cut, pass_reads
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
    if cut.input_per_pass and isinstance(step.op, Convolution):
        channels = sum(len(step.op.in_channel_range(part)) for part in cut.channels)
        return channels * sum(sum(map(len, rows)) * sum(map(len, cols)) for rows, cols in pass_reads(step.op, cut))
    elems = sum(len(channels) * loads.area for channels, loads in input_loads(step, cut))
    return 2 * elems if isinstance(step.op, Elementwise) and step.op.partner == "map" else elems


@dataclass(frozen=True, slots=True)
class Loads:
    """How often a map is loaded, and how many elements of a channel that is together."""

    count: int
    area: int

    def without(self, rows: Range, cols: Range) -> Loads:
        """One load less, of these rows and columns."""
        return Loads(self.count - 1, self.area - len(rows) * len(cols))


def input_loads(step: Step, cut: Cut) -> Iterator[tuple[Range, Loads]]:
    """For each range of output channels, the input channels that its chunks read, and the loads.

    With several parts of the input channels, each load is one of every part. What is there already is not loaded again:
    a chunk may read what the one before it did.
    """
    rows = [span.read for span in cut.rows if len(span.read)]
    cols = [span.read for span in cut.cols if len(span.read)]
    parts = len(cut.in_channels)
    again = parts == 1 and bool(rows) and bool(cols)
    if again:
        cols = [col for at, col in enumerate(cols) if at == 0 or col != cols[at - 1]]
        again = cols[0] == cols[-1]
    loads = Loads(len(rows) * len(cols), sum(map(len, rows)) * sum(map(len, cols)))
    for row, before in zip(rows[1:], rows, strict=False):
        if again and row == before:
            loads = loads.without(row, cols[0])
    previous = None
    for channels in cut.channels:
        source = step.op.in_channel_range(channels)
        held = again and source == previous and rows[0] == rows[-1]
        yield source, loads.without(rows[0], cols[0]) if held else loads
        previous = source


def _table_bytes(step: Step, cut: Cut) -> int:
    op = step.op
    if not isinstance(op, Resize2d):
        return 0
    row_loads = 1 if len(cut.rows) == 1 else len(cut.channels)
    col_loads = 1 if len(cut.cols) == 1 else len(cut.channels) * len(cut.rows)
    entries = row_loads * op.out_rows * op.rows.taps + col_loads * op.out_cols * op.cols.taps
    return entries * TABLE_ENTRY_BYTES
