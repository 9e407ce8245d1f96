"""The default strategy: of all cuts that fit, the one with the least objective.

Candidates are all loops over chunks of one size along rows, columns, output and input channels, in every order, with
and without rows that stay in SRAM, with the kernel's passes together or in turns. They do not depend on the SRAM; what
does is only which of them fit. An operator that fits in one piece is left whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Step, Tensor
from tvm_sramtile.options import Options
from tvm_sramtile.plan.capacity import Charge, SpecCapacity
from tvm_sramtile.plan.choices import choices_of, shaped
from tvm_sramtile.plan.cut import Cut, buffered_as, col_spans, row_spans, tile_of, tile_with, whole_cut
from tvm_sramtile.plan.estimate import Times, compute_cycles, estimated_cycles, times_of
from tvm_sramtile.plan.plan import AXES, KernelPass, Order
from tvm_sramtile.plan.seed import channel_choices, seed_cut
from tvm_sramtile.plan.traffic import channel_axis, loads_once_per_call, traffic_along, traffic_of

_ORDERS: tuple[Order, ...] = (
    ("channels", "rows", "cols"),
    ("channels", "cols", "rows"),
    ("rows", "cols", "channels"),
    ("cols", "rows", "channels"),
)
_DOUBLES: tuple[tuple[str, ...], ...] = (("input", "output"), ("input",), ("output",), ())
_NEVER = np.iinfo(np.int64).max


_GRAIN = 16  # cycles that differ by less than this part of the least time count as equal: then few chunks are better


@dataclass(frozen=True, slots=True)
class Found:
    """A candidate: what it costs, in the order of the objective, and how it cuts: a chunk has so many rows and cols."""

    cost: tuple[int, int]
    cut: Cut
    rows: int
    cols: int


@dataclass(frozen=True, slots=True)
class Priced:
    """A cut of channels and passes in one order of the loops, for all sizes of rows and columns.

    Attributes:
        pieces: chunks of rows and columns.
        dram_bytes: what they move.
        times: what they take.
        least_rank: no sizes take less; see ``_Search.rank``.
    """

    cut: Cut
    pieces: Any
    dram_bytes: Any
    times: Times
    least_rank: int


def search_cut(
    step: Step, spec: AcceleratorSpec, passes: tuple[KernelPass, ...], options: Options, *, only_step: bool
) -> Cut:
    """The cut of ``step`` with the least objective; of several, the first.

    Args:
        step: what to compute.
        spec: the accelerator.
        passes: of the kernel.
        options: whose objective is compared first; the other one decides between equals. Cycles are estimated, and
            compared as ``_Search.rank`` says.
        only_step: the region has no other.

    Raises:
        DoesNotFit: not even one row and column of one block of channels fits.
    """
    found = _search(_nameless(step), spec, passes, options, only_step)
    return seed_cut(step, SpecCapacity(spec), passes) if found is None else found  # the seed says what does not fit


def _nameless(step: Step) -> Step:
    """What a cut depends on: steps that differ in nothing else are planned once."""

    def tensor(one: Tensor | None) -> Tensor | None:
        return None if one is None else replace(one, name="", digest=None)

    activations = tuple(replace(one, vector=tensor(one.vector)) for one in step.activations)
    return replace(
        step,
        name="",
        data=replace(step.data, name="", digest=None),
        weight=tensor(step.weight),
        output=replace(step.output, name="", digest=None),
        bias=tensor(step.bias),
        other=tensor(step.other),
        activations=activations,
        origin=(),
    )


@lru_cache(maxsize=4096)
def _search(
    step: Step, spec: AcceleratorSpec, passes: tuple[KernelPass, ...], options: Options, only_step: bool
) -> Cut | None:
    whole, capacity = whole_cut(step, passes), SpecCapacity(spec)
    if capacity.charge(step, tile_of(step, whole)).fits:
        return whole
    search = _Search(step, spec, whole, options, only_step)
    for base in channel_choices(step, whole, capacity):
        search.try_all(base)
    best = search.best
    if best is None:
        return None
    return replace(best.cut, rows=row_spans(step, best.rows), cols=col_spans(step, best.cols))


class _Search:
    """The candidates of one step, and the best so far. Numbers are arrays [rows, cols] over the sizes of chunks."""

    def __init__(self, step: Step, spec: AcceleratorSpec, whole: Cut, options: Options, only_step: bool) -> None:
        self.step, self.spec, self.capacity, self.objective = step, spec, SpecCapacity(spec), options.objective
        self.doubles, self.only_step = _DOUBLES if options.double_buffer else _DOUBLES[-1:], only_step
        self.rows, self.cols = (choices_of(step.op, axis, whole.passes) for axis in (0, 1))
        self.shape = (len(self.rows.sizes), len(self.cols.sizes))
        self.keeps_rows = bool((self.rows.rolled.reads.kept != self.rows.plain.reads.kept).any())
        moving = traffic_of(step, whole, once_per_call=False).total_bytes // (step.images * spec.dma_bytes_per_cycle)
        self.grain = max(1, compute_cycles(spec, step, whole) // _GRAIN, moving // _GRAIN)
        self.best: Found | None = None

    def try_all(self, base: Cut) -> None:
        """All sizes and orders of the loops, with channels and passes as in ``base``."""
        promising = [priced for priced in self.priced(base) if self.can_win(priced)]
        if not promising:
            return
        charge = self.charge(base)
        fits = self.room(charge, ())
        if not fits.any():
            return
        for priced in promising:
            found = self.best_sizes(priced, charge, fits)
            if self.best is None or found.cost < self.best.cost:
                self.best = found

    def priced(self, base: Cut) -> Iterator[Priced]:
        """The orders of the loops that can differ, each with and without rows that stay.

        Where each chunk of channels has an input of its own, nothing is gained by coming back to it. With channels
        between rows and columns, weights are loaded more often than with channels outside, and the input as often.
        """
        channels, compute = channel_axis(self.step, base), compute_cycles(self.spec, self.step, base)
        cols = shaped(self.cols.plain, (1, -1))
        for order, rolled in self.loops(base, one_input=channels.reads.kept > 0):
            cut = replace(base, order=order, rolled=rolled)
            rows = shaped(self.rows.rolled if rolled else self.rows.plain, (-1, 1))
            once = loads_once_per_call(cut, only_step=self.only_step)
            traffic = traffic_along(self.step, cut, channels, rows, cols, once_per_call=once)
            times = times_of(self.spec, self.step, cut, rows, cols, traffic, compute)
            # Of equally many chunks those with the fewest columns.
            pieces = rows.count * cols.count * (int(cols.count.max()) + 1) + cols.count
            dram_bytes = np.broadcast_to(traffic.total_bytes, self.shape)
            yield Priced(cut, pieces, dram_bytes, times, self.rank(compute))

    def loops(self, base: Cut, *, one_input: bool) -> Iterator[tuple[Order, bool]]:
        """The orders, and whether rows stay; ``one_input``: chunks of channels read the same."""
        if base.input_per_pass or len(base.in_channels) > 1:  # everything is loaded for each chunk
            yield AXES, False
            return
        for order in _ORDERS if one_input else _ORDERS[:2]:
            if self.keeps_rows:
                yield order, True
            if not self.keeps_rows or self.objective == "cycles":  # a copy takes time, but no traffic
                yield order, False

    def can_win(self, priced: Priced) -> bool:
        """Whether some sizes, whether they fit or not, may cost less than the best so far."""
        return self.best is None or self.cost(int(priced.dram_bytes.min()), priced.least_rank) < self.best.cost

    def cost(self, dram_bytes: Any, rank: Any) -> tuple[Any, Any]:
        """In the order of the objective."""
        return (dram_bytes, rank) if self.objective == "dram_bytes" else (rank, dram_bytes)

    def charge(self, base: Cut) -> Charge:
        """What lies in SRAM."""
        read_rows, read_cols = (
            one.widest_pass if base.input_per_pass else one.widest for one in (self.rows, self.cols)
        )
        outs, reads = (self.rows.sizes[:, None], self.cols.sizes), (read_rows[:, None], read_cols)
        return self.capacity.charge(self.step, tile_with(self.step, base, outs, reads))

    def room(self, charge: Charge, doubled: tuple[str, ...]) -> Any:
        """Where everything fits, with second copies of these maps."""
        left = {memory: limit - charge.used_bytes(memory) for memory, limit in charge.limits.items()}
        for term in charge.terms:
            if buffered_as(term.name) in doubled:
                left[term.memory] = left[term.memory] - term.bytes
        return np.logical_and.reduce([np.broadcast_to(spare >= 0, self.shape) for spare in left.values()])

    def best_sizes(self, priced: Priced, charge: Charge, fits: Any) -> Found:
        """The sizes with the least objective; among equals those of the fewest chunks, of rows if possible."""
        cut = priced.cut
        ranks, double = np.full(self.shape, _NEVER), np.zeros(self.shape, np.int64)
        for index, names in enumerate(self.doubles):
            if cut.input_per_pass and "input" in names:  # it is loaded anew for each pass, in one place
                continue
            possible = fits & self.room(charge, names)
            new = np.where(possible, self.rank(estimated_cycles(priced.times, names)), _NEVER)
            double = np.where(new < ranks, index, double)
            ranks = np.minimum(ranks, new)
        first, second = self.cost(np.where(fits, priced.dram_bytes, _NEVER), ranks)
        second = np.where(first == first.min(), second, _NEVER)
        fewest = np.where(second == second.min(), priced.pieces, _NEVER)
        row, col = divmod(int(fewest.argmin()), self.shape[1])
        best = replace(cut, double=self.doubles[int(double[row, col])])
        cost = (int(first[row, col]), int(second[row, col]))
        return Found(cost, best, int(self.rows.sizes[row]), int(self.cols.sizes[col]))

    def rank(self, cycles: Any) -> Any:
        """Cycles in steps of the grain: see ``_GRAIN``."""
        return -(-cycles // self.grain)
