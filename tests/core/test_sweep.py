"""Many accelerators at once: each point is what compiling for that accelerator says."""

from __future__ import annotations

from dataclasses import replace

from core.regions import SPEC
from core.whole_cases import whole_region
from core.zoo import ZOO, lowered

from tvm_sramtile.compile import compile_region
from tvm_sramtile.errors import DoesNotFit
from tvm_sramtile.ir import Region
from tvm_sramtile.options import Options
from tvm_sramtile.plan.bounds import bound_bytes
from tvm_sramtile.sweep import SweepPoint, sweep

SPECS = [SPEC.replace(sram_bytes=size, unit_kernels=((1, 1), (3, 3))) for size in (40, 700, 2800, 11200)]


def expected(regions: list[Region], index: int) -> SweepPoint:
    spec, made, refused = SPECS[index], [], []
    for region in regions:
        try:
            made.append(compile_region(region, spec, Options(), None))
        except DoesNotFit:
            refused.append(region.name)
    predicted = [one.predicted for one in made]
    return SweepPoint(
        spec=spec,
        dram_bytes=sum(one.traffic.total_bytes for one in predicted),
        bound_bytes=sum(
            bound_bytes(step, spec, plan.around)
            for one in made
            for step, plan in zip(one.region.steps, one.plan.steps, strict=True)
        ),
        cycles=sum(one.time.cycles for one in predicted),
        sram_peak_bytes=max((one.sram_peak_bytes for one in predicted), default=0),
        chunks=sum(one.plan.chunk_count for one in made),
        refused=tuple(refused),
    )


def test_points_are_what_compiling_says_however_many_processes_there_are() -> None:
    regions = [lowered(name).case.region for name in ZOO] + [whole_region(seed)[1].region for seed in range(12)]
    regions = [replace(region, name=f"region{index}") for index, region in enumerate(regions)]
    told: list[tuple[int, int]] = []
    found = sweep(regions, SPECS, workers=1, progress=lambda done, of: told.append((done, of)))
    assert found == tuple(expected(regions, index) for index in range(len(SPECS)))
    assert found[0].refused
    assert not found[-1].refused
    assert [one.dram_bytes for one in found[1:] if not one.refused] == sorted(
        (one.dram_bytes for one in found[1:] if not one.refused), reverse=True
    )
    assert told == [(done, len(told)) for done in range(1, len(told) + 1)]
    assert sweep(regions[:4], SPECS[:2], workers=2) == sweep(regions[:4], SPECS[:2], workers=1)


def test_regions_that_are_alike_are_planned_once() -> None:
    region = lowered("rows").case.region
    (step,) = region.steps
    other = step.with_inputs(lambda tensor: replace(tensor, name=f"other {tensor.name}"))
    other = replace(other, name="other", origin=("somewhere",))
    inputs = tuple(tensor for tensor in other.inputs if tensor.digest is None)
    twin = Region("twin", inputs, (other.output,), (other,))
    told: list[int] = []
    (both,) = sweep([region, twin], SPECS[1:2], workers=1, progress=lambda _, of: told.append(of))
    (one,) = sweep([region], SPECS[1:2], workers=1)
    assert told == [1]
    assert (both.dram_bytes, both.cycles, both.chunks) == (2 * one.dram_bytes, 2 * one.cycles, 2 * one.chunks)
