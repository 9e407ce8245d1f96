"""The ways to cut one axis of a step, all at once as arrays: what a search needs of each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_sramtile.geometry import Operator
from tvm_sramtile.ints import Range
from tvm_sramtile.plan.cut import Convolution, channel_sizes, cut_extent, sizes
from tvm_sramtile.plan.plan import KernelPass
from tvm_sramtile.plan.traffic import Along, Axis

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Choices:
    """Cuts of rows or columns into chunks of one size, the last one perhaps smaller; one entry a cut, coarsest first.

    Attributes:
        sizes: outputs of a chunk.
        widest: positions of the input that the largest chunk reads at a time.
        plain: the chunks, where only what is equal is kept.
        rolled: the same where the first positions of a chunk are kept as well.
    """

    sizes: Counts
    widest: Counts
    plain: Axis
    rolled: Axis


@dataclass(frozen=True, slots=True)
class ChannelChoices:
    """Cuts of the output channels into shelves of one size, the last one perhaps smaller, coarsest first.

    Attributes:
        sizes: channels of a shelf.
        sources: input channels that the largest shelf reads.
        axis: the shelves.
        in_one_group: whether each shelf lies in one group, so that its input channels can be summed up in parts.
    """

    sizes: Counts
    sources: Counts
    axis: Axis
    in_one_group: NDArray[np.bool_]


@lru_cache(maxsize=1024)
def choices_of(op: Operator, axis: int) -> Choices:
    """The cuts of the rows (0) or columns (1) of an operator whose chunks load all that they read at once."""
    outs, window = (op.out_rows, op.row_window) if axis == 0 else (op.out_cols, op.col_window)
    every = np.array(list(sizes(outs)), np.int64)
    counts = -(-outs // every)
    own = Along(np.full(len(every), outs), np.zeros(len(every), np.int64), np.where(counts == 1, outs, 0))
    reads = _Reads.of([window(Range(at, at + 1)).read for at in range(outs)], every)
    plain, rolled = (Axis(counts, own, reads.along(rolled=rolled)) for rolled in (False, True))
    return Choices(every, reads.widest(), plain, rolled)


@lru_cache(maxsize=1024)
def pass_choices_of(op: Convolution, axis: int, passes: tuple[KernelPass, ...]) -> Choices:
    """The same where each pass of the kernel loads its own part of the input."""
    whole = choices_of(op, axis)
    phases, size = (op.row_phases, op.in_rows) if axis == 0 else (op.col_phases, op.in_cols)
    outs = op.out_rows if axis == 0 else op.out_cols
    keys = [((one.row_phase, one.rows), (one.col_phase, one.cols))[axis] for one in passes]
    known = {}
    for phase, taps in dict.fromkeys(keys):
        each = [phases[phase].reads(Range(at, at + 1), taps, size) for at in range(outs)]
        known[phase, taps] = _Reads.of(each, whole.sizes)
    totals = {key: reads.along(rolled=False).total for key, reads in known.items()}
    widest = np.max([reads.widest() for reads in known.values()], axis=0)
    axes = Axis(whole.plain.count, whole.plain.outs, whole.plain.reads, tuple(totals[key] for key in keys))
    return Choices(whole.sizes, widest, axes, axes)


@lru_cache(maxsize=1024)
def channel_choices_of(op: Operator, lanes: int) -> ChannelChoices:
    """The cuts of the output channels of an operator at multiples of ``lanes``, or of groups; see ``channel_sizes``."""
    every = np.array(list(channel_sizes(op, lanes)), np.int64)
    extents = np.array([cut_extent(op, size) for size in every.tolist()], np.int64)
    spans, each = op.out_channels // extents, -(-extents // every)
    counts = spans * each
    alone, total = counts == 1, np.full(len(every), op.out_channels)
    outs = Along(total, np.zeros_like(total), np.where(alone, total, 0))
    largest = np.minimum(every, extents)
    if not isinstance(op, Convolution):
        reads, in_one_group = outs, alone & False
    elif op.groups == 1:
        reads, in_one_group = _times(Along.same(counts), op.in_channels), alone | True
        largest = np.full(len(every), op.in_channels)
    else:
        # Shelves of whole groups read each its own channels, parts of a group those of the group, one after the other.
        in_one_group = every <= op.out_channels_per_group
        kept = spans * (each - 1) * op.in_channels_per_group
        parts = extents < op.out_channels
        total = np.where(parts, counts * op.in_channels_per_group, op.in_channels)
        reads = Along(total, np.where(parts, kept, 0), np.where(alone, op.in_channels, 0))
        largest = np.where(parts, 1, largest // op.out_channels_per_group) * op.in_channels_per_group
    return ChannelChoices(every, largest, Axis(counts, outs, reads), in_one_group)


def _times(along: Along, factor: int) -> Along:
    return Along(along.total * factor, along.kept * factor, np.full_like(along.total, factor))


def taken(axis: Axis, at: Any) -> Axis:
    """An axis with the entries ``at`` of all its arrays, in the shape of ``at``."""
    outs, reads = (Along(one.total[at], one.kept[at], one.wrapped[at]) for one in (axis.outs, axis.reads))
    return Axis(axis.count[at], outs, reads, tuple(total[at] for total in axis.by_pass))


@dataclass(frozen=True, slots=True)
class _Reads:
    """What the chunks of all sizes read, those of one size after those of another; chunks that read nothing left out.

    Attributes:
        starts, stops: of the positions.
        owner: the size of each chunk.
        first: where the chunks of each size begin; empty if nothing is read at all.
        sizes: how many sizes there are.
    """

    starts: Counts
    stops: Counts
    owner: Counts
    first: Counts
    sizes: int

    @classmethod
    def of(cls, each: Sequence[Range], every: Counts) -> _Reads:
        """Of chunks of these sizes; ``each`` is what one output reads."""
        outs = len(each)
        ends = np.array([(read.start, read.stop) for read in each], np.int64).reshape(-1, 2)
        nothing = ends[:, 0] == ends[:, 1]
        marks = [np.arange(0, outs, size) + outs * index for index, size in enumerate(every.tolist())]
        owner = np.repeat(np.arange(len(every)), [len(one) for one in marks])
        chunks = np.concatenate(marks)
        least = np.tile(np.where(nothing, np.iinfo(np.int64).max, ends[:, 0]), len(every))
        most = np.tile(np.where(nothing, 0, ends[:, 1]), len(every))
        starts, stops = np.minimum.reduceat(least, chunks), np.maximum.reduceat(most, chunks)
        there = starts < stops
        owner = owner[there]
        first = np.flatnonzero(np.diff(owner, prepend=-1))
        return cls(starts[there], stops[there], owner, first, len(every))

    def widest(self) -> Counts:
        """The most positions that a chunk reads, by size."""
        if not len(self.first):
            return np.zeros(self.sizes, np.int64)
        return np.asarray(np.maximum.reduceat(self.stops - self.starts, self.first), np.int64)

    def along(self, *, rolled: bool) -> Along:
        """By size, what the chunks read and what need not be loaded after the chunk before."""
        if not len(self.first):
            nothing = np.zeros(self.sizes, np.int64)
            return Along(nothing, nothing, nothing)
        lengths = self.stops - self.starts
        ends = np.append(self.first[1:], len(lengths)) - 1
        before = np.arange(len(lengths)) - 1
        before[self.first] = ends  # the first one follows the last
        old_starts, old_stops = self.starts[before], self.stops[before]
        kept = np.where((old_starts == self.starts) & (old_stops == self.stops), lengths, 0)
        if rolled:
            shared = np.clip(np.minimum(old_stops, self.stops) - self.starts, 0, None)
            kept = np.where(self.starts >= old_starts, shared, kept)
        wrapped = kept[self.first]
        return Along(np.add.reduceat(lengths, self.first), np.add.reduceat(kept, self.first) - wrapped, wrapped)
