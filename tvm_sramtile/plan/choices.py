"""The ways to cut one axis of a step, all at once as arrays: what a search needs of each of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_sramtile.geometry import Operator
from tvm_sramtile.ints import Range
from tvm_sramtile.plan.cut import Convolution, sizes
from tvm_sramtile.plan.plan import KernelPass
from tvm_sramtile.plan.traffic import Along, Axis

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Choices:
    """Cuts of rows or columns into chunks of one size, the last one perhaps smaller; one entry a cut, coarsest first.

    Attributes:
        sizes: outputs of a chunk.
        widest: positions of the input that the largest chunk reads.
        widest_pass: the same of the pass that reads most.
        plain: the chunks, where only what is equal is kept.
        rolled: the same where the first positions of a chunk are kept as well.
    """

    sizes: Counts
    widest: Counts
    widest_pass: Counts
    plain: Axis
    rolled: Axis


@lru_cache(maxsize=1024)
def choices_of(op: Operator, axis: int, passes: tuple[KernelPass, ...]) -> Choices:
    """The cuts of the rows (0) or columns (1) of an operator, whose kernel is computed in these passes."""
    outs, window = (op.out_rows, op.row_window) if axis == 0 else (op.out_cols, op.col_window)
    every = np.array(list(sizes(outs)), np.int64)
    reads = _ends([window(Range(at, at + 1)).read for at in range(outs)])
    found = [_reads(reads, size) for size in every.tolist()]
    plain, rolled = (_along([_kept(read, rolled=rolled) for read in found]) for rolled in (False, True))
    by_pass = _by_pass(op, axis, passes, every.tolist())
    totals = tuple(total for total, _ in by_pass)
    counts = -(-outs // every)
    own = Along(np.full(len(every), outs), np.zeros(len(every), np.int64), np.where(counts == 1, outs, 0))
    widest = np.array([int((read[:, 1] - read[:, 0]).max(initial=0)) for read in found], np.int64)
    widest_pass = np.max([most for _, most in by_pass], axis=0) if by_pass else widest
    return Choices(
        every, widest, widest_pass, Axis(counts, own, plain, totals), Axis(counts, own, rolled, totals)
    )  # fmt: skip


def shaped(axis: Axis, shape: tuple[int, int]) -> Axis:
    """The arrays of an axis in a shape in which they can be combined with those of the other."""
    outs, reads = (
        Along(*(np.reshape(count, shape) for count in (along.total, along.kept, along.wrapped)))
        for along in (axis.outs, axis.reads)
    )
    by_pass = tuple(np.reshape(total, shape) for total in axis.by_pass)
    return Axis(np.reshape(axis.count, shape), outs, reads, by_pass)


def _ends(reads: list[Range]) -> Counts:
    return np.array([(read.start, read.stop) for read in reads], np.int64).reshape(-1, 2)


def _reads(reads: Counts, size: int) -> Counts:
    """(start, stop) of what chunks of ``size`` outputs read, of those that read anything."""
    outs = np.arange(0, len(reads), size)
    nothing = reads[:, 0] == reads[:, 1]
    starts = np.minimum.reduceat(np.where(nothing, np.iinfo(np.int64).max, reads[:, 0]), outs)
    stops = np.maximum.reduceat(np.where(nothing, 0, reads[:, 1]), outs)
    return np.stack([starts, stops], axis=1)[starts < stops]


def _kept(read: Counts, *, rolled: bool) -> tuple[int, int, int]:
    """Total, kept and wrapped: see ``Along``."""
    if not len(read):
        return 0, 0, 0
    old, new = read, np.roll(read, -1, axis=0)  # the last one is followed by the first
    lengths = new[:, 1] - new[:, 0]
    kept = np.where((old == new).all(axis=1), lengths, 0)
    if rolled:
        first = np.clip(np.minimum(old[:, 1], new[:, 1]) - new[:, 0], 0, None)
        kept = np.where(new[:, 0] >= old[:, 0], first, kept)
    return int(lengths.sum()), int(kept[:-1].sum()), int(kept[-1])


def _along(found: list[tuple[int, int, int]]) -> Along:
    total, kept, wrapped = np.array(found, np.int64).T
    return Along(total, kept, wrapped)


def _by_pass(op: Operator, axis: int, passes: tuple[KernelPass, ...], every: list[int]) -> list[tuple[Any, Any]]:
    """For each pass what it reads in all chunks, and in the chunk where it reads most."""
    if not isinstance(op, Convolution) or len(passes) < 2:
        return []
    phases, outs = (op.row_phases, op.out_rows) if axis == 0 else (op.col_phases, op.out_cols)
    size = (op.in_rows, op.in_cols)[axis]
    keys = [((one.row_phase, one.rows), (one.col_phase, one.cols))[axis] for one in passes]
    known: dict[tuple[int, Range], tuple[Any, Any]] = {}
    for phase, taps in dict.fromkeys(keys):
        reads = _ends([phases[phase].reads(Range(at, at + 1), taps, size) for at in range(outs)])
        found = [_reads(reads, size_) for size_ in every]
        lengths = [read[:, 1] - read[:, 0] for read in found]
        known[phase, taps] = (
            np.array([int(one.sum()) for one in lengths], np.int64),
            np.array([int(one.max(initial=0)) for one in lengths], np.int64),
        )
    return [known[key] for key in keys]
