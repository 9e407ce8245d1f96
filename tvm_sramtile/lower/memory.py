"""What lies in SRAM while a step runs: loads, stores, and what need not be loaded again."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ints import Range
from tvm_sramtile.ir import Role, Step, Tensor, dtype_bytes
from tvm_sramtile.isa import Command, Opcode, memory_starts
from tvm_sramtile.isa.table import COPY, LOAD, LOAD_TABLE, LOAD_WEIGHTS, STORE
from tvm_sramtile.lower.slots import Slot, place_buffers
from tvm_sramtile.lower.tensors import TensorTable
from tvm_sramtile.lower.waits import Sequencer
from tvm_sramtile.plan import Chunk, KernelPass, StepPlan
from tvm_sramtile.plan.capacity import vectors
from tvm_sramtile.plan.cut import input_extents
from tvm_sramtile.plan.plan import Stay, shelves
from tvm_sramtile.plan.traffic import shared

Convolution = Conv2d | Conv2dTranspose
NOWHERE = Slot(0, 0)
_ONE, _NONE = Range(0, 1), Range(0, 0)


@dataclass(frozen=True, slots=True)
class SramMap:
    """A map in SRAM: where it is, the bytes from block to block, and which rows and columns of the whole map it has."""

    slot: Slot
    block_bytes: int
    rows: Range = _NONE
    cols: Range = _NONE


@dataclass(frozen=True, slots=True)
class Window:
    """A part of an input map."""

    channels: Range
    rows: Range
    cols: Range

    @property
    def area(self) -> int:
        """Positions of a channel; 0: it lies wholly in padding."""
        return len(self.rows) * len(self.cols)


def window_of(chunk: Chunk, channels: Range) -> Window:
    """What a chunk reads of these input channels."""
    return Window(channels, chunk.row.read, chunk.col.read)


@dataclass(slots=True)
class StepMemory:
    """What lies in SRAM while a step runs, and the commands that bring it there and back.

    Attributes:
        index: of the step.
        stays: the region's maps that stay in SRAM.
        slots: where the copies of each buffer are.
    """

    index: int
    step: Step
    plan: StepPlan
    stays: Sequence[Stay]
    spec: AcceleratorSpec
    table: TensorTable
    prologue: Sequencer
    body: Sequencer
    slots: dict[str, tuple[Slot, ...]] = field(init=False)
    out_block_bytes: int = field(init=False)  # from one channel block to the next, of the largest chunk
    in_block_bytes: int = field(init=False)
    _held: dict[str, Hashable] = field(default_factory=dict)  # what each buffer was last filled with
    _turns: dict[str, int] = field(default_factory=dict)  # how often it was filled
    _shelves: dict[Range, tuple[Range, ...]] = field(init=False)  # by a chunk's channels, those that are held with them

    def __post_init__(self) -> None:
        self.slots = dict(place_buffers(self.plan, self.spec))
        elem_bytes, layout = dtype_bytes(self.step.data.dtype), self.spec.layout
        outs = (max(len(span.out) for span in spans) for spans in (self.plan.rows, self.plan.cols))
        self.out_block_bytes = layout.block_elems(*outs) * elem_bytes
        self.in_block_bytes = layout.block_elems(*input_extents(self.step, self.plan)) * elem_bytes
        parts = shelves(self.plan.channels, self.plan.together)
        self._shelves = {channels: shelf for shelf in parts for channels in shelf}

    # What lies in SRAM.

    def slot(self, buffer: str) -> Slot:
        """The copy of a buffer that was filled last."""
        slots = self.slots.get(buffer, (NOWHERE,))
        return slots[max(0, self._turns.get(buffer, 0) - 1) % len(slots)]

    def _fill(self, buffer: str, content: Hashable) -> Slot | None:
        """The copy of ``buffer`` to fill with ``content`` next; ``None`` when it holds that already."""
        if buffer in self._held and self._held[buffer] == content:
            return None
        self._held[buffer] = content
        self._turns[buffer] = self._turns.get(buffer, 0) + 1
        return self.slot(buffer)

    # Loads and stores.

    def load_vectors(self, chunk: Chunk) -> None:
        """What has one value a channel, for the chunk and those that are held with it."""
        out, shelf = self.prologue if self.plan.once_per_call else self.body, self._shelves[chunk.channels]
        for name, tensor in vectors(self.step):
            if self._fill(name, shelf) is None:
                continue
            for channels in shelf:
                slot = self._part_of_vector(name, tensor, channels)
                block_bytes = self._value_block_bytes(tensor)
                self._move(out, LOAD, tensor, "vector", channels, _ONE, _ONE, SramMap(slot, block_bytes))

    def vector(self, buffer: str, chunk: Chunk) -> Slot:
        """Where the chunk's part of a vector lies; ``NOWHERE`` if the step has no such vector."""
        tensor = dict(vectors(self.step)).get(buffer)
        return NOWHERE if tensor is None else self._part_of_vector(buffer, tensor, chunk.channels)

    def _part_of_vector(self, buffer: str, tensor: Tensor, channels: Range) -> Slot:
        first = self._shelves[channels][0].start
        block_bytes = self._value_block_bytes(tensor)
        skipped = self.spec.layout.blocks(channels.start - first) * block_bytes
        return Slot(self.slot(buffer).address + skipped, self.spec.layout.blocks(len(channels)) * block_bytes)

    def _value_block_bytes(self, tensor: Tensor) -> int:
        return self.spec.layout.block_elems(1, 1) * dtype_bytes(tensor.dtype)

    def load_map(self, buffer: str, tensor: Tensor, window: Window) -> SramMap:
        """A part of an input map; nothing is loaded for one that lies wholly in padding, or stays in SRAM."""
        if buffer in self.plan.around.maps and window.area:
            return self.stay(tensor, window.channels, self.step.op.in_rows, self.step.op.in_cols)
        before, source = self._held.get(buffer), self.slot(buffer)
        slot = self._fill(buffer, window) if window.area else None
        if slot is not None:
            kept = 0
            if self.plan.rolled and isinstance(before, Window):
                kept = self._keep(before, source, window, slot)
            rows = Range(window.rows.start + kept, window.rows.stop)
            if len(rows):
                place = SramMap(slot, self.in_block_bytes)
                self._move(self.body, LOAD, tensor, "data", window.channels, rows, window.cols, place, after=kept)
        there = window if window.area else Window(window.channels, _NONE, _NONE)
        return SramMap(self.slot(buffer), self.in_block_bytes, there.rows, there.cols)

    def stay(self, tensor: Tensor, channels: Range, rows: int, cols: int) -> SramMap:
        """These channels of a map of so many rows and columns that stays in SRAM."""
        found = next(stay for stay in self.stays if stay.tensor == tensor.name)
        layout = self.spec.layout
        block_bytes = layout.block_elems(rows, cols) * dtype_bytes(tensor.dtype)
        address = memory_starts(self.spec.memories.values())[0] + found.offset_bytes
        skipped = layout.blocks(channels.start) * block_bytes
        slot = Slot(address + skipped, layout.blocks(len(channels)) * block_bytes)
        return SramMap(slot, block_bytes, Range(0, rows), Range(0, cols))

    def target(self, count: int, chunk: Chunk) -> SramMap:
        """Where the ``count``-th chunk of the output is made."""
        if "output" in self.plan.around.maps:
            return self.stay(self.step.output, chunk.channels, len(chunk.row.out), len(chunk.col.out))
        slots = self.slots["output"]
        return SramMap(slots[count % len(slots)], self.out_block_bytes)

    def load_anew(self, buffer: str, tensor: Tensor, window: Window) -> SramMap:
        """The same, even where the buffer holds it already."""
        self._held.pop(buffer, None)
        return self.load_map(buffer, tensor, window)

    def _keep(self, before: Window, source: Slot, window: Window, target: Slot) -> int:
        """Copy the first rows of ``window`` from where ``before`` lies; returns how many there are."""
        if (before.channels, before.cols) != (window.channels, window.cols):
            return 0
        kept = shared(window.rows, before.rows, rolled=True)
        if kept:
            row_bytes = self.spec.layout.row_elems(len(window.cols)) * dtype_bytes(self.step.data.dtype)
            values = (
                source.address + (window.rows.start - before.rows.start) * row_bytes,
                target.address,
                self.in_block_bytes,
                len(window.channels),
                kept,
                len(window.cols),
            )
            self.body.add(Command(COPY, values, step=self.index), (source,), (target,))
        return kept

    def store(self, chunk: Chunk, source: SramMap) -> None:
        """The finished chunk, if it is wanted in DRAM."""
        if not self.plan.around.stores:
            return
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
        place: SramMap,
        after: int = 0,
    ) -> None:
        """A load or store of a box of a map, which lies in SRAM after so many rows of its place."""
        row_bytes = self.spec.layout.row_elems(len(cols)) * dtype_bytes(tensor.dtype)
        values = (
            self.table.of(tensor, role, self.step),
            channels.start,
            len(channels),
            rows.start,
            len(rows),
            cols.start,
            len(cols),
            place.slot.address + after * row_bytes,
            place.block_bytes,
            row_bytes,
        )
        dram, sram = (tensor.name,), (place.slot,)
        reads, writes = (dram, sram) if opcode is LOAD else (sram, dram)
        out.add(Command(opcode, values, step=self.index), reads, writes)

    def load_weights(self, op: Convolution, chunk: Chunk, ins: Range, passes: tuple[KernelPass, ...]) -> None:
        """The weights of some passes for the chunk and those held with it, one after the other in the buffer."""
        weight, shelf = self.step.weight, self._shelves[chunk.channels]
        if weight is None:
            return
        slot = self._fill("weights", (shelf, ins, passes))
        if slot is None:
            return
        out = self.prologue if self.plan.once_per_call else self.body
        rows, cols = op.row_phases, op.col_phases
        for channels, kernel_pass, address in self._weight_places(shelf, ins, passes, slot):
            row, col = rows[kernel_pass.row_phase], cols[kernel_pass.col_phase]
            values = (
                self.table.of(weight, "weight", self.step),
                channels.start,
                len(channels),
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

    def weight_addresses(
        self, chunk: Chunk, ins: Range, passes: tuple[KernelPass, ...]
    ) -> Iterator[tuple[KernelPass, int]]:
        """Where the weights for the chunk lie, of each pass that has taps."""
        places = self._weight_places(self._shelves[chunk.channels], ins, passes, self.slot("weights"))
        return ((kernel_pass, address) for channels, kernel_pass, address in places if channels == chunk.channels)

    def _weight_places(
        self, shelf: tuple[Range, ...], ins: Range, passes: tuple[KernelPass, ...], slot: Slot
    ) -> Iterator[tuple[Range, KernelPass, int]]:
        address = slot.address
        lane_bytes = self.spec.channel_align * len(ins) * dtype_bytes(self.step.data.dtype)
        for kernel_pass in passes:
            for channels in shelf if kernel_pass.taps else ():
                yield channels, kernel_pass, address
                address += kernel_pass.taps * self.spec.layout.blocks(len(channels)) * lane_bytes

    def load_table(self, axis: str, out: Range) -> Slot:
        """The entries of these outputs, of a resize's rows ("row") or columns ("col")."""
        slot = self._fill(f"{axis} table", out)
        if slot is not None:
            values = (self.table.of_resize(self.step, axis), out.start, len(out), slot.address)
            self.body.add(Command(LOAD_TABLE, values, step=self.index), (), (slot,))
        return self.slot(f"{axis} table")
