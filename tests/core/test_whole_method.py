"""Every operator and attribute, cut along every axis: results are the oracle's, and all figures the plan's."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from core.regions import SEED, SPEC, Case, region_case
from core.whole_chips import whole_case
from core.whole_method import check

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Region, Step, Tensor, digest_of
from tvm_sramtile.lower import lower
from tvm_sramtile.plan import Plan, StepPlan, plan_region

SHARES, CASES = 8, 3600
LEAST_CASES = 3000  # several thousand is the bar


@pytest.mark.parametrize("share", range(SHARES))
def test_the_whole_method(share: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(share * CASES // SHARES, (share + 1) * CASES // SHARES):
        case, spec, options = whole_case(seed)
        try:
            plan = check(case, spec, options)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {spec!r} {options!r}") from error
        seen.update(kinds(case.region, spec, plan))
        seen["case"] += 1
    assert seen["case"] * SHARES >= LEAST_CASES
    rare = {kind: seen[kind] for kind in EXPECTED if seen[kind] < LEAST}
    assert not rare, (rare, seen)


def kinds(region: Region, spec: AcceleratorSpec, plan: Plan) -> set[str]:
    """What is special about a case."""
    found = set()
    for step, step_plan in zip(region.steps, plan.steps, strict=True):
        found |= {name for name, holds in step_kinds(step, step_plan, spec).items() if holds}
    names = {step.output.name for step in region.steps}
    found |= {"joined"} if len(names) < len(region.steps) else set()
    found |= {"workspace"} if names - {tensor.name for tensor in region.outputs} else set()
    found |= {"stays"} if plan.stays else set()
    found |= (
        {"stays, and is read in pieces"}
        if any("input" in one.around.maps and one.chunk_count > 1 for one in plan.steps)
        else set()
    )
    found |= {"constants"} if region.constants else {"parameters"}
    return found | ({"batch"} if region.images > 1 else set())


def step_kinds(step: Step, plan: StepPlan, spec: AcceleratorSpec) -> dict[str, bool]:
    op = step.op
    kernel, strides = getattr(op, "kernel", (1, 1)), getattr(op, "strides", (1, 1))
    phases = {(each.row_phase, each.col_phase) for each in plan.passes}
    rows, cols = len(plan.rows) > 1, len(plan.cols) > 1
    return {
        f"{op.kind} cut": plan.is_split,
        f"{op.kind} whole": not plan.is_split,
        "rows": rows,
        "columns": cols,
        "output channels": len(plan.channels) > 1,
        "input channels": len(plan.in_channels) > 1,
        "input channels and columns": len(plan.in_channels) > 1 and cols,
        "sub-kernels": len(plan.passes) > len(phases),
        "sub-kernels and rows": len(plan.passes) > len(phases) and rows,
        "streamed sub-kernels": not plan.passes_resident,
        "input per pass": plan.input_per_pass,
        "phases": len(phases) > 1,
        "sub-kernels of phases": 1 < len(phases) < len(plan.passes),
        "taps without a unit": any(not each.taps for each in plan.passes),
        "grouped": 1 < getattr(op, "groups", 1) < op.in_channels,
        "depthwise": getattr(op, "groups", 1) == op.in_channels > 1,
        "groups cut": getattr(op, "groups", 1) > 1 and len(plan.channels) > 1,
        "kernel beyond the map": isinstance(op, Conv2d) and kernel[0] > op.in_rows,
        "stride beyond the kernel": strides[0] > kernel[0],
        "chunk in padding": any(not len(span.read) for span in (*plan.rows, *plan.cols)),
        "double": any(len(buffer.copies) > 1 for buffer in plan.buffers),
        "accumulators": any(buffer.name == "accumulators" for buffer in plan.buffers),
        "separate memories": spec.sram_bytes is None,
        "NHWC": step.data.layout == "NHWC",
        "activations": len(step.activations) > 1,
    }


LEAST = 3  # of each kind in each share
EXPECTED = (
    *(f"{kind} {how}" for kind in ("conv2d", "conv2d_transpose", "pool2d", "resize2d") for how in ("cut", "whole")),
    *("elementwise cut", "elementwise whole", "rows", "columns", "output channels", "input channels"),
    *("input channels and columns", "sub-kernels", "sub-kernels and rows", "streamed sub-kernels", "phases"),
    *("input per pass",),
    *("sub-kernels of phases", "taps without a unit", "grouped", "depthwise", "groups cut", "kernel beyond the map"),
    *("stride beyond the kernel", "chunk in padding", "double", "accumulators", "separate memories", "NHWC"),
    *("activations", "joined", "workspace", "constants", "parameters", "batch", "stays"),
)


# What the random cases meet rarely or never.


def tiny(*steps: Step, values: dict[str, np.ndarray], inputs: tuple[Tensor, ...]) -> Case:
    return Case(Region("region", inputs, tuple(step.output for step in steps), steps), values)


def tensor(name: str, *shape: int, layout: str = "") -> Tensor:
    return Tensor(name, shape, "float32", None, layout)


@pytest.mark.parametrize("constant", [False, True])
def test_weights_that_steps_read_in_different_ways(constant: bool) -> None:
    """One tensor is the kernel of a convolution, of one with groups, of a transposed one, and in another layout."""
    rng = np.random.default_rng(0)
    value = rng.standard_normal((4, 4, 2, 2), np.float32)
    values = {"x": rng.standard_normal((1, 4, 5, 5), np.float32), "w": value, "v": value}
    values["z"] = rng.standard_normal((1, 8, 5, 5), np.float32)
    x, z = tensor("x", 1, 4, 5, 5), tensor("z", 1, 8, 5, 5)
    w = replace(tensor("w", 4, 4, 2, 2), digest=digest_of(value) if constant else None)
    v = replace(w, name="v", layout="IOHW")
    case = tiny(
        Step("plain", Conv2d(4, 5, 5, 4, (2, 2)), x, w, tensor("a", 1, 4, 4, 4)),
        Step("groups", Conv2d(8, 5, 5, 4, (2, 2), groups=2), z, w, tensor("b", 1, 4, 4, 4)),
        Step("transposed", Conv2dTranspose(4, 5, 5, 4, (2, 2)), x, w, tensor("c", 1, 4, 6, 6)),
        Step("turned", Conv2d(4, 5, 5, 4, (2, 2)), x, v, tensor("d", 1, 4, 4, 4)),
        values=values,
        inputs=(x, z) if constant else (x, z, w, v),
    )
    for sram_bytes in (1 << 20, 900):
        check(case, SPEC.replace(sram_bytes=sram_bytes), SEED)


def test_each_chunk_is_summed_before_it_is_stored() -> None:
    """Claim 10: sub-kernels first, then chunks. A store follows the last of each chunk's partial sums."""
    case = region_case(Conv2d(9, 12, 6, 3, (7, 5), padding=(3, 2, 3, 2)))
    spec = SPEC.replace(sram_bytes=1800, unit_kernels=((1, 1), (3, 3)))
    plan = plan_region(case.region, spec, SEED.replace(kernel_split="seed"))
    step = plan.steps[0]
    assert len(step.passes) == 6
    assert len(step.rows) > 2
    names = [command.opcode.name for command in lower(case.region, plan, spec, {}).body]
    chunks = "".join(name[0] for name in names if name in ("CONV", "STORE")).split("S")[:-1]
    assert chunks == ["C" * 6 * len(step.in_channels)] * step.chunk_count
    check(case, spec, SEED.replace(kernel_split="seed"))


def test_neighbours_that_read_the_same_rows_load_them_once() -> None:
    op = Conv2dTranspose(2, 3, 4, 2, (1, 1), strides=(3, 1), padding=(0, 0, 0, 0), output_padding=(2, 0))
    rng = np.random.default_rng(0)
    x, w, y = tensor("x", 1, 2, 3, 4), tensor("w", 2, 2, 1, 1), tensor("y", 1, 2, op.out_rows, op.out_cols)
    values = {each.name: rng.standard_normal(each.shape, np.float32) for each in (x, w)}
    case = tiny(Step("s", op, x, w, y), values=values, inputs=(x, w))
    plan = check(case, SPEC.replace(sram_bytes=160), SEED)
    assert len(plan.steps[0].rows) == 9
    assert plan.traffic.input_bytes == values["x"].nbytes
