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
from tvm_sramtile.frontend import Array, Frontend, RegionRun
from tvm_sramtile.geometry import Operator, Resize2d
from tvm_sramtile.ir import Step
from tvm_sramtile.plan import StepPlan, plan_region
from tvm_sramtile.verify import max_abs_diff, region_tolerance, verify

KINDS_OF_CUT = ("rows", "columns", "channels", "input channels", "sub-kernels")
KINDS_OF_OPERATOR = ("conv2d", "conv2d_transpose", "pool2d", "resize2d", "elementwise")

HEAVY = ("conv2d", "conv2d_transpose", "matmul", "dense", "max_pool2d", "avg_pool2d", "resize2d")


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
    as_here: Callable[[Step], Step | None],
) -> Drawn | None:
    """The region of a seed; ``None`` where nothing is cut, or into more pieces than TVM compiles soon.

    The front end gives ``functions`` of a region, with the values of its constants by digest, and ``as_here``: a step
    as its TVM computes it, ``None`` where it does not.
    """
    case, spec, options = whole_case(seed)
    steps = [step for each in case.region.steps if (step := as_here(each)) is not None]
    if len(steps) < len(case.region.steps):
        return None
    region = replace(case.region, name=f"region_{seed}", steps=tuple(steps))
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


def divides_by_zero(op: Operator) -> bool:
    """Whether TVM, of both generations, fails on it."""
    corners = isinstance(op, Resize2d) and op.coordinate_transformation_mode == "align_corners"
    return corners and 1 in (op.out_rows, op.out_cols)


def check_network(front: Frontend, mod: Any, one: Drawn) -> None:
    """A drawn region as a user's network: read, partitioned and verified as any other.

    All its heavy operators are on the accelerator but those that do not fit.
    """
    outputs = [tensor.name for tensor in one.attributes.region.outputs]
    inputs = {tensor.name: one.case.values[tensor.name] for tensor in one.attributes.region.inputs}
    found = verify(front, mod, inputs, outputs, one.attributes.spec, one.attributes.options)
    assert all(output.ok for output in found.outputs), (one.name, found.outputs)
    assert all(region.ok for region in found.regions), (one.name, found.regions)
    heavy = [op for op in found.report.host_ops if op.op.rpartition(".")[2] in HEAVY]
    assert all("not even 1 row" in op.reason for op in heavy), (one.name, heavy)


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
