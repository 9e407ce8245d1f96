"""Random regions for the suites that have a TVM: what is common to both, and what must hold of three executions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.regions import Case
from core.whole_chips import whole_case

from tvm_sramtile.attributes import RegionAttributes
from tvm_sramtile.compile import Compiled
from tvm_sramtile.errors import DoesNotFit
from tvm_sramtile.frontend import Array, RegionRun
from tvm_sramtile.ir import Step
from tvm_sramtile.plan import StepPlan, plan_region
from tvm_sramtile.verify import max_abs_diff, region_tolerance

KINDS_OF_CUT = ("rows", "columns", "channels", "input channels", "sub-kernels")
KINDS_OF_OPERATOR = ("conv2d", "conv2d_transpose", "pool2d", "resize2d", "elementwise")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A random region that is cut, its values, and its functions by whether their bodies are chunked."""

    seed: int
    case: Case
    attributes: RegionAttributes
    functions: Mapping[bool, Any]

    @property
    def name(self) -> str:
        return self.attributes.region.name

    @property
    def steps(self) -> list[tuple[Step, StepPlan]]:
        return list(zip(self.attributes.region.steps, self.attributes.plan.steps, strict=True))


def draw(
    seed: int,
    most_pieces: int,
    functions: Callable[[RegionAttributes, Mapping[str, Array]], Mapping[bool, Any]],
    as_here: Callable[[Step], Step] = lambda step: step,
) -> Drawn | None:
    """The region of a seed; ``None`` where nothing is cut, or into more pieces than TVM compiles soon.

    The front end gives ``functions`` of a region, with the values of its constants by digest, and ``as_here``: a step
    as its TVM computes it.
    """
    case, spec, options = whole_case(seed)
    region = replace(case.region, name=f"region_{seed}", steps=tuple(map(as_here, case.region.steps)))
    try:
        attributes = RegionAttributes(region, plan_region(region, spec, options), spec, options)
    except DoesNotFit:  # the chip was made for the step as it was drawn
        return None
    if attributes.pieces > most_pieces or not attributes.is_cut:
        return None
    return Drawn(seed, replace(case, region=region), attributes, functions(attributes, case.constants))


def check_three_ways(one: Drawn, compiled: Compiled, run: RegionRun, bodies: Iterable[Sequence[Array]]) -> None:
    """The accelerator, and the bodies under TVM, agree with the oracle and with each other; all figures are the plan's.

    ``run`` is the accelerator's; ``bodies`` are the outputs of the operators, and of the chunked subgraph.
    """
    results = [run.outputs, *bodies]
    tolerance = region_tolerance(compiled.region, run.inputs, run.outputs, one.case.constants)
    for at, result in enumerate(results):
        one.case.compare([*run.inputs, *result])
        for other in results[:at]:
            diff = max(map(max_abs_diff, result, other))
            assert diff <= tolerance, (one.name, at, diff, tolerance)
    predicted = compiled.predicted
    assert run.measured.dram_bytes == predicted.traffic.total_bytes
    assert run.measured.sram_peak_bytes == predicted.sram_peak_bytes
    assert run.measured.cycles == predicted.time.cycles


def kinds(regions: Iterable[Drawn]) -> Counter[str]:
    """How many steps are cut in each way, and of each operator."""
    seen: Counter[str] = Counter()
    for step, plan in (pair for one in regions for pair in one.steps):
        found = {
            step.op.kind: plan.is_split,
            "rows": len(plan.rows) > 1,
            "columns": len(plan.cols) > 1,
            "channels": len(plan.channels) > 1,
            "input channels": len(plan.in_channels) > 1,
            "sub-kernels": plan.has_sub_kernels,
        }
        seen.update(kind for kind, holds in found.items() if holds)
    return seen
