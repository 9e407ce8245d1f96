"""The default strategy: of all cuts that fit, the one with the least objective.

Candidates are all loops over chunks of one size along rows, columns, output and input channels, in every order, with
and without rows that stay in SRAM, with the weights of one or several chunks of channels at a time, with the kernel's
passes together or in turns. They do not depend on the SRAM; what does is only which of them fit. An operator that fits
in one piece is left whole.

All sizes are priced at once, as arrays over (channels, rows, columns). First what they move, which says which can be
best; of these, what they take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from tvm_sramtile.errors import DoesNotFit
from tvm_sramtile.geometry import Conv2d, Conv2dTranspose, Elementwise
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ints import ceil_div
from tvm_sramtile.ir import Step, Tensor
from tvm_sramtile.options import Options
from tvm_sramtile.plan.capacity import Charge, SpecCapacity, Tile
from tvm_sramtile.plan.choices import Choices, channel_choices_of, choices_of, pass_choices_of, taken
from tvm_sramtile.plan.cut import (
    TURNS,
    Cut,
    buffered_as,
    channels_of,
    col_spans,
    in_channel_sizes,
    in_channels_of,
    row_spans,
    tile_of,
    whole_cut,
)
from tvm_sramtile.plan.estimate import Times, compute_cycles, estimated_cycles, times_of
from tvm_sramtile.plan.plan import ALONE, AXES, Around, KernelPass, Order, Traffic
from tvm_sramtile.plan.seed import seed_cut
from tvm_sramtile.plan.traffic import Axis, traffic_along, traffic_of

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
class Way:
    """What candidates that are priced together have in common.

    Attributes:
        cut: the step in one piece, but with its passes, loops and rows as they are here. Its input channels are in
            parts if those of the candidates are; how many, does not matter.
        rows, cols: the choices along them.
        ins: input channels of a group that are summed over at a time: the choices.
        fits: which sizes (channels, rows, columns) fit in the way that takes the least memory.
    """

    cut: Cut
    rows: Choices
    cols: Choices
    ins: tuple[int, ...]
    fits: Any

    @property
    def deep(self) -> bool:
        """Whether input channels are summed up in parts."""
        return len(self.cut.in_channels) > 1

    @property
    def row_axis(self) -> Axis:
        """The chunks of rows, by size."""
        return self.rows.rolled if self.cut.rolled else self.rows.plain


@dataclass(frozen=True, slots=True)
class Found:
    """A candidate: what it costs, in the order of the objective, then few chunks; and how it cuts."""

    cost: tuple[int, int, int]
    cut: Cut


Choice = Order | Literal["rolled", "together"]
"""What candidates may be kept from: an order of the loops, rows that stay, weights of several chunks of channels."""


def search_cut(
    step: Step,
    spec: AcceleratorSpec,
    passes: tuple[KernelPass, ...],
    options: Options,
    *,
    only_step: bool,
    without: frozenset[Choice] = frozenset(),
    around: Around = ALONE,
) -> Cut:
    """The cut of ``step`` with the least objective; of several, the first.

    Args:
        step: what to compute.
        spec: the accelerator.
        passes: of the kernel.
        options: whose objective is compared first; the other one decides between equals. Cycles are estimated, and
            compared as ``_Search.rank`` says.
        only_step: the region has no other.
        without: what candidates must not have.
        around: what stays in SRAM between the steps of the region. A map that stays is made, and read by elementwise
            operators, in chunks of whole rows and columns; all its chunks of channels begin a block.

    Raises:
        DoesNotFit: not even one row and column of one block of channels fits; or no cut around what stays.
    """
    found = _search(nameless(step), spec, passes, options, only_step, without, around)
    if found is not None:
        return found
    if around != ALONE:
        raise DoesNotFit(f"{step.op.kind} {step.name}: no cut fits beside the maps that stay in SRAM, {around}")
    return seed_cut(step, SpecCapacity(spec), passes)  # it says what does not fit


def nameless(step: Step) -> Step:
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
    step: Step,
    spec: AcceleratorSpec,
    passes: tuple[KernelPass, ...],
    options: Options,
    only_step: bool,
    without: frozenset[Choice],
    around: Around,
) -> Cut | None:
    whole, capacity = whole_cut(step, passes, around), SpecCapacity(spec, around=around)
    if capacity.charge(step, tile_of(step, whole)).fits:
        return whole
    found = _Search(step, spec, whole, options, only_step, without).best()
    return None if found is None else found.cut


class _Search:
    """The candidates of one step."""

    def __init__(
        self,
        step: Step,
        spec: AcceleratorSpec,
        whole: Cut,
        options: Options,
        only_step: bool,
        without: frozenset[Choice],
    ) -> None:
        self.step, self.spec, self.whole, self.only_step = step, spec, whole, only_step
        self.orders = [order for order in _ORDERS if order not in without]
        self.capacity, self.objective = SpecCapacity(spec, around=whole.around), options.objective
        self.doubles = _DOUBLES if options.double_buffer else _DOUBLES[-1:]
        self.channels = channel_choices_of(step.op, spec.channel_align)
        self.rows, self.cols = (choices_of(step.op, axis) for axis in (0, 1))
        self.one_input = bool(self.channels.axis.reads.kept.any())  # chunks of channels read the same
        stay = (self.rows.rolled.reads.kept != self.rows.plain.reads.kept).any()
        self.reads_dram = "input" not in whole.around.maps
        self.keeps_rows = self.reads_dram and "rolled" not in without and bool(stay)
        self.allowed = self.allowed_sizes()
        # Weights of several chunks of channels: where these need no other input.
        shelved = "together" not in without and isinstance(step.op, Conv2d | Conv2dTranspose) and step.op.groups == 1
        largest = int(self.channels.sizes[0])
        parts = [spec.channel_align << power for power in range(largest.bit_length())] if shelved else []
        self.parts = np.array([largest, *reversed([part for part in parts if part < largest])], np.int64)
        self.compute: dict[tuple[int, int, int], int] = {}
        moving = traffic_of(step, whole, once_per_call=False).total_bytes // (step.images * spec.dma_bytes_per_cycle)
        least = compute_cycles(spec, step, whole.passes, {step.op.out_channels: 1}, {len(whole.in_channels[0]): 1})
        self.grain = max(1, least // _GRAIN, moving // _GRAIN)

    def allowed_sizes(self) -> Any:
        """The sizes (channels, rows, columns) whose chunks of maps that stay can lie where these lie."""
        maps, lanes = self.whole.around.maps, self.spec.channel_align
        allowed = np.ones((len(self.channels.sizes), len(self.rows.sizes), len(self.cols.sizes)), np.bool_)
        if not maps:
            return allowed
        if "output" in maps or isinstance(self.step.op, Elementwise):
            allowed[:, 1:, :] = allowed[:, :, 1:] = False
        for index, size in enumerate(self.channels.sizes.tolist()):
            parts = channels_of(self.step.op, size)
            made = "output" in maps and any(part.start % lanes for part in parts)
            read = maps != ("output",) and any(self.step.op.in_channel_range(part).start % lanes for part in parts)
            allowed[index] &= not (made or read)
        return allowed

    def best(self) -> Found | None:
        """The best candidate; ``None`` if none fits."""
        priced: list[tuple[Way, Traffic]] = []
        least = _NEVER
        for way in self.ways():
            traffic = self.traffic(way)
            moved = int(np.where(way.fits, traffic.total_bytes, _NEVER).min())
            if self.objective == "cycles" or moved <= least:
                priced.append((way, traffic))
            least = min(least, moved)
        best: Found | None = None
        for way, traffic in priced:
            best = self.settled(way, way.fits & (traffic.total_bytes == least), best)
        if self.objective == "cycles":
            for way, traffic in priced:
                best = self.settled(way, way.fits & self.can_be_faster(way, traffic, best), best)
        return best

    def ways(self) -> Iterator[Way]:
        """All that fit with some sizes."""
        op, shape = self.step.op, (len(self.channels.sizes), len(self.rows.sizes), len(self.cols.sizes))
        for resident, per_pass in TURNS if len(self.whole.passes) > 1 else TURNS[:1]:
            if per_pass and not self.reads_dram:
                continue
            base = replace(self.whole, passes_resident=resident, input_per_pass=per_pass)
            rows, cols = self.rows, self.cols
            if per_pass and isinstance(op, Conv2d | Conv2dTranspose):
                rows, cols = (pass_choices_of(op, axis, base.passes) for axis in (0, 1))
            whole, *parts = in_channel_sizes(op, self.spec.channel_align)
            for ins in ((whole,), tuple(parts)):
                if not ins:
                    continue
                cut = replace(base, in_channels=in_channels_of(op, ins[0]))
                way = Way(cut, rows, cols, ins, None)
                k, r, c = np.ix_(*map(np.arange, shape))
                fits = self.allowed & self.room(self.charge(way, k, r, c, self.parts_of(way)[-1], ins[-1]), (), shape)
                if len(cut.in_channels) > 1:
                    fits = fits & self.channels.in_one_group[:, None, None]
                if fits.any():
                    for order, rolled in self.loops(cut):
                        yield replace(way, cut=replace(cut, order=order, rolled=rolled), fits=fits)

    def loops(self, cut: Cut) -> Iterator[tuple[Order, bool]]:
        """The orders of the loops that can differ, each with and without rows that stay.

        Where each chunk of channels has an input of its own, nothing is gained by coming back to it. With channels
        between rows and columns, weights are loaded more often than with channels outside, and the input as often.
        """
        if cut.input_per_pass or len(cut.in_channels) > 1:  # everything is loaded for each chunk
            yield AXES, False
            return
        for order in self.orders if self.one_input else self.orders[:2]:
            if self.keeps_rows:
                yield order, True
            if not self.keeps_rows or self.objective == "cycles":  # a copy takes time, but no traffic
                yield order, False

    def parts_of(self, way: Way) -> Any:
        """Channels of a chunk, from all of a shelf's to the fewest: the choices."""
        return self.parts if way.cut.passes_resident and not way.deep else self.parts[:1]

    def charge(self, way: Way, k: Any, r: Any, c: Any, part: Any, ins: int) -> Charge:
        """What lies in SRAM with the sizes at these places, chunks of ``part`` channels and sums over ``ins``."""
        held = self.channels.sizes[k]
        taps = [one.taps for one in way.cut.passes]
        tile = Tile(
            out_rows=way.rows.sizes[r],
            out_cols=way.cols.sizes[c],
            out_channels=np.minimum(held, part),
            held_channels=np.minimum(held, self.step.op.out_channels),
            in_rows=way.rows.widest[r],
            in_cols=way.cols.widest[c],
            in_channels=ins if way.deep else self.channels.sources[k],
            taps=sum(taps) if way.cut.passes_resident else max(taps, default=0),
        )
        return self.capacity.charge(self.step, tile)

    def room(self, charge: Charge, doubled: tuple[str, ...], shape: tuple[int, ...]) -> Any:
        """Where everything fits, with second copies of these maps."""
        fits = np.ones(shape, np.bool_)
        for memory, limit in charge.limits.items():
            left = limit - charge.used_bytes(memory)
            for term in charge.terms:
                if term.memory == memory and buffered_as(term.name) in doubled:
                    left = left - term.bytes
            fits &= left >= 0
        return fits

    def traffic(self, way: Way) -> Traffic:
        """What all sizes (channels, rows, columns) move."""
        k, r, c = np.ix_(*map(np.arange, way.fits.shape))
        return self.traffic_at(way, k, r, c)

    def traffic_at(self, way: Way, k: Any, r: Any, c: Any) -> Traffic:
        """What the sizes at these places move."""
        channels, rows, cols = taken(self.channels.axis, k), taken(way.row_axis, r), taken(way.cols.plain, c)
        once = (channels.count == 1) & (self.only_step and not way.deep and way.cut.passes_resident)
        return traffic_along(self.step, way.cut, channels, rows, cols, once_per_call=once)

    def settled(self, way: Way, among: Any, best: Found | None) -> Found | None:
        """The best of the sizes ``among``, if it is better than ``best``, else this."""
        places = np.nonzero(among)
        if not len(places[0]):
            return best
        k, r, c = places
        traffic = self.traffic_at(way, k, r, c)
        moved = np.broadcast_to(traffic.total_bytes, k.shape)
        parts = self.parts_of(way)[:, None]
        for ins in way.ins:
            charge = self.charge(way, k, r, c, parts, ins)
            shape = (len(parts), len(k))
            times, pieces = self.times(way, k, r, c, parts, ins, traffic)
            ranks, double = np.full(shape, _NEVER), np.zeros(shape, np.int64)
            for index, names in enumerate(self.doubles):
                if way.cut.input_per_pass and "input" in names:  # it is loaded anew for each pass, in one place
                    continue
                possible = self.room(charge, names, shape)
                new = np.where(possible, self.rank(estimated_cycles(times, names)), _NEVER)
                double = np.where(new < ranks, index, double)
                ranks = np.minimum(ranks, new)
            first, second = self.cost(np.where(ranks < _NEVER, moved, _NEVER), ranks)
            if first.min() == _NEVER:
                continue
            second = np.where(first == first.min(), second, _NEVER)
            fewest = np.where(second == second.min(), pieces, _NEVER)
            j, at = divmod(int(fewest.argmin()), len(k))
            cost = (int(first[j, at]), int(second[j, at]), int(fewest[j, at]))
            if best is None or cost < best.cost:
                size, part = int(self.channels.sizes[k[at]]), int(parts[j, 0])
                doubled = self.doubles[int(double[j, at])]
                best = Found(cost, self.cut_of(way, size, part, ins, int(r[at]), int(c[at]), doubled))
        return best

    def cut_of(self, way: Way, size: int, part: int, ins: int, r: int, c: int, double: tuple[str, ...]) -> Cut:
        """A candidate as a cut."""
        op = self.step.op
        return replace(
            way.cut,
            channels=channels_of(op, size, min(size, part)),
            together=ceil_div(min(size, op.out_channels), min(size, part)),
            in_channels=in_channels_of(op, ins),
            rows=row_spans(self.step, int(way.rows.sizes[r])),
            cols=col_spans(self.step, int(way.cols.sizes[c])),
            double=double,
        )

    def times(self, way: Way, k: Any, r: Any, c: Any, parts: Any, ins: int, traffic: Traffic) -> tuple[Times, Any]:
        """What candidates take, and how many chunks they have: of equally many those with the fewest columns count."""
        axis, rows, cols = self.channels.axis, taken(way.row_axis, r), taken(way.cols.plain, c)
        known, places = np.unique(k, return_inverse=True)
        by_size = np.array(
            [[self.channels_in(int(size), part) for size in known] for part in parts[:, 0].tolist()], np.int64
        )
        compute = np.array(
            [[self.computing(way, int(size), part, ins) for size in known] for part in parts[:, 0].tolist()], np.int64
        )
        chunks = by_size[:, places]
        times = times_of(self.spec, self.step, way.cut, axis.count[k], chunks, rows, cols, traffic, compute[:, places])
        pieces = chunks * rows.count * cols.count
        return times, pieces * (int(way.cols.plain.count.max()) + 1) + cols.count

    def channels_in(self, k: int, part: int) -> int:
        """Chunks along the channels: of shelves of this size, cut into such parts."""
        return sum(self.chunk_lengths(k, part).values())

    def chunk_lengths(self, k: int, part: int) -> Counter[int]:
        """How many of these chunks have how many channels."""
        size = int(self.channels.sizes[k])
        return Counter(map(len, channels_of(self.step.op, size, min(size, part))))

    def computing(self, way: Way, k: int, part: int, ins: int) -> int:
        """Cycles of the compute queue."""
        key = (k, part, ins)
        if key not in self.compute:
            sums = Counter(map(len, in_channels_of(self.step.op, ins)))
            self.compute[key] = compute_cycles(self.spec, self.step, way.cut.passes, self.chunk_lengths(k, part), sums)
        return self.compute[key]

    def can_be_faster(self, way: Way, traffic: Traffic, best: Found | None) -> Any:
        """Where moving alone does not take more than the best so far."""
        if best is None:
            return True
        a_cycle = self.spec.dma_bytes_per_cycle * self.step.images
        loading = (traffic.input_bytes + traffic.weight_bytes) // a_cycle
        return self.rank(np.maximum(loading, traffic.output_bytes // a_cycle)) <= best.cost[0]

    def cost(self, dram_bytes: Any, rank: Any) -> tuple[Any, Any]:
        """In the order of the objective."""
        return (dram_bytes, rank) if self.objective == "dram_bytes" else (rank, dram_bytes)

    def rank(self, cycles: Any) -> Any:
        """Cycles in steps of the grain: see ``_GRAIN``."""
        return -(-cycles // self.grain)
