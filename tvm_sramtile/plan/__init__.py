"""From a region to a plan: what fits, where to cut, what it costs in DRAM traffic."""

from tvm_sramtile.plan.capacity import Capacity, Charge, SpecCapacity, Term, Tile
from tvm_sramtile.plan.cut import DIRECTIONS, Cut, Direction
from tvm_sramtile.plan.plan import Buffer, Chunk, KernelPass, Plan, Span, StepPlan, Traffic
from tvm_sramtile.plan.planner import cut_step, plan_region
from tvm_sramtile.plan.slices import ResizePart, SliceCapacity, cut_in_slices, resize_part
from tvm_sramtile.plan.smaller import pool_in_two
from tvm_sramtile.plan.terms import ConvTerm, conv_terms, takes_several
from tvm_sramtile.plan.verdict import Verdict, judge

__all__ = [
    "DIRECTIONS",
    "Buffer",
    "Capacity",
    "Charge",
    "Chunk",
    "ConvTerm",
    "Cut",
    "Direction",
    "KernelPass",
    "Plan",
    "ResizePart",
    "SliceCapacity",
    "Span",
    "SpecCapacity",
    "StepPlan",
    "Term",
    "Tile",
    "Traffic",
    "Verdict",
    "conv_terms",
    "cut_in_slices",
    "cut_step",
    "judge",
    "plan_region",
    "pool_in_two",
    "resize_part",
    "takes_several",
]
