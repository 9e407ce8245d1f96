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
from tvm_sramtile.plan.capacity import Charge, SpecCapacity, Tile
from tvm_sramtile.plan.choices import choices_of
from tvm_sramtile.plan.cut import Cut, col_spans, row_spans, tile_of, whole_cut
from tvm_sramtile.plan.estimate import Times, compute_cycles, estimated_cycles
from tvm_sramtile.plan.plan import AXES, KernelPass, Order
from tvm_sramtile.plan.seed import channel_choices, seed_cut
from tvm_sramtile.plan.traffic import Along, Axis, channel_axis, loads_once_per_call, traffic_along, traffic_of

_ORDERS: tuple[Order, ...] = (
    ("channels", "rows", "cols"),
    ("channels", "cols", "rows"),
    ("rows", "cols", "channels"),
    ("cols", "rows", "channels"),
)
_DOUBLES: tuple[tuple[str, ...], ...] = (("input", "output"), ("input",), ("output",), ())
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Found:
    """A candidate: what it costs, in the order of the objective, and how it cuts."""

    cost: tuple[int, int]
    cut: Cut
    rows: int
    cols: int


def search_cut(
    step: Step, spec: AcceleratorSpec, passes: tuple[KernelPass, ...], options: Options, *, only_step: bool
) -> Cut:
    """The cut of ``step`` with the least objective; of several, the first.

    Args:
        step: what to compute.
        spec: the accelerator.
        passes: of the kernel.
        options: whose objective is compared first; the other one decides between equals. Cycles are estimated.
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
    search = _Search(step, spec, passes, options, only_step)
    for base in channel_choices(step, whole, capacity):
        search.try_all(base)
    best = search.best
    if best is None:
        return None
    return replace(best.cut, rows=row_spans(step, best.rows), cols=col_spans(step, best.cols))


class _Search:
    """The candidates of one step, and the best so far. Numbers are arrays [rows, cols] over the sizes of chunks."""

    def __init__(
        self, step: Step, spec: AcceleratorSpec, passes: tuple[KernelPass, ...], options: Options, only_step: bool
    ) -> None:
        self.step, self.spec, self.capacity, self.objective = step, spec, SpecCapacity(spec), options.objective
        self.doubles, self.only_step = _DOUBLES if options.double_buffer else _DOUBLES[-1:], only_step
        self.rows, self.cols = (choices_of(step.op, axis, passes) for axis in (0, 1))
        self.keeps_rows = bool((self.rows.rolled.reads.kept != self.rows.plain.reads.kept).any())
        whole = whole_cut(step, passes)
        moving = traffic_of(step, whole, once_per_call=False).total_bytes // (step.images * spec.dma_bytes_per_cycle)
        self.grain = max(1, compute_cycles(spec, step, whole) // 16, moving // 16)
        self.best: Found | None = None
        self.channels, self.compute = channel_axis(step, whole), 0  # of the channels that are tried

    def try_all(self, base: Cut) -> None:
        """All sizes and orders of the loops, with channels and passes as in ``base``."""
        self.channels, self.compute = channel_axis(self.step, base), compute_cycles(self.spec, self.step, base)
        loops = [self.priced(replace(base, order=order, rolled=rolled)) for order, rolled in self.loops(base)]
        loops = [times for times in loops if self.can_win(times)]
        if not loops:
            return
        charge = self.charge(base)
        spare = {memory: limit - charge.used_bytes(memory) for memory, limit in charge.limits.items()}
        fits = np.logical_and.reduce([np.broadcast_to(left >= 0, self.shape) for left in spare.values()])
        if not fits.any():
            return
        for times in loops:
            found = self.best_sizes(times, charge, spare, fits)
            if self.best is None or found.cost < self.best.cost:
                self.best = found

    def priced(self, cut: Cut) -> Times:
        """What ``cut`` moves, for all sizes of rows and columns."""
        rows = _shaped(self.rows.rolled if cut.rolled else self.rows.plain, (-1, 1))
        cols = _shaped(self.cols.plain, (1, -1))
        once = loads_once_per_call(cut, only_step=self.only_step)
        traffic = traffic_along(self.step, cut, self.channels, rows, cols, once_per_call=once)
        return Times(self.spec, self.step, cut, rows, cols, traffic, self.compute)

    def can_win(self, times: Times) -> bool:
        """Whether some sizes, whether they fit or not, may cost less than the best so far."""
        if self.best is None:
            return True
        dram, cycles = int(np.min(times.traffic.total_bytes)), self.rank(self.compute)
        least = (dram, cycles) if self.objective == "dram_bytes" else (cycles, dram)
        return least < self.best.cost

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows.sizes), len(self.cols.sizes)

    def charge(self, base: Cut) -> Charge:
        """What lies in SRAM."""
        op = self.step.op
        in_channels = max(len(op.in_channel_range(part)) for part in base.channels)
        if len(base.in_channels) > 1:
            in_channels = max(map(len, base.in_channels))
        taps = [one.taps for one in base.passes]
        rows, cols = (one.widest_pass if base.input_per_pass else one.widest for one in (self.rows, self.cols))
        tile: Any = Tile(
            out_rows=self.rows.sizes[:, None],  # type: ignore[arg-type]
            out_cols=self.cols.sizes[None, :],  # type: ignore[arg-type]
            out_channels=max(map(len, base.channels)),
            in_rows=rows[:, None],  # type: ignore[arg-type]
            in_cols=cols[None, :],  # type: ignore[arg-type]
            in_channels=in_channels,
            taps=sum(taps) if base.passes_resident else max(taps, default=0),
        )
        return self.capacity.charge(self.step, tile)

    def loops(self, base: Cut) -> Iterator[tuple[Order, bool]]:
        """The orders that can differ, each with and without rows that stay.

        Where each chunk of channels has an input of its own, nothing is gained by coming back to it. With channels
        between rows and columns, weights are loaded more often than with channels outside, and the input as often.
        """
        if base.input_per_pass or len(base.in_channels) > 1:  # everything is loaded for each chunk
            yield AXES, False
            return
        one_input = self.channels.reads.kept > 0
        for order in _ORDERS if one_input else _ORDERS[:2]:
            if self.keeps_rows:
                yield order, True
            if not self.keeps_rows or self.objective == "cycles":  # a copy takes time, but no traffic
                yield order, False

    def best_sizes(self, times: Times, charge: Charge, spare: dict[str, Any], fits: Any) -> Found:
        """The sizes with the least objective; among equals those of the fewest chunks, of rows if possible."""
        cut, rows, cols, traffic = times.cut, times.rows, times.cols, times.traffic
        cycles, double = np.full(self.shape, _NEVER), np.zeros(self.shape, np.int64)
        for index, names in enumerate(self.doubles):
            if cut.input_per_pass and "input" in names:  # it is loaded anew for each pass, in one place
                continue
            possible = fits & self.room(charge, spare, names)
            new = np.where(possible, self.rank(estimated_cycles(times, names)), _NEVER)
            double = np.where(new < cycles, index, double)
            cycles = np.minimum(cycles, new)
        dram = np.where(fits, np.broadcast_to(traffic.total_bytes, self.shape), _NEVER)
        first, second = (dram, cycles) if self.objective == "dram_bytes" else (cycles, dram)
        second = np.where(first == first.min(), second, _NEVER)
        pieces = rows.count * cols.count * (int(cols.count.max()) + 1) + cols.count
        fewest = np.where(second == second.min(), pieces, _NEVER)
        row, col = divmod(int(fewest.argmin()), self.shape[1])
        best = replace(cut, double=self.doubles[int(double[row, col])])
        cost = (int(first[row, col]), int(second[row, col]))
        return Found(cost, best, int(self.rows.sizes[row]), int(self.cols.sizes[col]))

    def rank(self, cycles: Any) -> Any:
        """Cycles in steps that are too small to care about: rather fewer chunks than the last percent."""
        return -(-cycles // self.grain)

    def room(self, charge: Charge, spare: dict[str, Any], names: tuple[str, ...]) -> Any:
        """Where second copies of these maps fit."""
        left = dict(spare)
        for term in charge.terms:
            if term.name in names or (term.name == "other" and "input" in names):
                left[term.memory] = left[term.memory] - term.bytes
        return np.logical_and.reduce([np.broadcast_to(one >= 0, self.shape) for one in left.values()])


def _shaped(axis: Axis, shape: tuple[int, int]) -> Axis:
    """The arrays of an axis, to be combined with those of the other."""
    outs, reads = (
        Along(*(np.reshape(count, shape) for count in (along.total, along.kept, along.wrapped)))
        for along in (axis.outs, axis.reads)
    )
    return Axis(
        np.reshape(axis.count, shape), outs, reads, tuple(np.reshape(total, shape) for total in axis.by_pass)
    )  # fmt: skip
