"""Ways to cut a step: candidates along each axis, and the extents that a cut needs on the chip."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import lcm
from typing import Any, Literal

from tvm_sramtile.geometry import (
    Conv2d,
    Conv2dTranspose,
    Elementwise,
    Operator,
    Phase,
    SubKernel,
    best_split,
    seed_split,
)
from tvm_sramtile.ints import Range, ceil_div, cut, round_up
from tvm_sramtile.ir import Step
from tvm_sramtile.plan.capacity import Tile
from tvm_sramtile.plan.plan import ALONE, AXES, Around, KernelPass, MapName, Order, Span, StepPlan, shelves

Convolution = Conv2d | Conv2dTranspose

Direction = Literal["rows", "columns", "channels"]
DIRECTIONS: tuple[Direction, ...] = ("rows", "columns", "channels")
"""Where a step may be cut; the channels are those of the output and, summed up in parts, those of the input."""

TURNS = ((True, False), (False, False), (False, True))
"""Whether the weights of all passes are in SRAM at once, and whether each pass loads its own part of the input."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A step cut along its axes; see ``StepPlan`` for the meaning."""

    rows: tuple[Span, ...]
    cols: tuple[Span, ...]
    channels: tuple[Range, ...]
    in_channels: tuple[Range, ...]
    passes: tuple[KernelPass, ...]
    together: int = 1
    passes_resident: bool = True
    input_per_pass: bool = False
    order: Order = AXES
    rolled: bool = False
    double: tuple[str, ...] | None = None  # maps that get two buffers; ``None``: those where they fit, input first
    around: Around = ALONE

    @property
    def spatial(self) -> int:
        """Chunks of one range of channels."""
        return len(self.rows) * len(self.cols)

    @property
    def held(self) -> tuple[Range, ...]:
        """The channels whose weights are in SRAM at a time."""
        return tuple(Range(parts[0].start, parts[-1].stop) for parts in shelves(self.channels, self.together))


def whole_cut(step: Step, passes: tuple[KernelPass, ...], around: Around = ALONE) -> Cut:
    """The step in one piece."""
    op = step.op
    per_group = op.in_channels_per_group if isinstance(op, Convolution) else op.in_channels
    return Cut(
        rows=row_spans(step, op.out_rows),
        cols=col_spans(step, op.out_cols),
        channels=(Range(0, op.out_channels),),
        in_channels=(Range(0, per_group),),
        passes=passes,
        around=around,
    )


def row_spans(step: Step, rows: int) -> tuple[Span, ...]:
    """Chunks of ``rows`` output rows each, the last one perhaps smaller."""
    windows = ((out, step.op.row_window(out)) for out in cut(step.op.out_rows, rows))
    return tuple(Span(out, window.read, window.pad_before, window.pad_after) for out, window in windows)


def col_spans(step: Step, cols: int) -> tuple[Span, ...]:
    """Chunks of ``cols`` output columns each, the last one perhaps smaller."""
    windows = ((out, step.op.col_window(out)) for out in cut(step.op.out_cols, cols))
    return tuple(Span(out, window.read, window.pad_before, window.pad_after) for out, window in windows)


def sizes(extent: int, multiple: int = 1, minimum: int = 1) -> Iterator[int]:
    """Chunk sizes from the whole extent down, each once: that of 1 chunk, of 2, of 3, and so on; all are multiples."""
    least = round_up(minimum, multiple)
    size = max(least, round_up(extent, multiple))
    yield size
    while size > least:
        count = ceil_div(extent, size - multiple)  # the next count that makes a smaller chunk
        size = max(least, round_up(ceil_div(extent, count), multiple))
        yield size


def channel_sizes(op: Operator, lanes: int) -> Iterator[int]:
    """Output channels of a chunk, from all to the fewest: blocks of them, or whole groups, or parts of a group."""
    if not isinstance(op, Convolution) or op.groups == 1:
        yield from sizes(op.out_channels, lanes, lanes)
        return
    group = op.out_channels_per_group
    block = lcm(lanes, group)
    yield from sizes(op.out_channels, block, block)
    yield from (size for size in sizes(min(op.out_channels, block), group, group) if size < block)
    yield from (size for size in sizes(group, lanes, lanes) if size < group)


def cut_extent(op: Operator, size: int) -> int:
    """What is cut into chunks of so many output channels: a group for parts of groups, else all channels."""
    group = op.out_channels_per_group if isinstance(op, Convolution) else op.out_channels
    return group if size < group else op.out_channels


def channels_of(op: Operator, size: int, part: int | None = None) -> tuple[Range, ...]:
    """The output channels in chunks of ``size``, and each of these in chunks of ``part``."""
    extent = cut_extent(op, size)
    return tuple(
        Range(at + one.start + within.start, at + one.start + within.stop)
        for at in range(0, op.out_channels, extent)
        for one in cut(extent, size)
        for within in cut(len(one), part or size)
    )


def in_channel_sizes(op: Operator, lanes: int) -> Iterator[int]:
    """Input channels of a group that are summed over at a time, from all to the fewest; only convolutions sum."""
    if not isinstance(op, Convolution):
        yield op.in_channels
        return
    yield from sizes(op.in_channels_per_group, lanes, lanes)


def in_channels_of(op: Operator, size: int) -> tuple[Range, ...]:
    """The input channels of a group in parts of ``size``."""
    return cut(op.in_channels_per_group if isinstance(op, Convolution) else op.in_channels, size)


def kernel_passes(step: Step, units: tuple[tuple[int, int], ...] | None, split: str) -> tuple[KernelPass, ...]:
    """The sub-kernels of each phase, in the order of execution; ``split`` is "seed" or "best".

    Without ``units`` any kernel is one.
    """
    op = step.op
    if not isinstance(op, Convolution):
        return ()
    choose = seed_split if split == "seed" else best_split
    passes = []
    for row_index, row in enumerate(op.row_phases):
        for col_index, col in enumerate(op.col_phases):
            if not _in_use(row, op.out_rows) or not _in_use(col, op.out_cols):
                continue
            kernel = (len(row.taps), len(col.taps))
            parts: tuple[SubKernel, ...] = (SubKernel(Range(0, 0), Range(0, 0), (1, 1)),)
            if all(kernel):
                parts = choose(kernel, (kernel,) if units is None else units)
            passes += [KernelPass(row_index, col_index, part.rows, part.cols, part.unit) for part in parts]
    return tuple(passes)


def _in_use(phase: Phase, extent: int) -> bool:
    return len(phase.outputs(Range(0, extent))) > 0


def pass_reads(op: Convolution, cut_: Cut | StepPlan) -> list[tuple[list[Range], list[Range]]]:
    """For each pass, what it reads of the input in each chunk of rows, and of columns: from the first to the last."""
    row_phases, col_phases = op.row_phases, op.col_phases
    rows = {
        key: [row_phases[key[0]].reads(span.out, key[1], op.in_rows) for span in cut_.rows]
        for key in {(one.row_phase, one.rows) for one in cut_.passes}
    }
    cols = {
        key: [col_phases[key[0]].reads(span.out, key[1], op.in_cols) for span in cut_.cols]
        for key in {(one.col_phase, one.cols) for one in cut_.passes}
    }
    return [(rows[one.row_phase, one.rows], cols[one.col_phase, one.cols]) for one in cut_.passes]


def input_extents(step: Step, cut_: Cut | StepPlan) -> tuple[int, int]:
    """Rows and columns of the largest part of the input that is in SRAM at a time."""
    reads = [([span.read for span in cut_.rows], [span.read for span in cut_.cols])]
    if cut_.input_per_pass and isinstance(step.op, Convolution):
        reads = pass_reads(step.op, cut_)
    return max(len(one) for rows, _ in reads for one in rows), max(len(one) for _, cols in reads for one in cols)


def tile_of(step: Step, cut_: Cut) -> Tile:
    """The extents that hold every chunk: buffers are made once, for the largest."""
    outs = max(len(span.out) for span in cut_.rows), max(len(span.out) for span in cut_.cols)
    return tile_with(step, cut_, outs, input_extents(step, cut_))


def tile_with(step: Step, cut_: Cut, outs: tuple[Any, Any], reads: tuple[Any, Any]) -> Tile:
    """The same with other rows and columns than those of ``cut_``: of the output, and of what is read for them.

    They may be arrays, which stand for many cuts at once.
    """
    in_channels = max(len(step.op.in_channel_range(channels)) for channels in cut_.channels)
    if len(cut_.in_channels) > 1:
        in_channels = max(len(part) for part in cut_.in_channels)
    taps = [kernel_pass.taps for kernel_pass in cut_.passes]
    return Tile(
        out_rows=outs[0],
        out_cols=outs[1],
        out_channels=max(len(channels) for channels in cut_.channels),
        held_channels=max(len(held) for held in cut_.held),
        in_rows=reads[0],
        in_cols=reads[1],
        in_channels=in_channels,
        taps=sum(taps) if cut_.passes_resident else max(taps, default=0),
    )


def maps_loaded(step: Step, around: Around) -> int:
    """How many maps a step reads from DRAM."""
    names: tuple[MapName, ...] = ("input",)
    if isinstance(step.op, Elementwise) and step.op.partner == "map":
        names = ("input", "other")
    return sum(name not in around.maps for name in names)


def buffered_as(term: str) -> str:
    """The map that a term of SRAM goes with where two buffers are given: the second input with the first."""
    return "input" if term == "other" else term
