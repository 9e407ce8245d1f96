"""From a region to a plan: what fits, where to cut, what it costs in DRAM traffic."""

from tvm_sramtile.plan.capacity import Capacity, Charge, SpecCapacity, Term, Tile
from tvm_sramtile.plan.cut import DIRECTIONS, Cut, Direction
from tvm_sramtile.plan.plan import Buffer, Chunk, KernelPass, Plan, Span, StepPlan, Traffic
from tvm_sramtile.plan.planner import cut_step, plan_region
from tvm_sramtile.plan.verdict import Verdict, judge

__all__ = [
    "DIRECTIONS",
    "Buffer",
    "Capacity",
    "Charge",
    "Chunk",
    "Cut",
    "Direction",
    "KernelPass",
    "Plan",
    "Span",
    "SpecCapacity",
    "StepPlan",
    "Term",
    "Tile",
    "Traffic",
    "Verdict",
    "cut_step",
    "judge",
    "plan_region",
]
