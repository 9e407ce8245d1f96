"""Proof of a plan from the operators' attributes alone: shares no code with the planner or the geometry.

What a chunk reads is found by listing the map's positions tap by tap, never by solving for the ends of a range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from tvm_sramtile.errors import CheckFailed
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Region, Step, dtype_bytes
from tvm_sramtile.plan.plan import Chunk, Plan, StepPlan

Marks = NDArray[np.int64]

_DIRECTIONS = {"conv2d": ("output-to-input", "input")}  # direction class and tested map of each operator
_BY_CHUNK = ("input", "output", "accumulators")  # buffers of which each chunk uses one copy
_MARKS = ("in_rows.start", "in_rows.stop", "pad_top", "pad_bottom")


def check_plan(region: Region, plan: Plan, spec: AcceleratorSpec) -> None:
    """Prove that ``plan`` is a right and legal plan of ``region`` on ``spec``.

    Raises:
        CheckFailed: the first fault, naming the step, the chunk and the numbers.
    """
    if plan.region != region.name:
        raise CheckFailed(f"plan of region {plan.region}: the region is {region.name}")
    if plan.strategy != "seed":
        raise CheckFailed(f"plan of region {plan.region}: strategy {plan.strategy!r} is unknown")
    planned, wanted = [step.step for step in plan.steps], [step.name for step in region.steps]
    if planned != wanted:
        raise CheckFailed(f"plan of region {plan.region}: it has the steps {planned}, the region {wanted}")
    for step, step_plan in zip(region.steps, plan.steps, strict=True):
        _StepCheck(step, step_plan, spec).run(alone=len(region.steps) == 1)


@dataclass(frozen=True, slots=True)
class _Axis:
    """What each output position along one axis reads.

    Attributes:
        first, stop: ends of the positions read, by output; ``first`` is ``size`` and ``stop`` 0 where all is padding.
        tops, bottoms: ends of the positions that the window covers, padding included, by output.
    """

    size: int
    first: Marks
    stop: Marks
    tops: Marks
    bottoms: Marks

    @classmethod
    def of(cls, size: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int]) -> _Axis:
        """Slide the window over the padded axis as long as it lies within it."""
        before, after = pads
        tops = np.arange(-before, size + after - dilation * (kernel - 1), stride, dtype=np.int64)
        first, stop = np.full(len(tops), size, np.int64), np.zeros(len(tops), np.int64)
        for tap in range(kernel):
            at = tops + tap * dilation
            within = (at >= 0) & (at < size)
            first = np.where(within, np.minimum(first, at), first)
            stop = np.where(within, np.maximum(stop, at + 1), stop)
        return cls(size, first, stop, tops, tops + dilation * (kernel - 1) + 1)

    def windows(self, starts: Marks) -> Marks:
        """(first position read, stop, pad before, pad after) of the runs of outputs that begin at ``starts``."""
        first, stop = np.minimum.reduceat(self.first, starts), np.maximum.reduceat(self.stop, starts)
        top, bottom = np.minimum.reduceat(self.tops, starts), np.maximum.reduceat(self.bottoms, starts)
        padding = stop <= first
        before, after = np.where(padding, bottom - top, first - top), np.where(padding, 0, bottom - stop)
        return np.stack([np.where(padding, 0, first), np.where(padding, 0, stop), before, after], axis=1)


class _StepCheck:
    def __init__(self, step: Step, plan: StepPlan, spec: AcceleratorSpec) -> None:
        self.step, self.plan, self.spec = step, plan, spec
        self.limits = {str(memory): size for memory, size in spec.memories.items()}
        op = step.op
        top, left, bottom, right = op.padding
        self.rows = _Axis.of(op.in_rows, op.kernel[0], op.strides[0], op.dilation[0], (top, bottom))
        self.cols = _Axis.of(op.in_cols, op.kernel[1], op.strides[1], op.dilation[1], (left, right))
        self.out_rows, self.out_cols = len(self.rows.tops), len(self.cols.tops)

    def run(self, *, alone: bool) -> None:
        """All proofs; ``alone``: the region has no other step."""
        self.shapes()
        kind = (self.plan.direction, self.plan.tested_map)
        if kind != _DIRECTIONS[self.step.op.kind]:
            self.fail(f"direction and tested map are {kind}, of a {self.step.op.kind} {_DIRECTIONS[self.step.op.kind]}")
        self.cover()
        in_cols = self.columns()
        starts = np.array([chunk.out_rows.start for chunk in self.plan.chunks], np.int64)
        windows = self.rows.windows(starts)
        self.windows(windows)
        heights = np.diff(starts, append=self.out_rows)
        read = windows[:, 1] - windows[:, 0]
        self.buffers(heights.tolist(), read.tolist(), in_cols)
        self.footprints(int(read.max()), in_cols)
        self.traffic(int(read.sum()) * in_cols, alone=alone)
        self.seed(int(heights[0]), in_cols)

    def shapes(self) -> None:
        """The operator's extents agree with the shapes of the step's tensors."""
        step, op = self.step, self.step.op
        ins, outs = op.in_channels, op.out_channels
        if not (op.groups > 0 and ins % op.groups == 0 == outs % op.groups):
            self.fail(f"{op.groups} groups do not divide {ins} input and {outs} output channels")
        self.expect(step.data.shape, (step.images, ins, op.in_rows, op.in_cols), "shape of the data")
        self.expect(step.weight.shape, (outs, ins // op.groups, *op.kernel), "shape of the weights")
        self.expect(step.output.shape, (step.images, outs, self.out_rows, self.out_cols), "shape of the output")
        if step.bias is not None:
            self.expect(step.bias.elems, outs, "elements of the bias")
        if not math.prod(step.output.shape):
            self.fail(f"shape of the output is {step.output.shape}: nothing to compute")

    def cover(self) -> None:
        """Chunks cover the output rows exactly once, in order, none empty."""
        at = 0
        for index, chunk in enumerate(self.plan.chunks):
            rows = chunk.out_rows
            if rows.start != at:
                self.fail(f"chunk {index}: output rows {rows} do not start at {at}, where those before end")
            if rows.stop == rows.start:
                self.fail(f"chunk {index}: no output rows")
            at = rows.stop
        self.expect(at, self.out_rows, "output rows that the chunks cover")

    def columns(self) -> int:
        """The columns that are read and their pad; returns how many they are."""
        start, stop, pad, _ = self.cols.windows(np.zeros(1, np.int64))[0].tolist()
        self.expect((self.plan.in_cols.start, self.plan.in_cols.stop), (start, stop), "in_cols")
        self.expect(self.plan.pad_left, pad, "pad_left")
        return int(stop - start)

    def windows(self, wanted: Marks) -> None:
        """Each chunk's input rows are exactly those from the first to the last that it reads; its pads are right."""

        def marks(chunk: Chunk) -> tuple[int, int, int, int]:
            return chunk.in_rows.start, chunk.in_rows.stop, chunk.pad_top, chunk.pad_bottom

        for index, (chunk, row) in enumerate(zip(self.plan.chunks, wanted.tolist(), strict=True)):
            if marks(chunk) != tuple(row):
                for name, found, right in zip(_MARKS, marks(chunk), row, strict=True):
                    self.expect(found, right, f"chunk {index}, output rows {chunk.out_rows}: {name}")

    def map_bytes(self, rows: int, cols: int, channels: int, dtype: str) -> int:
        """Formula (1)."""
        spec = self.spec
        extents = ((rows, spec.lines), (cols, spec.column_align), (channels, spec.channel_align))
        return math.prod(len(range(0, count, group)) * group for count, group in extents) * dtype_bytes(dtype)

    def needs(self, out_rows: int, in_rows: int, in_cols: int) -> Mapping[str, tuple[str, int]]:
        """Memory and bytes by name of all that must lie in SRAM for a chunk."""
        step, op, spec = self.step, self.step.op, self.spec
        memory = {name: "pool" if spec.sram_bytes is not None else name for name in ("input", "weight", "output")}
        taps = op.kernel[0] * op.kernel[1] * (op.in_channels // op.groups)
        lanes = len(range(0, op.out_channels, spec.channel_align)) * spec.channel_align
        needs = {"weights": (memory["weight"], lanes * taps * dtype_bytes(step.weight.dtype))}
        if step.bias is not None:
            needs["bias"] = (memory["weight"], self.map_bytes(1, 1, op.out_channels, step.bias.dtype))
        needs["input"] = (memory["input"], self.map_bytes(in_rows, in_cols, op.in_channels, step.data.dtype))
        sums = self.map_bytes(out_rows, self.out_cols, op.out_channels, step.output.dtype)
        needs["output"] = (memory["output"], sums)
        if spec.accumulator_bytes is not None:
            needs["accumulators"] = ("accumulator", sums)
        return needs

    def used(self, needs: Mapping[str, tuple[str, int]], memory: str) -> int:
        """Bytes of ``needs`` in one memory."""
        return sum(size for place, size in needs.values() if place == memory)

    def buffers(self, out_rows: Sequence[int], in_rows: Sequence[int], in_cols: int) -> None:
        """Each buffer's copies are as large as what the chunks that use them need, and each memory holds its own."""
        found = {buffer.name: buffer for buffer in self.plan.buffers}
        needs = self.needs(max(out_rows), max(in_rows), in_cols)
        wanted = [name for name, (_, size) in needs.items() if size]
        if sorted(buffer.name for buffer in self.plan.buffers) != sorted(wanted):
            self.fail(f"buffers are {[buffer.name for buffer in self.plan.buffers]}, needed are {wanted}")
        for name in wanted:
            self.expect(found[name].memory, needs[name][0], f"memory of buffer {name}")
            copies = found[name].copies
            most = len(out_rows) if name in _BY_CHUNK else 1
            if not 1 <= len(copies) <= most:
                self.fail(f"buffer {name} has {len(copies)} copies, must have 1 to {most}")
            for copy, size in enumerate(copies):
                turns = slice(copy, None, len(copies))
                need = self.needs(max(out_rows[turns]), max(in_rows[turns]), in_cols)[name][1]
                self.expect(size, need, f"bytes of copy {copy} of buffer {name}")
        for memory, limit in self.limits.items():
            total = sum(sum(buffer.copies) for buffer in self.plan.buffers if buffer.memory == memory)
            if total > limit:
                self.fail(f"buffers take {total} B of memory {memory}, which has {limit} B")

    def footprints(self, largest_in_rows: int, in_cols: int) -> None:
        """The figures that say why the step was cut."""
        op, dtype = self.step.op, self.step.data.dtype
        whole_rows = max(0, int(self.rows.stop.max() - self.rows.first.min()))
        whole = self.map_bytes(whole_rows, in_cols, op.in_channels, dtype)
        chunk = self.map_bytes(largest_in_rows, in_cols, op.in_channels, dtype)
        needs = self.needs(self.out_rows, whole_rows, in_cols)
        memory = needs["input"][0]
        left = self.limits[memory] - self.used(needs, memory) + whole
        self.expect(self.plan.footprint_bytes, whole, "footprint_bytes")
        self.expect(self.plan.chunk_footprint_bytes, chunk, "chunk_footprint_bytes")
        self.expect(self.plan.space_bytes, max(0, left), "space_bytes")

    def traffic(self, read_elems: int, *, alone: bool) -> None:
        """DRAM bytes by kind; ``read_elems``: what the chunks read of one channel of one image."""
        step, traffic = self.step, self.plan.traffic
        if self.plan.weights_resident and not alone:
            self.fail("weights_resident, but the region has other steps, which need the same SRAM")
        loads = 1 if self.plan.weights_resident else step.images
        constants = [step.weight] if step.bias is None else [step.weight, step.bias]
        weights = sum(math.prod(tensor.shape) * dtype_bytes(tensor.dtype) for tensor in constants)
        outputs = step.op.out_channels * self.out_rows * self.out_cols * dtype_bytes(step.output.dtype)
        inputs = read_elems * step.op.in_channels * dtype_bytes(step.data.dtype)
        self.expect(traffic.input_bytes, step.images * inputs, "traffic.input_bytes")
        self.expect(traffic.weight_bytes, loads * weights, "traffic.weight_bytes")
        self.expect(traffic.output_bytes, step.images * outputs, "traffic.output_bytes")
        self.expect(traffic.partial_sum_bytes, 0, "traffic.partial_sum_bytes")

    def seed(self, height: int, in_cols: int) -> None:
        """The seed's strategy: chunks of one height, the last perhaps smaller; every coarser even cut overflows."""
        for index, chunk in enumerate(self.plan.chunks):
            rows = chunk.out_rows.stop - chunk.out_rows.start
            if rows != height and not (rows < height and chunk is self.plan.chunks[-1]):
                self.fail(f"chunk {index}: {rows} output rows, those before have {height}")
        count = len(self.plan.chunks)
        evenly = {len(range(0, self.out_rows, parts)) for parts in range(1, count + 1)}
        if height not in evenly:
            self.fail(f"chunks of {height} output rows are no cut of {self.out_rows} rows into equal parts")
        for coarser in sorted((rows for rows in evenly if rows > height), reverse=True):
            windows = self.rows.windows(np.arange(0, self.out_rows, coarser, dtype=np.int64))
            needs = self.needs(coarser, int((windows[:, 1] - windows[:, 0]).max()), in_cols)
            if all(self.used(needs, memory) <= limit for memory, limit in self.limits.items()):
                self.fail(f"cut into chunks of {height} output rows, but {coarser} rows fit")

    def expect(self, found: object, wanted: object, what: str) -> None:
        """``found`` equals ``wanted``."""
        if found != wanted:
            self.fail(f"{what} is {found}, must be {wanted}")

    def fail(self, message: str) -> NoReturn:
        """Raise, naming the step."""
        raise CheckFailed(f"plan of step {self.step.name}: {message}")
