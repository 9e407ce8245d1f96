"""What a network would move and take on many accelerators, without running anything."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context

from tvm_sramtile.errors import DoesNotFit
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Region
from tvm_sramtile.lower import lower, timeline
from tvm_sramtile.options import Options
from tvm_sramtile.plan import plan_region
from tvm_sramtile.plan.bounds import bound_bytes


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """A network on one accelerator; figures of one call.

    Attributes:
        spec: the accelerator.
        dram_bytes: what the regions that fit move; ``bound_bytes``: no plan of their steps moves less.
        cycles: what these regions take, one after the other.
        sram_peak_bytes: the most that any of them takes.
        chunks: of all their steps.
        refused: the regions that do not fit: their operators would stay on the host.
    """

    spec: AcceleratorSpec
    dram_bytes: int
    bound_bytes: int
    cycles: int
    sram_peak_bytes: int
    chunks: int
    refused: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Figures:
    """A region on one accelerator."""

    dram_bytes: int
    bound_bytes: int
    cycles: int
    sram_peak_bytes: int
    chunks: int


def sweep(
    regions: Sequence[Region],
    specs: Sequence[AcceleratorSpec],
    options: Options | None = None,
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[SweepPoint, ...]:
    """Plan regions on each of several accelerators, and count their cycles. Regions that are alike are planned once.

    Args:
        regions: of a network, e.g. ``[one.region for one in tvm_sramtile.relax.regions(partitioned)]``, partitioned for
            an accelerator that takes as much as any of ``specs``.
        specs: the accelerators.
        options: how to plan.
        workers: processes; 1: none but this one; ``None``: as many as there are cores.
        progress: called with how many of how many plans are done.

    Returns:
        A point for each spec, in their order; the same whatever ``workers`` is.
    """
    chosen = options or Options()
    alike = [_alike(region) for region in regions]
    tasks = [(region, spec) for spec in specs for region in dict.fromkeys(alike)]
    done = dict[tuple[Region, AcceleratorSpec], _Figures | None]()
    tell = progress or (lambda done, of: None)
    if workers == 1:
        for region, spec in tasks:
            done[region, spec] = _figures(region, spec, chosen)
            tell(len(done), len(tasks))
    else:
        # Fresh processes: TVM's threads do not survive a fork.
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            pending = {pool.submit(_figures, *task, chosen): task for task in tasks}
            for future in as_completed(pending):
                done[pending[future]] = future.result()
                tell(len(done), len(tasks))
    return tuple(
        _point(spec, [(region.name, done[one, spec]) for region, one in zip(regions, alike, strict=True)])
        for spec in specs
    )


def _alike(region: Region) -> Region:
    """What the figures depend on: equal for regions that differ in names and values only. Those of several steps differ
    always: their names say which reads which.
    """
    if len(region.steps) > 1:
        return region
    places = itertools.count()
    step = region.steps[0].with_inputs(lambda tensor: replace(tensor, name=f"input{next(places)}", digest=None))
    step = replace(step, name="step", output=replace(step.output, name="output"), origin=())
    return Region("region", step.inputs, (step.output,), (step,))


def _figures(region: Region, spec: AcceleratorSpec, options: Options) -> _Figures | None:
    """``None``: it does not fit."""
    try:
        plan = plan_region(region, spec, options)
    except DoesNotFit:
        return None
    cycles = timeline(lower(region, plan, spec, None), region.images).cycles
    bound = sum(bound_bytes(step, spec, one.around) for step, one in zip(region.steps, plan.steps, strict=True))
    return _Figures(plan.traffic.total_bytes, bound, cycles, plan.sram_peak_bytes, plan.chunk_count)


def _point(spec: AcceleratorSpec, found: Sequence[tuple[str, _Figures | None]]) -> SweepPoint:
    fitting = [figures for _, figures in found if figures is not None]
    return SweepPoint(
        spec=spec,
        dram_bytes=sum(one.dram_bytes for one in fitting),
        bound_bytes=sum(one.bound_bytes for one in fitting),
        cycles=sum(one.cycles for one in fitting),
        sram_peak_bytes=max((one.sram_peak_bytes for one in fitting), default=0),
        chunks=sum(one.chunks for one in fitting),
        refused=tuple(name for name, figures in found if figures is None),
    )
