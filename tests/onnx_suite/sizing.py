"""How small an accelerator must be for a case to be cut, and which cases can share one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from onnx_suite.cases import SuiteCase

from tvm_sramtile.errors import DoesNotFit
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Region
from tvm_sramtile.options import Options
from tvm_sramtile.plan import StepPlan, plan_region

ROOMY_BYTES = 1 << 26
_LEAST_PART = 3  # of the largest SRAM that cuts: below it there are more and more chunks that show nothing new


@dataclass(frozen=True, slots=True)
class Sizes:
    """SRAM sizes with which a case runs and is cut, both ends included."""

    case: SuiteCase
    least_bytes: int
    most_bytes: int


def chip(sram_bytes: int) -> AcceleratorSpec:
    """The accelerator of that size; alignment would only hide how small the cases are."""
    return AcceleratorSpec(name=f"onnx-{sram_bytes}", sram_bytes=sram_bytes, channel_align=1, mac_array=(4, 4))


def must_be_cut(plan: StepPlan) -> bool:
    """Whether the step's output has more than one row or column."""
    return plan.rows[-1].out.stop * plan.cols[-1].out.stop > 1


def sizes_of(case: SuiteCase, regions: Sequence[Region]) -> Sizes:
    """The sizes for a case with these regions; where no size cuts all that must be, the least that runs."""

    def plans(sram_bytes: int) -> list[StepPlan] | None:
        try:
            return [step for r in regions for step in plan_region(r, chip(sram_bytes), Options()).steps]
        except DoesNotFit:
            return None

    def is_cut(sram_bytes: int) -> bool:
        return all(plan.chunk_count > 1 for plan in plans(sram_bytes) or [] if must_be_cut(plan))

    least = _first(lambda sram_bytes: plans(sram_bytes) is not None)
    most = _first(lambda sram_bytes: not is_cut(sram_bytes)) - 1
    return Sizes(case, max(least, most // _LEAST_PART), max(least, most))


def _first(holds: Callable[[int], bool]) -> int:
    """The least size for which it holds, as it does for all larger ones; the roomy one where there is none."""
    low, high = 1, ROOMY_BYTES
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def shared(sizes: Iterable[Sizes]) -> list[tuple[int, tuple[SuiteCase, ...]]]:
    """SRAM sizes, as few as can be, and the cases of one opset that run with each."""
    left = sorted(sizes, key=lambda each: (each.case.opset, each.most_bytes))
    groups = []
    while left:
        opset, sram_bytes = left[0].case.opset, left[0].most_bytes
        taken = [each for each in left if each.case.opset == opset and each.least_bytes <= sram_bytes]
        groups.append((sram_bytes, tuple(each.case for each in taken)))
        left = [each for each in left if each not in taken]
    return groups
