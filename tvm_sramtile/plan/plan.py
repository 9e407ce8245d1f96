"""A plan: how each step of a region is cut, what lies in SRAM, what crosses the chip's edge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from tvm_sramtile.errors import CheckFailed
from tvm_sramtile.ints import Range

AxisName = Literal["channels", "rows", "cols"]
MapName = Literal["input", "other", "output"]
Order = tuple[AxisName, AxisName, AxisName]
AXES: Order = ("channels", "rows", "cols")
POOL = "pool"  # the memory of a spec that has but one


@dataclass(frozen=True, slots=True)
class Span:
    """One chunk along one axis by its marks in the whole maps: start and end rows, or columns.

    Attributes:
        out: output positions that the chunk yields.
        read: input positions that it reads; empty when it lies wholly in padding.
        before, after: what the operator adds to ``read`` on either side: padding, or of a transposed convolution the
            crop of its full output (negative: positions without a contributor are added).
    """

    out: Range
    read: Range
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a step's output: its channels, and its rows and columns with what they read."""

    channels: Range
    row: Span
    col: Span


def in_order(
    order: Order, channels: Sequence[Range], rows: Sequence[Span], cols: Sequence[Span], together: int = 1
) -> Iterator[Chunk]:
    """The chunks as nested loops over the axes ``order``, the outermost first; see ``StepPlan.together``."""
    axes: dict[AxisName, Sequence[Any]] = {"channels": shelves(channels, together), "rows": rows, "cols": cols}
    at = [order.index(axis) for axis in AXES]
    for parts in product(*(axes[axis] for axis in order)):
        for part in parts[at[0]]:
            yield Chunk(part, parts[at[1]], parts[at[2]])


def shelves(channels: Sequence[Range], together: int) -> tuple[tuple[Range, ...], ...]:
    """The chunks of channels whose weights are in SRAM at a time; see ``StepPlan.together``."""
    return tuple(tuple(channels[at : at + together]) for at in range(0, len(channels), together))


@dataclass(frozen=True, slots=True)
class KernelPass:
    """The taps that one convolution command computes of each chunk.

    Attributes:
        row_phase, col_phase: indices into the operator's phases; always 0 for a plain convolution.
        rows, cols: which of the phases' taps; empty where a phase has none.
        unit: the unit kernel that computes them.
    """

    row_phase: int
    col_phase: int
    rows: Range
    cols: Range
    unit: tuple[int, int]

    @property
    def taps(self) -> int:
        """Real taps."""
        return len(self.rows) * len(self.cols)


@dataclass(frozen=True, slots=True)
class Buffer:
    """A named piece of one SRAM memory.

    Attributes:
        copies: bytes of each copy; chunk ``i`` uses copy ``i % len(copies)``, which is as large as its largest chunk.
    """

    name: str
    memory: str
    copies: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Around:
    """What the other steps of the region have in SRAM while a step runs.

    Attributes:
        maps: which of the step's own maps, "input", "other" and "output", lie in SRAM whole, from the step that makes
            them to the last that reads them there: no buffer of the step holds them, and nothing is loaded of them.
        stored: an output that stays goes to DRAM as well.
        taken_bytes: the pool's first bytes, which all such maps take, those of other steps too. The step's buffers
            come after them.
    """

    maps: tuple[MapName, ...] = ()
    stored: bool = True
    taken_bytes: int = 0

    @property
    def stores(self) -> bool:
        """Whether the output goes to DRAM."""
        return self.stored or "output" not in self.maps


ALONE = Around()


@dataclass(frozen=True, slots=True)
class Stay:
    """A map that stays in SRAM, whole, from the step that makes it on.

    Attributes:
        tensor: its name.
        first, last: the steps, by index, that make it and that read it there last.
        offset_bytes: where it begins in the pool.
        bytes: formula (1).
    """

    tensor: str
    first: int
    last: int
    offset_bytes: int
    bytes: int

    @property
    def end_bytes(self) -> int:
        """Where it ends in the pool."""
        return self.offset_bytes + self.bytes


@dataclass(frozen=True, slots=True)
class Traffic:
    """DRAM bytes by kind."""

    input_bytes: int = 0
    weight_bytes: int = 0
    output_bytes: int = 0
    partial_sum_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """All kinds together."""
        return self.input_bytes + self.weight_bytes + self.output_bytes + self.partial_sum_bytes

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.input_bytes + other.input_bytes,
            self.weight_bytes + other.weight_bytes,
            self.output_bytes + other.output_bytes,
            self.partial_sum_bytes + other.partial_sum_bytes,
        )


@dataclass(frozen=True, slots=True)
class StepPlan:
    """How one step is cut: into the chunks ``channels`` x ``rows`` x ``cols``.

    Each chunk is summed over ``in_channels`` and, for each of these, over ``passes``, before it is stored.

    Attributes:
        step: the step's name.
        direction: how chunks are derived: "output-to-input", "input-to-output" or "any".
        tested_map: the map whose footprint decides: "input" or "output".
        footprint_bytes: formula (1) of the whole tested map.
        space_bytes: what the memory leaves for the tested map when the step is not cut, at least 0.
        chunk_footprint_bytes: formula (1) of the largest chunk of the tested map.
        order: the axes as nested loops over the chunks, the outermost first. What a chunk shares with the one executed
            before it, whole operands that are the same, is not loaded again.
        rolled: input rows that a chunk shares with the one executed before it stay in SRAM as well.
        rows, cols: the chunks along these axes.
        channels: output channels of each chunk.
        together: the weights and vectors of so many successive chunks of channels are in SRAM at once. ``order`` loops
            over these shelves; the chunks of one take turns at each place, in the innermost loop, so that of the
            output and its sums there is only one of them in SRAM.
        in_channels: input channels of a group that are summed over at a time.
        passes: sub-kernels and phases of a convolution; none of other operators.
        passes_resident: the weights of all passes are in SRAM at once, not one after the other.
        input_per_pass: each pass loads just the part of the input that it reads, not the chunk's whole window.
        once_per_call: weights and vectors are loaded once a call, not once an image.
        around: what stays in SRAM from step to step.
        buffers: in order of address within each memory.
        traffic: DRAM bytes of one call with the step's batch.
    """

    step: str
    direction: str
    tested_map: str
    footprint_bytes: int
    space_bytes: int
    chunk_footprint_bytes: int
    order: Order
    rolled: bool
    rows: tuple[Span, ...]
    cols: tuple[Span, ...]
    channels: tuple[Range, ...]
    together: int
    in_channels: tuple[Range, ...]
    passes: tuple[KernelPass, ...]
    passes_resident: bool
    input_per_pass: bool
    once_per_call: bool
    around: Around
    buffers: tuple[Buffer, ...]
    traffic: Traffic

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """The chunks in the order of execution."""
        return tuple(in_order(self.order, self.channels, self.rows, self.cols, self.together))

    @property
    def chunk_count(self) -> int:
        """Chunks of the output."""
        return len(self.channels) * len(self.rows) * len(self.cols)

    @property
    def has_sub_kernels(self) -> bool:
        """Whether several units compute the taps of one phase."""
        return len(self.passes) > len({(one.row_phase, one.col_phase) for one in self.passes})

    @property
    def is_split(self) -> bool:
        """Whether there is more than one chunk, or a chunk is the sum of several parts."""
        return self.chunk_count > 1 or len(self.in_channels) > 1 or self.has_sub_kernels

    @property
    def reason(self) -> str:
        """Why the step was cut, or that it was not, with the numbers."""
        tested = f"{self.tested_map} map {self.footprint_bytes:,} B"
        sums = [
            f"; {what} in {count} parts"
            for what, count, in_parts in (
                ("input channels", len(self.in_channels), len(self.in_channels) > 1),
                ("kernel", len(self.passes), self.has_sub_kernels),
            )
            if in_parts
        ]
        if self.tested_map in self.around.maps:
            why = "stays in SRAM"
        elif self.chunk_count == 1 and len(self.in_channels) == 1:
            why = f"fits {self.space_bytes:,} B"
        elif self.footprint_bytes > self.space_bytes:
            why = f"> {self.space_bytes:,} B left for it"
        else:
            why = "fits, but not what lies beside it"
        return f"{tested} {why}{''.join(sums)}"

    def used_bytes(self, memory: str) -> int:
        """Bytes that the buffers take in one memory, with the maps that stay there."""
        taken = self.around.taken_bytes if memory == POOL else 0
        return taken + sum(sum(buffer.copies) for buffer in self.buffers if buffer.memory == memory)

    @property
    def memories(self) -> frozenset[str]:
        """The memories that hold something."""
        pool = {POOL} if self.around.taken_bytes else set()
        return frozenset(pool | {buffer.memory for buffer in self.buffers})


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a region: of its steps, and of the maps that stay in SRAM between them."""

    region: str
    strategy: str
    steps: tuple[StepPlan, ...]
    stays: tuple[Stay, ...] = ()

    @property
    def traffic(self) -> Traffic:
        """DRAM bytes of one call."""
        return sum((step.traffic for step in self.steps), Traffic())

    @property
    def sram_peak_bytes(self) -> int:
        """The sum over the memories of the most that any step takes there."""
        memories = {memory for step in self.steps for memory in step.memories}
        return sum(max(step.used_bytes(memory) for step in self.steps) for memory in memories)

    @property
    def chunk_count(self) -> int:
        """Chunks of all steps."""
        return sum(step.chunk_count for step in self.steps)

    def to_json(self) -> str:
        """JSON text that ``from_json`` reads back to an equal plan."""
        return _PLAN.dump_json(self).decode()

    @staticmethod
    def from_json(text: str) -> Plan:
        """Parse ``to_json``'s text; raises ``CheckFailed`` when it is not one."""
        try:
            return _PLAN.validate_json(text)
        except ValidationError as error:
            fault = error.errors()[0]
            where = ".".join(str(part) for part in fault["loc"])
            raise CheckFailed(f"plan attribute is damaged at {where or 'its root'}: {fault['msg']}") from None


_PLAN: TypeAdapter[Plan] = TypeAdapter(Plan)
