"""Why a step is cut as it is: what else there was, what fills the SRAM, and what more of it would change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from tvm_sramtile.errors import DoesNotFit
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Step
from tvm_sramtile.options import Options
from tvm_sramtile.plan.bounds import bound_bytes
from tvm_sramtile.plan.capacity import SpecCapacity
from tvm_sramtile.plan.cut import Cut, kernel_passes, tile_of, whole_cut
from tvm_sramtile.plan.estimate import cycles_of
from tvm_sramtile.plan.plan import ALONE, POOL, Around
from tvm_sramtile.plan.planner import cut_step, plan_of_cut
from tvm_sramtile.plan.search import Choice, nameless, search_cut

KIB = 1024
_LARGEST = (1 << 32) - 1  # bytes that a spec may have


@dataclass(frozen=True, slots=True)
class Alternative:
    """The best cut that differs from the chosen one in one choice.

    Attributes:
        what: the choice.
        dram_bytes: what it moves in one call.
        cycles: what one image takes, estimated as the search does.
    """

    what: str
    dram_bytes: int
    cycles: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a step is cut as it is.

    Attributes:
        step: its name.
        chosen: the cut in words, its traffic and its cycles.
        bound_bytes: no cut moves less.
        runner_up: of all alternatives the one with the least objective; ``None`` where there is none: the step is not
            cut, or the seed's strategy cut it, which compares nothing.
        alternatives: all of them, the best first.
        memory: the memory that is fullest, its limit, and the buffers in it by size: the first one is what binds.
            Second buffers count: they take what is left.
        one_more_kib: by memory, the DRAM bytes that one more KiB of it saves in a call.
        next_bytes: the least ``sram_bytes`` that saves traffic, and what is moved then; ``None`` where no size does, or
            there are several memories.
    """

    step: str
    chosen: Alternative
    bound_bytes: int
    runner_up: Alternative | None
    alternatives: tuple[Alternative, ...]
    memory: tuple[str, int, tuple[tuple[str, int], ...]]
    one_more_kib: tuple[tuple[str, int], ...]
    next_bytes: tuple[int, int] | None

    @property
    def why_not(self) -> str:
        """Why the runner-up lost."""
        if self.runner_up is None:
            return "nothing else was tried"
        if (self.runner_up.dram_bytes, self.runner_up.cycles) == (self.chosen.dram_bytes, self.chosen.cycles):
            return f"{self.runner_up.what}: equally good, found later"
        more, slower = self.runner_up.dram_bytes - self.chosen.dram_bytes, self.runner_up.cycles - self.chosen.cycles
        traffic = f"{more:+,} B of DRAM traffic" if more else "the same DRAM traffic"
        return f"{self.runner_up.what}: {traffic}, about {slower:+,} cycles an image"


def explain_step(
    step: Step, spec: AcceleratorSpec, options: Options, *, only_step: bool = True, around: Around = ALONE
) -> Explanation:
    """Explain the cut of ``step`` on ``spec``.

    Args:
        step: an operator that the accelerator takes.
        spec: the accelerator.
        options: how it is cut.
        only_step: the region has no other.
        around: what stays in SRAM between its steps.

    Raises:
        DoesNotFit: no cut fits.
    """
    return replace(_explained(nameless(step), spec, options, only_step, around), step=step.name)


@lru_cache(maxsize=4096)
def _explained(step: Step, spec: AcceleratorSpec, options: Options, only_step: bool, around: Around) -> Explanation:
    view = _View(step, spec, options, only_step, around)
    cut = view.cut(spec)
    chosen = view.alternative(_words(cut), cut)
    is_cut = cut.spatial * len(cut.channels) * len(cut.in_channels) > 1
    found = sorted(view.alternatives(cut), key=view.objective) if is_cut and options.strategy == "search" else []
    return Explanation(
        step="",
        chosen=chosen,
        bound_bytes=bound_bytes(step, spec, around),
        runner_up=found[0] if found else None,
        alternatives=tuple(found),
        memory=view.fullest(cut),
        one_more_kib=view.one_more_kib(chosen.dram_bytes),
        next_bytes=view.next_bytes(chosen.dram_bytes),
    )


@dataclass(frozen=True, slots=True)
class _View:
    step: Step
    spec: AcceleratorSpec
    options: Options
    only_step: bool
    around: Around

    def cut(self, spec: AcceleratorSpec) -> Cut:
        return cut_step(self.step, spec, self.options, only_step=self.only_step, around=self.around)

    def moved(self, cut: Cut, spec: AcceleratorSpec) -> int:
        return plan_of_cut(self.step, cut, spec, only_step=self.only_step).traffic.total_bytes

    def alternative(self, what: str, cut: Cut) -> Alternative:
        cycles = cycles_of(self.spec, self.step, cut, only_step=self.only_step)
        return Alternative(what, self.moved(cut, self.spec), cycles)

    def objective(self, one: Alternative) -> tuple[int, int]:
        both = (one.dram_bytes, one.cycles)
        return both if self.options.objective == "dram_bytes" else both[::-1]

    def alternatives(self, cut: Cut) -> Iterator[Alternative]:
        """What differs from ``cut`` in one choice and fits."""
        loops = [axis for axis in cut.order if len({"channels": cut.held}.get(axis, getattr(cut, axis))) > 1]
        tried: list[tuple[str, Options, frozenset[Choice]]] = []
        if len(loops) > 1:
            tried.append(("another order of the loops", self.options, frozenset({cut.order})))
        if cut.rolled and len(cut.rows) > 1:
            tried.append(("rows loaded again", self.options, frozenset({"rolled"})))
        if cut.together > 1:
            tried.append(("weights of one chunk of channels at a time", self.options, frozenset({"together"})))
        if cut.double:
            tried.append(("no second buffers", self.options.replace(double_buffer=False), frozenset()))
        if len(cut.passes) > 1:
            other: Any = "seed" if self.options.kernel_split == "best" else "best"
            tried.append((f"kernel_split={other}", self.options.replace(kernel_split=other), frozenset()))
        if self.around == ALONE:
            tried.append(("the seed's strategy", self.options.replace(strategy="seed"), frozenset()))
        for what, options, without in tried:
            try:
                found = self.searched(options, without)
            except DoesNotFit:
                continue
            if found != cut:
                yield self.alternative(what, found)

    def searched(self, options: Options, without: frozenset[Choice]) -> Cut:
        if options.strategy == "seed":
            found = cut_step(self.step, self.spec, options, only_step=self.only_step)
            return found if found.double is not None else replace(found, double=self.doubled(found))
        passes = kernel_passes(self.step, self.spec.unit_kernels, options.kernel_split)
        only = self.only_step
        return search_cut(self.step, self.spec, passes, options, only_step=only, without=without, around=self.around)

    def doubled(self, cut: Cut) -> tuple[str, ...]:
        """The maps for which a cut that leaves this open gets second buffers."""
        plan = plan_of_cut(self.step, cut, self.spec, only_step=self.only_step)
        return tuple(one.name for one in plan.buffers if len(one.copies) > 1 and one.name in ("input", "output"))

    def fullest(self, cut: Cut) -> tuple[str, int, tuple[tuple[str, int], ...]]:
        """The memory with the least space left beside single buffers, its limit, and its buffers by size."""
        charge = SpecCapacity(self.spec, around=self.around).charge(self.step, tile_of(self.step, cut))
        memory = min(charge.limits, key=lambda name: charge.limits[name] - charge.used_bytes(name))
        plan = plan_of_cut(self.step, cut, self.spec, only_step=self.only_step)
        sizes = [(one.name, sum(one.copies)) for one in plan.buffers if one.memory == memory]
        if memory == POOL and self.around.taken_bytes:
            sizes.append(("maps that stay", self.around.taken_bytes))
        return (
            memory,
            charge.limits[memory] + (self.around.taken_bytes if memory == POOL else 0),
            tuple(sorted(sizes, key=lambda one: -one[1])),
        )

    def one_more_kib(self, moved: int) -> tuple[tuple[str, int], ...]:
        found = []
        for memory, limit in self.spec.memories.items():
            key = "sram_bytes" if memory == POOL else f"{memory}_bytes"
            larger = self.spec.replace(**{key: limit + KIB})
            found.append((str(memory), moved - self.moved(self.cut(larger), larger)))
        return tuple(found)

    def next_bytes(self, moved: int) -> tuple[int, int] | None:
        """Found by bisection: more SRAM never means more traffic."""
        low = self.spec.sram_bytes
        if low is None or self.options.strategy != "search" or self.options.objective != "dram_bytes":
            return None

        def with_bytes(size: int) -> int:
            spec = self.spec.replace(sram_bytes=size)
            return self.moved(self.cut(spec), spec)

        whole = whole_cut(self.step, kernel_passes(self.step, self.spec.unit_kernels, self.options.kernel_split))
        charge = SpecCapacity(self.spec, around=self.around).charge(self.step, tile_of(self.step, whole))
        high = min(_LARGEST, self.around.taken_bytes + charge.used_bytes(POOL))
        if high <= low or with_bytes(high) >= moved:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if with_bytes(middle) < moved else (middle, high)
        return high, with_bytes(high)


def _words(cut: Cut) -> str:
    """A cut in a few words, the outermost loop first."""
    sizes = {"channels": f"{len(cut.held[0])} channels", "rows": f"{len(cut.rows[0].out)} rows"}
    sizes["cols"] = f"{len(cut.cols[0].out)} columns"
    counts = {"channels": len(cut.held), "rows": len(cut.rows), "cols": len(cut.cols)}
    loops = [f"{counts[axis]} x {sizes[axis]}" for axis in cut.order if counts[axis] > 1]
    if cut.together > 1:
        loops.append(f"within them {cut.together} x {len(cut.channels[0])} channels")
    if len(cut.in_channels) > 1:
        loops.append(f"sums over {len(cut.in_channels)} x {len(cut.in_channels[0])} input channels")
    words = [", ".join(loops) or "one piece"]
    if cut.rolled and len(cut.rows) > 1:
        words.append("shared rows stay")
    if cut.double:
        words.append(f"two buffers for {' and '.join(cut.double)}")
    return "; ".join(words)
