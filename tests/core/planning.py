"""Plans of one step, for the tests of the planner."""

from __future__ import annotations

from typing import Any

from core.regions import SEED, region_case

from tvm_sramtile.geometry import Conv2d
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Region
from tvm_sramtile.options import Options
from tvm_sramtile.plan import StepPlan, plan_region
from tvm_sramtile.plan.check import check_plan

# Case A19: fits exactly, and with a byte less does not.
A19 = Conv2d(4, 8, 8, 4, (3, 3), padding=(1, 1, 1, 1))
A19_BYTES = 4 * 4 * 9 * 4 + 2 * (8 * 8 * 4 * 4)

SINGLE = SEED.replace(double_buffer=False)


def region(op: Conv2d, *, images: int = 1, bias: bool = False) -> Region:
    return region_case(op, images=images, bias=bias).region


def planned(op: Conv2d, spec: AcceleratorSpec, options: Options = SINGLE, **kinds: Any) -> StepPlan:
    """The plan of one step, proven."""
    made = region(op, **kinds)
    plan = plan_region(made, spec, options)
    check_plan(made, plan, spec)
    return plan.steps[0]


def heights(plan: StepPlan) -> list[int]:
    return [len(span.out) for span in plan.rows]


def widths(plan: StepPlan) -> list[int]:
    return [len(span.out) for span in plan.cols]
