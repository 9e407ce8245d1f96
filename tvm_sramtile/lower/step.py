"""Commands of one step."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose, Elementwise, Pool2d, Resize2d
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ints import Range
from tvm_sramtile.ir import Role, Step, Tensor, dtype_bytes
from tvm_sramtile.isa import Command, Function, Opcode, Partner, Pooling
from tvm_sramtile.isa.table import (
    CONV,
    CONV_BIAS,
    CONV_CLIP,
    CONV_FIRST,
    CONV_LAST,
    ELTWISE,
    LOAD,
    LOAD_TABLE,
    LOAD_WEIGHTS,
    POOL,
    RESIZE,
    STORE,
)
from tvm_sramtile.lower.slots import Slot, place_buffers
from tvm_sramtile.lower.tensors import DTYPES, TensorTable
from tvm_sramtile.lower.waits import Sequencer
from tvm_sramtile.plan import Chunk, KernelPass, StepPlan
from tvm_sramtile.plan.cut import input_extents

Convolution = Conv2d | Conv2dTranspose
_NOWHERE = Slot(0, 0)
_ONE = Range(0, 1)


@dataclass(frozen=True, slots=True)
class _Map:
    """A map in SRAM: where it is, and the bytes from block to block."""

    slot: Slot
    block_bytes: int


@dataclass(frozen=True, slots=True)
class _Window:
    """A part of an input map."""

    channels: Range
    rows: Range
    cols: Range

    @property
    def area(self) -> int:
        """Positions of a channel; 0: it lies wholly in padding."""
        return len(self.rows) * len(self.cols)


def _window(chunk: Chunk, channels: Range) -> _Window:
    """What a chunk reads of these input channels."""
    return _Window(channels, chunk.row.read, chunk.col.read)


@dataclass(slots=True)
class StepLowering:
    """Emits the commands of ``step`` by its plan."""

    index: int
    step: Step
    plan: StepPlan
    spec: AcceleratorSpec
    table: TensorTable
    prologue: Sequencer
    body: Sequencer
    slots: dict[str, tuple[Slot, ...]] = field(init=False)
    _out_block_bytes: int = field(init=False)  # from one channel block to the next, of the largest chunk
    _in_block_bytes: int = field(init=False)
    _held: dict[str, Hashable] = field(default_factory=dict)  # what each buffer was last filled with
    _turns: dict[str, int] = field(default_factory=dict)  # how often it was filled

    def __post_init__(self) -> None:
        self.slots = dict(place_buffers(self.plan, self.spec))
        elem_bytes, layout = dtype_bytes(self.step.data.dtype), self.spec.layout
        outs = (max(len(span.out) for span in spans) for spans in (self.plan.rows, self.plan.cols))
        self._out_block_bytes = layout.block_elems(*outs) * elem_bytes
        self._in_block_bytes = layout.block_elems(*input_extents(self.step, self.plan)) * elem_bytes

    def run(self) -> None:
        """All chunks in the plan's order."""
        for count, chunk in enumerate(self.plan.chunks):
            slots = self.slots["output"]
            target = _Map(slots[count % len(slots)], self._out_block_bytes)
            self._load_vectors(chunk)
            match self.step.op:
                case Conv2d() | Conv2dTranspose() as op:
                    self._convolve(op, chunk, target)
                case Pool2d() as op:
                    self._pool(op, chunk, target)
                case Resize2d() as op:
                    self._resize(op, chunk, target)
                case Elementwise() as op:
                    self._elementwise(op, chunk, target)
            for position, activation in enumerate(self.step.activations):
                vector = self._slot(f"vector {position}") if activation.vector else _NOWHERE
                values = (activation.value0, activation.value1)
                self._eltwise(chunk, target, activation.function, activation.partner, target, vector, values)
            self._store(chunk, target)

    # What lies in SRAM.

    def _slot(self, buffer: str) -> Slot:
        """The copy of a buffer that was filled last."""
        slots = self.slots.get(buffer, (_NOWHERE,))
        return slots[max(0, self._turns.get(buffer, 0) - 1) % len(slots)]

    def _fill(self, buffer: str, content: Hashable) -> Slot | None:
        """The copy of ``buffer`` to fill with ``content`` next; ``None`` when it holds that already."""
        if buffer in self._held and self._held[buffer] == content:
            return None
        self._held[buffer] = content
        self._turns[buffer] = self._turns.get(buffer, 0) + 1
        return self._slot(buffer)

    # Loads and stores.

    def _load_vectors(self, chunk: Chunk) -> None:
        out = self.prologue if self.plan.once_per_call else self.body
        vectors: list[tuple[str, Tensor | None]] = [("bias", self.step.bias)]
        if isinstance(self.step.op, Elementwise) and self.step.op.partner == "vector":
            vectors.append(("vector", self.step.other))
        vectors += [(f"vector {at}", activation.vector) for at, activation in enumerate(self.step.activations)]
        for name, tensor in vectors:
            slot = self._fill(name, chunk.channels) if tensor is not None else None
            if tensor is not None and slot is not None:
                block_bytes = self.spec.layout.block_elems(1, 1) * dtype_bytes(tensor.dtype)
                self._move(out, LOAD, tensor, "vector", chunk.channels, _ONE, _ONE, _Map(slot, block_bytes))

    def _load_map(self, buffer: str, tensor: Tensor, window: _Window) -> _Map:
        """A part of an input map; nothing is loaded for one that lies wholly in padding."""
        block_bytes = self._in_block_bytes
        if window.area:
            slot = self._fill(buffer, window)
            if slot is not None:
                place = _Map(slot, block_bytes)
                self._move(self.body, LOAD, tensor, "data", window.channels, window.rows, window.cols, place)
        return _Map(self._slot(buffer), block_bytes)

    def _store(self, chunk: Chunk, source: _Map) -> None:
        first = self.step.output_channel
        channels = Range(first + chunk.channels.start, first + chunk.channels.stop)
        self._move(self.body, STORE, self.step.output, "output", channels, chunk.row.out, chunk.col.out, source)

    def _move(
        self,
        out: Sequencer,
        opcode: Opcode,
        tensor: Tensor,
        role: Role,
        channels: Range,
        rows: Range,
        cols: Range,
        place: _Map,
    ) -> None:
        values = (
            self.table.of(tensor, role, self.step),
            channels.start,
            len(channels),
            rows.start,
            len(rows),
            cols.start,
            len(cols),
            place.slot.address,
            place.block_bytes,
            self.spec.layout.row_elems(len(cols)) * dtype_bytes(tensor.dtype),
        )
        dram, sram = (tensor.name,), (place.slot,)
        reads, writes = (dram, sram) if opcode is LOAD else (sram, dram)
        out.add(Command(opcode, values, step=self.index), reads, writes)

    def _load_weights(self, op: Convolution, chunk: Chunk, ins: Range, passes: tuple[KernelPass, ...]) -> None:
        """The weights of some passes, one after the other in the buffer."""
        weight = self.step.weight
        if weight is None:
            return
        slot = self._fill("weights", (chunk.channels, ins, passes))
        if slot is None:
            return
        out = self.prologue if self.plan.once_per_call else self.body
        rows, cols = op.row_phases, op.col_phases
        for kernel_pass, address in self._weight_addresses(chunk, ins, passes, slot):
            row, col = rows[kernel_pass.row_phase], cols[kernel_pass.col_phase]
            values = (
                self.table.of(weight, "weight", self.step),
                chunk.channels.start,
                len(chunk.channels),
                ins.start,
                len(ins),
                row.taps[kernel_pass.rows.start],
                len(kernel_pass.rows),
                row.tap_step,
                col.taps[kernel_pass.cols.start],
                len(kernel_pass.cols),
                col.tap_step,
                address,
            )
            out.add(Command(LOAD_WEIGHTS, values, step=self.index), (weight.name,), (slot,))

    def _weight_addresses(
        self, chunk: Chunk, ins: Range, passes: tuple[KernelPass, ...], slot: Slot
    ) -> Iterator[tuple[KernelPass, int]]:
        address = slot.address
        lanes = self.spec.channel_align
        tap_bytes = self.spec.layout.blocks(len(chunk.channels)) * lanes * len(ins) * dtype_bytes(self.step.data.dtype)
        for kernel_pass in passes:
            if kernel_pass.taps:
                yield kernel_pass, address
                address += kernel_pass.taps * tap_bytes

    def _load_table(self, axis: str, tensor_step: Step, out: Range, taps: int) -> Slot:
        slot = self._fill(f"{axis} table", out)
        if slot is not None:
            values = (self.table.of_resize(tensor_step, axis), out.start, len(out), slot.address)
            self.body.add(Command(LOAD_TABLE, values, step=self.index), (), (slot,))
        return self._slot(f"{axis} table")

    # Computing.

    def _convolve(self, op: Convolution, chunk: Chunk, target: _Map) -> None:
        passes = self.plan.passes
        sums = len(self.plan.in_channels)
        source_channels = op.in_channel_range(chunk.channels)
        last = {(p.row_phase, p.col_phase): count for count, p in enumerate(passes)}
        for turn, ins in enumerate(self.plan.in_channels):
            channels = source_channels
            if sums > 1:
                channels = Range(source_channels.start + ins.start, source_channels.start + ins.stop)
            if self.plan.passes_resident:
                self._load_weights(op, chunk, ins, passes)
            window = _window(chunk, channels)
            source = _Map(_NOWHERE, 0) if self.plan.input_per_pass else self._load_map("input", self.step.data, window)
            addresses = dict(self._weight_addresses(chunk, ins, passes, self._slot("weights")))
            begun: set[tuple[int, int]] = set()
            for count, kernel_pass in enumerate(passes):
                if not self.plan.passes_resident and kernel_pass.taps:
                    self._load_weights(op, chunk, ins, (kernel_pass,))
                    addresses[kernel_pass] = self._slot("weights").address
                if self.plan.input_per_pass:
                    window = self._pass_window(op, chunk, kernel_pass, channels)
                    self._held.pop("input", None)  # loaded anew, even where a pass reads what the one before it did
                    source = self._load_map("input", self.step.data, window)
                phase = (kernel_pass.row_phase, kernel_pass.col_phase)
                flags = CONV_FIRST if turn == 0 and phase not in begun else 0
                begun.add(phase)
                if turn == sums - 1 and last[phase] == count:
                    flags |= CONV_LAST | (CONV_BIAS if self.step.bias else 0) | (CONV_CLIP if self.step.clip else 0)
                weights = addresses.get(kernel_pass, 0)
                self._conv(op, chunk, kernel_pass, flags, source, window, weights, target)

    def _conv(
        self,
        op: Convolution,
        chunk: Chunk,
        kernel_pass: KernelPass,
        flags: int,
        source: _Map,
        window: _Window,
        weights: int,
        target: _Map,
    ) -> None:
        row, col = op.row_phases[kernel_pass.row_phase], op.col_phases[kernel_pass.col_phase]
        out_rows, out_cols = row.outputs(chunk.row.out), col.outputs(chunk.col.out)
        if not len(out_rows) or not len(out_cols):
            return
        clip = self.step.clip
        groups = 1 if len(self.plan.in_channels) > 1 else len(op.groups_of(chunk.channels))
        accumulators = self._slot("accumulators")
        code = DTYPES[self.step.data.dtype]
        values = (
            source.slot.address,
            source.block_bytes,
            len(window.rows) if window.area else 0,
            len(window.cols) if window.area else 0,
            len(window.channels),
            weights,
            self._slot("bias").address,
            accumulators.address if accumulators.bytes else target.slot.address,
            target.slot.address,
            target.block_bytes,
            len(chunk.row.out),
            len(chunk.col.out),
            row.offset + out_rows.start * row.step - chunk.row.out.start,
            len(out_rows),
            row.step,
            col.offset + out_cols.start * col.step - chunk.col.out.start,
            len(out_cols),
            col.step,
            len(chunk.channels),
            groups,
            *kernel_pass.unit,
            len(kernel_pass.rows),
            len(kernel_pass.cols),
            row.stride,
            col.stride,
            row.dilation,
            col.dilation,
            window.rows.start - (out_rows.start * row.stride + row.first + row.dilation * kernel_pass.rows.start),
            window.cols.start - (out_cols.start * col.stride + col.first + col.dilation * kernel_pass.cols.start),
            -math.inf if clip is None or clip.low is None else clip.low,
            math.inf if clip is None or clip.high is None else clip.high,
            code,
            code,
            code,
            code,
        )
        places = (source.slot, self._slot("weights"), self._slot("bias"))
        written = {target.slot, accumulators} if accumulators.bytes else {target.slot}
        self.body.add(Command(CONV, values, flags, self.index), [p for p in places if p.bytes], written)

    def _pass_window(self, op: Convolution, chunk: Chunk, one: KernelPass, channels: Range) -> _Window:
        """What one pass reads of these input channels for a chunk."""
        rows = op.row_phases[one.row_phase].reads(chunk.row.out, one.rows, op.in_rows)
        cols = op.col_phases[one.col_phase].reads(chunk.col.out, one.cols, op.in_cols)
        return _Window(channels, rows, cols)

    def _pool(self, op: Pool2d, chunk: Chunk, target: _Map) -> None:
        window = _window(chunk, chunk.channels)
        source = self._load_map("input", self.step.data, window)
        values = (
            source.slot.address,
            source.block_bytes,
            len(window.rows) if window.area else 0,
            len(window.cols) if window.area else 0,
            len(chunk.channels),
            target.slot.address,
            target.block_bytes,
            len(chunk.row.out),
            len(chunk.col.out),
            *op.kernel,
            *op.strides,
            *op.dilation,
            chunk.row.read.start - (chunk.row.out.start * op.strides[0] - op.padding[0]),
            chunk.col.read.start - (chunk.col.out.start * op.strides[1] - op.padding[1]),
            Pooling[op.pooling.upper()],
        )
        reads = [source.slot] if source.slot.bytes else []
        self.body.add(Command(POOL, values, step=self.index), reads, (target.slot,))

    def _resize(self, op: Resize2d, chunk: Chunk, target: _Map) -> None:
        rows = self._load_table("row", self.step, chunk.row.out, op.rows.taps)
        cols = self._load_table("col", self.step, chunk.col.out, op.cols.taps)
        source = self._load_map("input", self.step.data, _window(chunk, chunk.channels))
        values = (
            source.slot.address,
            source.block_bytes,
            len(chunk.row.read),
            len(chunk.col.read),
            chunk.row.read.start,
            chunk.col.read.start,
            len(chunk.channels),
            rows.address,
            op.rows.taps,
            cols.address,
            op.cols.taps,
            target.slot.address,
            target.block_bytes,
            len(chunk.row.out),
            len(chunk.col.out),
        )
        self.body.add(Command(RESIZE, values, step=self.index), (source.slot, rows, cols), (target.slot,))

    def _elementwise(self, op: Elementwise, chunk: Chunk, target: _Map) -> None:
        window = _window(chunk, chunk.channels)
        source = self._load_map("input", self.step.data, window)
        partner = _NOWHERE
        if op.partner == "map" and self.step.other is not None:
            partner = self._load_map("other", self.step.other, window).slot
        elif op.partner == "vector":
            partner = self._slot("vector")
        self._eltwise(chunk, source, op.function, op.partner, target, partner, (op.value, 0.0))

    def _eltwise(
        self,
        chunk: Chunk,
        source: _Map,
        function: str,
        kind: str,
        target: _Map,
        partner: Slot,
        params: tuple[float, float],
    ) -> None:
        partner_block = self._in_block_bytes if kind == "map" else 0
        if kind == "vector":
            partner_block = self.spec.layout.block_elems(1, 1) * dtype_bytes(self.step.data.dtype)
        values = (
            source.slot.address,
            source.block_bytes,
            partner.address,
            partner_block,
            Partner[kind.upper()],
            target.slot.address,
            target.block_bytes,
            len(chunk.row.out),
            len(chunk.col.out),
            len(chunk.channels),
            Function[function.upper()],
            *params,
        )
        reads = [place for place in (source.slot, partner) if place.bytes]
        self.body.add(Command(ELTWISE, values, step=self.index), reads, (target.slot,))
