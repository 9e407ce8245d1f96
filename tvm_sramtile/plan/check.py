"""Proof of a plan from the operators' attributes alone: shares no code with the planner or the geometry.

What a chunk reads is found by listing the map's positions tap by tap, never by solving for the ends of a range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import NoReturn

import numpy as np

from tvm_sramtile.errors import CheckFailed
from tvm_sramtile.geometry import Conv2d, Conv2dTranspose, Elementwise, Resize2d
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ints import Range
from tvm_sramtile.ir import Region, Step, dtype_bytes
from tvm_sramtile.plan.check_axes import Axis, axes_of, phase_taps, tap_reads
from tvm_sramtile.plan.check_memory import Counts, Extents, Needs, executed, map_loads, needs_of, turns_of, vector_names
from tvm_sramtile.plan.check_passes import check_passes
from tvm_sramtile.plan.check_shapes import check_shapes
from tvm_sramtile.plan.check_stays import check_stays
from tvm_sramtile.plan.plan import Plan, Span, StepPlan

# Direction class and tested map of each operator.
_DIRECTIONS = {
    "conv2d": ("output-to-input", "input"),
    "pool2d": ("output-to-input", "input"),
    "conv2d_transpose": ("input-to-output", "output"),
    "resize2d": ("input-to-output", "output"),
    "elementwise": ("any", "input"),
}
_LOOPS = ("channels", "rows", "cols")
_MARKS = ("read.start", "read.stop", "before", "after")
_ENTRY_BYTES = 8  # of a resize's table


def check_plan(region: Region, plan: Plan, spec: AcceleratorSpec) -> None:
    """Prove that ``plan`` is a right and legal plan of ``region`` on ``spec``.

    Raises:
        CheckFailed: the first fault, naming the step, the chunk and the numbers.
    """
    if plan.region != region.name:
        raise CheckFailed(f"plan of region {plan.region}: the region is {region.name}")
    if plan.strategy not in ("seed", "search"):
        raise CheckFailed(f"plan of region {plan.region}: strategy {plan.strategy!r} is unknown")
    planned, wanted = [step.step for step in plan.steps], [step.name for step in region.steps]
    if planned != wanted:
        raise CheckFailed(f"plan of region {plan.region}: it has the steps {planned}, the region {wanted}")
    for step, step_plan in zip(region.steps, plan.steps, strict=True):
        _StepCheck(step, step_plan, spec).run(plan.strategy, alone=len(region.steps) == 1)
    check_stays(region, plan, spec)


class _StepCheck:
    def __init__(self, step: Step, plan: StepPlan, spec: AcceleratorSpec) -> None:
        self.step, self.plan, self.spec = step, plan, spec
        self.limits = {str(memory): size for memory, size in spec.memories.items()}
        taken = {"pool": plan.around.taken_bytes}  # only there do maps stay, as is proven apart
        self.left = {name: size - taken.get(name, 0) for name, size in self.limits.items()}
        self.rows, self.cols = axes_of(step.op)
        self.conv = step.op if isinstance(step.op, Conv2d | Conv2dTranspose) else None
        self.order = [_LOOPS.index(axis) for axis in plan.order if axis in _LOOPS]
        self.counts = (len(plan.channels), len(plan.rows), len(plan.cols))
        self.depth = step.op.in_channels // self.conv.groups if self.conv else step.op.in_channels  # of a group

    def run(self, strategy: str, *, alone: bool) -> None:
        """All proofs; ``alone``: the region has no other step."""
        check_shapes(self.step, self.rows.outs, self.cols.outs, self.fail)
        kind = (self.plan.direction, self.plan.tested_map)
        if kind != _DIRECTIONS[self.step.op.kind]:
            self.fail(f"direction and tested map are {kind}, of a {self.step.op.kind} {_DIRECTIONS[self.step.op.kind]}")
        for what, spans, axis in (("row", self.plan.rows, self.rows), ("col", self.plan.cols, self.cols)):
            self.cover([span.out for span in spans], axis.outs, f"{what} chunk", "output positions")
            self.windows(spans, axis, f"{what} chunk")
        self.loops()
        self.channels()
        self.passes()
        self.buffers()
        self.footprints()
        self.traffic(alone=alone)
        if strategy == "seed":
            self.seed()

    # How the step is cut.

    def cover(self, ranges: Sequence[Range], extent: int, what: str, of: str) -> None:
        """Ranges cover ``[0, extent)`` exactly once, in order, none empty."""
        marks = np.array([(one.start, one.stop) for one in ranges], np.int64).reshape(-1, 2)
        before = np.concatenate([[0], marks[:-1, 1]])
        for index in np.flatnonzero((marks[:, 0] != before) | (marks[:, 0] == marks[:, 1])).tolist():
            one = ranges[index]
            if not len(one):
                self.fail(f"{what} {index}: no {of}")
            self.fail(f"{what} {index}: {of} {one} do not start at {before[index]}, where those before end")
        self.expect(int(marks[-1, 1]) if len(marks) else 0, extent, f"{of} that the {what}s cover")

    def windows(self, spans: Sequence[Span], axis: Axis, what: str) -> None:
        """Each chunk reads exactly from the first to the last position that it needs; what is added to it is right."""
        found = np.array([(s.read.start, s.read.stop, s.before, s.after) for s in spans], np.int64)
        wanted = axis.windows(np.array([span.out.start for span in spans], np.int64))
        for index, mark in np.argwhere(found != wanted)[:1].tolist():
            where = f"{what} {index}, output {spans[index].out}: {_MARKS[mark]}"
            self.expect(int(found[index, mark]), int(wanted[index, mark]), where)

    def loops(self) -> None:
        """The order names each axis once; rows are only kept of an input that is not loaded in parts."""
        if sorted(self.plan.order) != sorted(_LOOPS):
            self.fail(f"order is {self.plan.order}, must be {_LOOPS} in some order")
        if not 1 <= self.plan.together <= len(self.plan.channels):
            self.fail(f"together is {self.plan.together}, must be 1 to {len(self.plan.channels)}, the channel chunks")
        if self.plan.together > 1:
            if self.conv is None or self.conv.groups > 1:
                self.fail(f"together is {self.plan.together}, but each chunk of channels reads its own input")
            if len(self.plan.in_channels) > 1 or not self.plan.passes_resident:
                self.fail(f"together is {self.plan.together}, but weights are loaded in parts, which take turns")
        if self.plan.rolled and (len(self.plan.in_channels) > 1 or self.plan.input_per_pass):
            self.fail("rolled, but the input is loaded in parts, which take each other's place")

    def channels(self) -> None:
        """Output channels are covered once, input channels too; both as the groups and the packing allow."""
        plan, op, conv = self.plan, self.step.op, self.conv
        self.cover(plan.channels, op.out_channels, "channel chunk", "output channels")
        self.cover(plan.in_channels, self.depth, "part of the sum", "input channels")
        if conv is None:
            if len(plan.in_channels) > 1:
                self.fail(f"{len(plan.in_channels)} parts of a sum, but the operator sums over no channels")
            return
        width = conv.out_channels // conv.groups
        for index, one in enumerate(plan.channels):
            whole = one.start % width == 0 == one.stop % width
            within = one.start // width == (one.stop - 1) // width
            if not within and not whole:
                self.fail(f"channel chunk {index}: {one} are neither whole groups of {width} nor within one")
            if not within and len(plan.in_channels) > 1:
                self.fail(f"channel chunk {index}: {one} are of several groups, whose input is summed up in parts")
        if conv.groups == 1:  # packed weights can only be cut between blocks
            lanes = self.spec.channel_align
            for one in (*plan.channels, *plan.in_channels):
                if one.start % lanes:
                    self.fail(f"channels {one} do not start with a block of {lanes}")

    def passes(self) -> None:
        """Each tap of the kernel is in one pass."""
        if self.conv is None:
            if self.plan.passes:
                self.fail(f"{len(self.plan.passes)} passes of an operator without a kernel")
            if self.plan.input_per_pass:
                self.fail("input_per_pass, but the operator has no passes")
            return
        rows, cols = phase_taps(self.conv, 0, self.rows.outs), phase_taps(self.conv, 1, self.cols.outs)
        check_passes(self.plan.passes, rows, cols, self.spec.unit_kernels, self.fail)

    # What lies in SRAM.

    @cached_property
    def sources(self) -> list[list[tuple[int, int]]]:
        """By chunk of channels, the ranges of input channels that are loaded one after the other."""
        if self.conv is None:
            return [[(one.start, one.stop)] for one in self.plan.channels]
        width, depth, sources = self.conv.out_channels // self.conv.groups, self.depth, []
        for one in self.plan.channels:
            first, last = one.start // width, (one.stop - 1) // width
            if len(self.plan.in_channels) == 1:
                sources.append([(first * depth, (last + 1) * depth)])
            else:
                sources.append([(first * depth + p.start, first * depth + p.stop) for p in self.plan.in_channels])
        return sources

    @cached_property
    def reads(self) -> tuple[Counts, Counts]:
        """The input rows and columns (start, stop) of the chunks along each axis."""
        rows, cols = (
            np.array([(span.read.start, span.read.stop) for span in spans], np.int64)
            for spans in (self.plan.rows, self.plan.cols)
        )
        return rows, cols

    def reads_by_pass(self, axis: int, starts: Counts) -> dict[tuple[int, Range], Counts]:
        """By phase and taps of a pass, the ends of what the chunks that begin at ``starts`` along an axis read."""
        conv, found = self.conv, dict[tuple[int, Range], Counts]()
        if conv is None:
            return found
        outs = np.arange((self.rows.outs, self.cols.outs)[axis], dtype=np.int64)
        stride = conv.strides[axis] if isinstance(conv, Conv2dTranspose) else 1
        phases = phase_taps(conv, axis, len(outs))
        for phase, taps in {((one.row_phase, one.rows), (one.col_phase, one.cols))[axis] for one in self.plan.passes}:
            first, stop = tap_reads(conv, axis, outs, phases[phase][taps.start : taps.stop])
            other = outs % stride != phase
            first[other], stop[other] = (conv.in_rows, conv.in_cols)[axis], 0
            ends = np.stack([np.minimum.reduceat(first, starts), np.maximum.reduceat(stop, starts)], axis=1)
            found[phase, taps] = np.where(ends[:, :1] < ends[:, 1:], ends, 0)
        return found

    @cached_property
    def pass_reads(self) -> list[tuple[Counts, Counts]]:
        """By pass, the input rows and columns (start, stop) that each chunk along an axis reads with its taps."""
        rows, cols = (
            self.reads_by_pass(axis, np.array([span.out.start for span in spans], np.int64))
            for axis, spans in enumerate((self.plan.rows, self.plan.cols))
        )
        return [(rows[one.row_phase, one.rows], cols[one.col_phase, one.cols]) for one in self.plan.passes]

    def largest_reads(self) -> tuple[int, int]:
        """Rows and columns of the largest part of the input that is in SRAM at a time."""
        reads = self.pass_reads if self.plan.input_per_pass else [self.reads]
        rows, cols = (max(int((one[axis][:, 1] - one[axis][:, 0]).max()) for one in reads) for axis in (0, 1))
        return rows, cols

    def input_elems(self) -> int:
        """Elements of one map that one image loads."""
        if not self.plan.input_per_pass:
            channels, areas = self.input_loads
            return int((channels * areas).sum())
        by_pass = [int(np.outer(*(ends[:, 1] - ends[:, 0] for ends in reads)).sum()) for reads in self.pass_reads]
        return sum(stop - start for parts in self.sources for start, stop in parts) * sum(by_pass)

    @cached_property
    def input_loads(self) -> tuple[Counts, Counts]:
        """What fills the input's buffer, in order: (channels, positions in a channel that are loaded) of each fill."""
        return map_loads(self.sources, *self.reads, self.turns, rolled=self.plan.rolled)

    @cached_property
    def turns(self) -> Counts:
        """The chunks in the order of execution."""
        return executed(self.counts, self.order, self.plan.together)

    def turns_along(self, axis: int) -> list[int]:
        """The chunks along rows (1) or columns (2), or the shelves of channels (0), each time another one comes."""
        places = np.indices(self.counts)[axis]
        found = turns_of(places // self.plan.together if axis == 0 else places, self.turns)
        return [int(place) for place in found]

    @cached_property
    def shelves(self) -> list[int]:
        """How many channels have their weights in SRAM at a time."""
        widths = np.array([len(one) for one in self.plan.channels], np.int64)
        return [int(widths[at : at + self.plan.together].sum()) for at in range(0, len(widths), self.plan.together)]

    @cached_property
    def largest(self) -> Extents:
        """What the buffers must hold: the largest chunk, or several where each is the largest in one way."""
        plan = self.plan
        taps = [len(one.rows) * len(one.cols) for one in plan.passes]
        in_rows, in_cols = self.largest_reads()
        return Extents(
            out_rows=max(len(span.out) for span in plan.rows),
            out_cols=max(len(span.out) for span in plan.cols),
            out_channels=max(len(one) for one in plan.channels),
            held_channels=max(self.shelves),
            in_rows=in_rows,
            in_cols=in_cols,
            in_channels=max(stop - start for parts in self.sources for start, stop in parts),
            group_channels=max(len(one) for one in plan.in_channels),
            taps=sum(taps) if plan.passes_resident else max(taps, default=0),
        )

    @cached_property
    def whole(self) -> Extents:
        """The step in one piece."""
        return replace(
            self.largest,
            out_rows=self.rows.outs,
            out_cols=self.cols.outs,
            out_channels=self.step.op.out_channels,
            held_channels=self.step.op.out_channels,
            in_rows=self.hull(self.rows, 0, self.rows.outs),
            in_cols=self.hull(self.cols, 0, self.cols.outs),
            in_channels=self.step.op.in_channels,
            group_channels=self.depth,
            taps=sum(len(one.rows) * len(one.cols) for one in self.plan.passes),
        )

    def hull(self, axis: Axis, start: int, stop: int) -> int:
        """How many positions the outputs ``[start, stop)`` read, with those between them."""
        ends = axis.hull(start, stop)
        return ends[1] - ends[0] if ends else 0

    def needs(self, at_once: Extents) -> Needs:
        """What must lie in SRAM."""
        return needs_of(self.step, self.spec, at_once)

    def blocks(self, channels: Counts) -> Counts:
        """Channel blocks."""
        return -(channels // -self.spec.channel_align)

    def buffers(self) -> None:
        """Each buffer's copies are as large as what the chunks that use them need, and each memory holds its own."""
        found = {buffer.name: buffer for buffer in self.plan.buffers}
        needs = self.needs(self.largest).terms
        wanted = [name for name, (_, size) in needs.items() if size and name not in self.plan.around.maps]
        if sorted(buffer.name for buffer in self.plan.buffers) != sorted(wanted):
            self.fail(f"buffers are {[buffer.name for buffer in self.plan.buffers]}, needed are {wanted}")
        widths = np.array([len(one) for one in self.plan.channels], np.int64)
        outputs = widths[np.indices(self.counts)[0].reshape(-1)[self.turns]]
        fills = {"input": self.input_loads[0], "other": self.input_loads[0], "output": outputs}
        for name in wanted:
            memory, size = needs[name]
            self.expect(found[name].memory, memory, f"memory of buffer {name}")
            copies = found[name].copies
            if name == "input" and self.plan.input_per_pass and len(copies) > 1:
                self.fail(f"buffer input has {len(copies)} copies, must have one where each pass loads its own part")
            blocks = self.blocks(fills[name]) if name in fills else np.ones(1, np.int64)
            if not 1 <= len(copies) <= len(blocks):
                self.fail(f"buffer {name} has {len(copies)} copies, must have 1 to {len(blocks)}")
            for copy, copy_bytes in enumerate(copies):
                need = int(blocks[copy :: len(copies)].max()) * (size // int(blocks.max()))
                self.expect(copy_bytes, need, f"bytes of copy {copy} of buffer {name}")
        for memory, limit in self.left.items():
            total = sum(sum(buffer.copies) for buffer in self.plan.buffers if buffer.memory == memory)
            if total > limit:
                self.fail(f"buffers take {total} B of memory {memory}, which has {limit} B")

    def footprints(self) -> None:
        """The figures that say why the step was cut."""
        tested, needs = self.plan.tested_map, self.needs(self.whole)
        memory, whole = needs.terms[tested]
        self.expect(self.plan.footprint_bytes, whole, "footprint_bytes")
        self.expect(self.plan.chunk_footprint_bytes, self.needs(self.largest).terms[tested][1], "chunk_footprint_bytes")
        left = self.limits[memory] - needs.used(memory) + whole
        self.expect(self.plan.space_bytes, max(0, left), "space_bytes")

    # What crosses the chip's edge.

    def traffic(self, *, alone: bool) -> None:
        """DRAM bytes by kind."""
        step, plan, traffic = self.step, self.plan, self.plan.traffic
        weights, loads = self.weight_loads()
        vectors = len(vector_names(step)) * self.turned_channels() * dtype_bytes(step.data.dtype)
        if plan.once_per_call and not alone:
            self.fail("once_per_call, but the region has other steps, which need the same SRAM")
        if plan.once_per_call and (loads > 1 or len(self.shelves) > 1) and (weights or vectors):
            self.fail("once_per_call, but weights or vectors take each other's place")
        once = 1 if plan.once_per_call else step.images
        maps = 2 if isinstance(step.op, Elementwise) and step.op.partner == "map" else 1
        maps -= len({"input", "other"} & set(plan.around.maps))
        inputs = maps * self.input_elems() * dtype_bytes(step.data.dtype)
        outputs = step.op.out_channels * self.rows.outs * self.cols.outs * dtype_bytes(step.output.dtype)
        self.expect(traffic.input_bytes, step.images * inputs, "traffic.input_bytes")
        wanted = once * (weights + vectors) + step.images * self.table_bytes()
        self.expect(traffic.weight_bytes, wanted, "traffic.weight_bytes")
        if "output" in plan.around.maps and not plan.around.stored:
            outputs = 0
        self.expect(traffic.output_bytes, step.images * outputs, "traffic.output_bytes")
        self.expect(traffic.partial_sum_bytes, 0, "traffic.partial_sum_bytes")

    def weight_loads(self) -> tuple[int, int]:
        """Bytes of weights that one image loads, and the number of loads; no load brings what is there already."""
        if self.step.weight is None:
            return 0, 0
        plan = self.plan
        taps = [len(one.rows) * len(one.cols) for one in plan.passes if len(one.rows) * len(one.cols)]
        if plan.passes_resident:
            taps = [sum(taps)] if taps else []
        turns = len(plan.in_channels) * len(taps)  # different loads for a chunk: one alone is still there for the next
        again = len(plan.rows) * len(plan.cols)
        outs = again * self.step.op.out_channels if turns > 1 else self.turned_channels()
        elems = outs * self.depth * sum(taps)
        loads = again * turns * len(plan.channels) if turns > 1 else len(self.turns_along(0))
        return elems * dtype_bytes(self.step.weight.dtype), loads

    def turned_channels(self) -> int:
        """Output channels over all the times that another shelf of them comes."""
        return sum(self.shelves[at] for at in self.turns_along(0))

    def table_bytes(self) -> int:
        """Bytes of tables that one image loads: those of the rows stay over a row of chunks, or where it is but one."""
        op, plan = self.step.op, self.plan
        if not isinstance(op, Resize2d):
            return 0
        entries = 0
        for axis, spans, table in ((1, plan.rows, op.rows), (2, plan.cols, op.cols)):
            outs = sum(len(spans[at].out) for at in self.turns_along(axis))
            entries += outs * max(map(len, table.weights))
        return entries * _ENTRY_BYTES

    # The seed's strategy.

    def seed(self) -> None:
        """Chunks of one height, the last perhaps smaller, and every coarser even cut overflows; columns only where one
        row is too much, in the same way.
        """
        if self.plan.together > 1:
            self.fail(f"{self.plan.together} chunks of channels share their weights' place, of the seed each is alone")
        if tuple(self.plan.order) != _LOOPS or self.plan.rolled:
            rolled = " and rolled" if self.plan.rolled else ""
            self.fail(f"the loops are {self.plan.order}{rolled}, the seed's are {_LOOPS}, and it loads every row again")
        height, width = self.size(self.plan.rows, "row chunk"), self.size(self.plan.cols, "col chunk")
        if len(self.plan.cols) > 1:
            self.expect(height, 1, "output rows of chunks that are cut into columns")
            self.coarser(self.cols, width, len(self.plan.cols), "columns")
        else:
            self.coarser(self.rows, height, len(self.plan.rows), "rows")

    def size(self, spans: Sequence[Span], what: str) -> int:
        """The size of the chunks along an axis."""
        size = len(spans[0].out)
        for index, span in enumerate(spans):
            if len(span.out) != size and not (len(span.out) < size and index == len(spans) - 1):
                self.fail(f"{what} {index}: {len(span.out)} output positions, those before have {size}")
        return size

    def coarser(self, axis: Axis, size: int, count: int, what: str) -> None:
        """No coarser even cut along an axis fits."""
        evenly = {len(range(0, axis.outs, parts)) for parts in range(1, count + 1)}
        if size not in evenly:
            self.fail(f"chunks of {size} output {what} are no cut of {axis.outs} {what} into equal parts")
        for coarser in sorted((one for one in evenly if one > size), reverse=True):
            out, ins = ("out_rows", "in_rows") if what == "rows" else ("out_cols", "in_cols")
            needs = self.needs(replace(self.largest, **{out: coarser, ins: self.widest(axis, coarser)}))
            if all(needs.used(memory) <= limit for memory, limit in self.limits.items()):
                self.fail(f"cut into chunks of {size} output {what}, but {coarser} {what} fit")

    def widest(self, axis: Axis, size: int) -> int:
        """The most positions along an axis that are in SRAM at a time, with chunks of ``size`` outputs."""
        starts = np.arange(0, axis.outs, size, dtype=np.int64)
        if not self.plan.input_per_pass:
            windows = axis.windows(starts)
            return int((windows[:, 1] - windows[:, 0]).max())
        by_pass = self.reads_by_pass(0 if axis is self.rows else 1, starts)
        return max(int((ends[:, 1] - ends[:, 0]).max()) for ends in by_pass.values())

    def expect(self, found: object, wanted: object, what: str) -> None:
        """``found`` equals ``wanted``."""
        if found != wanted:
            self.fail(f"{what} is {found}, must be {wanted}")

    def fail(self, message: str) -> NoReturn:
        """Raise, naming the step."""
        raise CheckFailed(f"plan of step {self.step.name}: {message}")
