"""What commands leave in SRAM, and whether it is what a step wants stored. Part of the proof of programs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose
from tvm_sramtile.ir import Step
from tvm_sramtile.lower.check_order import Fail
from tvm_sramtile.plan import StepPlan
from tvm_sramtile.plan.check_axes import axes_of, phase_taps, tap_reads

Span = tuple[int, int]  # [start, stop)
Extents = tuple[int, int, int]  # channels, rows, cols
Taps = tuple[int, int, int]  # first kernel position, how many, from one to the next
Part = tuple[Span, Taps, Taps]  # input channels of a group, rows and columns of taps: what one CONV adds
Comb = tuple[int, int, int]  # first output position, how many, from one to the next
Convolution = Conv2d | Conv2dTranspose
AxisTaps = tuple[tuple[int, ...], tuple[int, ...]]  # those of a phase, and of them those that meet the map
Phase = tuple[Comb, Comb]  # rows and columns of an output map that one CONV computes


@dataclass(frozen=True, slots=True)
class Loaded:
    """A box of a map, or of a vector, whose channels are its only axis."""

    role: str
    names: frozenset[str]
    channels: Span
    rows: Span
    cols: Span
    block_bytes: int


@dataclass(frozen=True, slots=True)
class Weights:
    """A box of weights: output channels through all groups, and what a CONV adds with it."""

    names: frozenset[str]
    outs: Span
    part: Part


@dataclass(frozen=True, slots=True)
class Table:
    """Entries of a resize's table; ``axes`` says of which."""

    axes: frozenset[str]
    outs: Span
    taps: int


@dataclass(slots=True)
class Work:
    """What is known of a result, or of one phase of it; ``None`` where nothing tells.

    Attributes:
        channels: output channels of the step.
        origin: row and column of the step's output where the map begins.
        reads: rows and columns of the data that lay in SRAM; of a sum each part has its own, proven when it is added.
        parts: what has been added up.
        macs: multiply-accumulates.
        done: the epilogue is done.
    """

    channels: Span | None = None
    origin: tuple[int, int] | None = None
    reads: tuple[Span, Span] | None = None
    parts: list[Part] = field(default_factory=list)
    macs: int = 0
    done: bool = False

    def is_of(self, channels: Span | None, fail: Fail) -> None:
        """It has these channels."""
        if channels is not None and self.channels != channels:
            if self.channels is not None:
                fail(f"belongs to channels {_text(channels)}, what it is added to has {_text(self.channels)}")
            self.channels = channels

    def begins(self, origin: tuple[int, int], reads: tuple[Span, Span] | None, fail: Fail) -> None:
        """It begins at this output, and reads this of the data."""
        if self.origin not in (None, origin):
            fail(f"is about the output {origin}, what it is added to about {self.origin}")
        self.origin, self.reads = origin, reads


@dataclass(slots=True)
class Made:
    """A result in SRAM: a map of a step's output, whole or phase by phase.

    Attributes:
        step: index of the step.
        extents: of the map.
        block_bytes: from block to block.
        phases: of a convolution; what else makes a result makes all of it, as the phase ``None``.
        stage: how many activations have been applied.
        stored: whether it is in DRAM.
    """

    step: int
    extents: Extents
    block_bytes: int
    phases: dict[Phase | None, Work] = field(default_factory=dict)
    stage: int = 0
    stored: bool = False


Held = Loaded | Weights | Table | Made


class Wanted:
    """What the results of one step must be."""

    def __init__(self, step: Step, plan: StepPlan) -> None:
        self.step, self.plan = step, plan
        self.axes = axes_of(step.op)
        self.conv = step.op if isinstance(step.op, Conv2d | Conv2dTranspose) else None
        loops = [("channels", "rows", "cols").index(axis) for axis in plan.order]
        counts = (len(plan.channels), len(plan.rows), len(plan.cols))
        # In the order of execution: where each chunk is along channels, rows and columns.
        places = itertools.product(*map(range, counts))
        self.turns = [(part, row, col) for part, row, col in places]
        self.turns.sort(key=lambda at: [at[axis] // (1 if axis else plan.together) for axis in loops] + [at[0]])
        self.chunks = len(self.turns)
        self._hulls: tuple[dict[Span, Span | None], dict[Span, Span | None]] = ({}, {})
        self._tap_hulls: dict[tuple[int, Comb, Taps], Span | None] = {}
        self._proven: set[object] = set()
        self._taps: tuple[Mapping[int, Sequence[int]], ...] = ()
        if self.conv is not None:
            self._taps = tuple(phase_taps(self.conv, axis, self.axes[axis].outs) for axis in (0, 1))

    def chunk(self, index: int) -> tuple[Span, Span, Span]:
        """Channels, rows and columns of the plan's ``index``-th chunk in the order of execution."""
        part, row, col = self.turns[index]
        channels, rows, cols = self.plan.channels[part], self.plan.rows[row].out, self.plan.cols[col].out
        return (channels.start, channels.stop), (rows.start, rows.stop), (cols.start, cols.stop)

    def hull(self, axis: int, span: Span) -> Span | None:
        """What the outputs ``span`` along an axis read."""
        known = self._hulls[axis]
        if span not in known:
            known[span] = self.axes[axis].hull(*span)
        return known[span]

    def prove(self, made: Made, channels: Span, rows: Span, cols: Span, fail: Fail) -> None:
        """``made`` is this box of the step's output, whole, with all that belongs to it."""
        what = f"stores channels {_text(channels)}, rows {_text(rows)}, columns {_text(cols)}"
        if made.stage != len(self.step.activations):
            fail(f"{what} after {made.stage} of {len(self.step.activations)} activations")
        row, col = self.hull(0, rows), self.hull(1, cols)
        reads = None if row is None or col is None else (row, col)
        origin = (rows[0], cols[0])
        for work in made.phases.values():
            if not work.done:
                fail(f"{what} before the sums of all phases are done")
            if work.channels not in (None, channels):
                fail(f"{what}, made for the channels {_text(work.channels)}")
            if work.reads is not None and not _contains(work.reads, reads):
                fail(f"{what}, made of rows and columns {work.reads} of the data, they need {reads}")
            if work.origin not in (None, origin):
                fail(f"{what}, made for the output from {work.origin} on")
        if self.conv is not None:
            self._prove_sums(self.conv, made, origin, lambda text: fail(f"{what}, {text}"))
        elif reads is not None and any(work.reads is None for work in made.phases.values()):
            fail(f"{what}, made of no data, they need {reads}")

    def tap_hull(self, axis: int, outs: Comb, taps: Taps) -> Span | None:
        """The ends of the positions that the outputs ``outs`` along an axis read with some taps; ``None``: nothing."""
        op, key = self.conv, (axis, outs, taps)
        if isinstance(op, Conv2d):  # the quick way, for what is wholly inside the map
            low = outs[0] * op.strides[axis] - op.padding[axis] + taps[0] * op.dilation[axis]
            high = low + (outs[1] - 1) * outs[2] * op.strides[axis] + (taps[1] - 1) * taps[2] * op.dilation[axis]
            if taps[2] > 0 and low >= 0 and high < self.axes[axis].size:
                return low, high + 1
        if op is not None and key not in self._tap_hulls:
            places = outs[0] + outs[2] * np.arange(outs[1], dtype=np.int64)
            first, stop = tap_reads(op, axis, places, [taps[0] + at * taps[2] for at in range(taps[1])])
            ends = (int(first.min()), int(stop.max()))
            self._tap_hulls[key] = ends if ends[0] < ends[1] else None
        return self._tap_hulls[key]

    def _needed(self, axis: int, outs: Comb, taps: Sequence[int]) -> tuple[int, ...]:
        """Those of the taps with which some of the outputs ``outs`` along an axis reads the map."""
        return tuple(tap for tap in taps if self.tap_hull(axis, outs, (tap, 1, 1)) is not None)

    def _prove_sums(self, op: Convolution, made: Made, origin: tuple[int, int], fail: Fail) -> None:
        """Each output has all its taps and channels once. What has been proven of a chunk holds for all like it."""
        sums = tuple((phase, tuple(work.parts), work.macs) for phase, work in made.phases.items())
        residues = (0, 0)
        if isinstance(op, Conv2dTranspose):
            residues = (origin[0] % op.strides[0], origin[1] % op.strides[1])
        needed = []
        for phase in made.phases:
            if phase is None:
                fail("made by no CONV")
            for axis, (first, count, step) in enumerate(phase):
                taps = self._taps_of(op, axis, residues[axis], range(first, first + count * step, step), fail)
                needed.append((taps, self._needed(axis, (origin[axis] + first, count, step), taps)))
        key = (sums, tuple(needed), made.extents)
        if key in self._proven:
            return
        times = np.zeros(made.extents[1:], np.int64)
        macs, needed_macs = 0, 0
        for (phase, parts, spent), row, col in zip(sums, needed[0::2], needed[1::2], strict=True):
            rows, cols = (range(first, first + count * step, step) for first, count, step in phase or ())
            times[np.ix_(rows, cols)] += 1
            _prove_taps(op, parts, row, col, fail)
            macs += spent
            needed_macs += len(rows) * len(cols) * len(row[0]) * len(col[0])
        if (times != 1).any():
            row, col = np.argwhere(times != 1)[0].tolist()
            fail(f"whose row {row} and column {col} is in {times[row, col]} phases, must be in one")
        needed_macs *= made.extents[0] * (op.in_channels // op.groups)
        if macs != needed_macs:
            fail(f"made with {macs} multiplications, they take {needed_macs}")
        self._proven.add(key)

    def _taps_of(self, op: Convolution, axis: int, residue: int, outs: range, fail: Fail) -> tuple[int, ...]:
        """The taps of the outputs ``outs`` of a chunk, which is the same for all of them."""
        if isinstance(op, Conv2d):
            return tuple(self._taps[axis][0])
        needed = {tuple(self._taps[axis][(residue + out) % op.strides[axis]]) for out in outs}
        if len(needed) > 1:
            fail("of which one phase has outputs with different taps")
        return needed.pop()


def _prove_taps(op: Convolution, parts: Sequence[Part], row_taps: AxisTaps, col_taps: AxisTaps, fail: Fail) -> None:
    """Each channel of a group and each needed tap is added once, and nothing else but taps that meet only padding."""
    times = np.zeros((op.in_channels // op.groups, *op.kernel), np.int64)
    for (start, stop), *axes in parts:
        rows, cols = ([first + at * step for at in range(count)] for first, count, step in axes)
        for row in rows:
            for col in cols:
                times[start:stop, row, col] += 1
    needed, allowed = np.zeros_like(times), np.zeros_like(times)
    for counts, which in ((allowed, 0), (needed, 1)):
        counts[np.ix_(range(len(counts)), row_taps[which], col_taps[which])] = 1
    wrong = np.argwhere((times < needed) | (times > allowed))
    if len(wrong):
        place = tuple(wrong[0].tolist())
        fail(f"with the tap (channel, row, column) {place} {times[place]} times, must be {needed[place]}")


def _contains(lies: tuple[Span, Span], needed: tuple[Span, Span] | None) -> bool:
    """Whether what lay in SRAM has all that is needed: of a map that stays, that is the whole."""
    if needed is None:
        return False
    return all(one[0] <= other[0] <= other[1] <= one[1] for one, other in zip(lies, needed, strict=True))


def _text(span: Span | None) -> str:
    return "-" if span is None else f"{span[0]}-{span[1]}"
