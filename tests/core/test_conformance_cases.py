"""The list itself: its graphs are well-formed, and its expectations agree with the planner."""

from __future__ import annotations

import numpy as np
import pytest
from conformance.cases import CASES
from conformance.grammar import CUT, Case

from tvm_sramtile.geometry import Conv2d
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Region, Step, Tensor
from tvm_sramtile.options import Options
from tvm_sramtile.plan import plan_region
from tvm_sramtile.plan.check import check_plan


def test_names_differ() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_is_complete(case: Case) -> None:
    assert all(np.isfinite(value).all() for value in case.expected())
    assert len(case.chunks) == sum(node.op in CUT for node in case.all_nodes)
    assert bool(case.reason) == (0 in case.chunks)


# The shapes as reported, where a case of the list has smaller ones; float32, so twice the SRAM where that was float16.
AS_REPORTED = {
    "a11": (Conv2d(1, 256, 256, 10, (3, 3)), 524288),
    "a11_float16": (Conv2d(64, 208, 208, 128, (3, 3), strides=(2, 2), padding=(1, 1, 1, 1)), 1048576),
    "a12": (Conv2d(528, 48, 48, 528, (3, 3), strides=(2, 2), padding=(1, 1, 1, 1), groups=2), 4194304),
    "a12_192": (Conv2d(528, 192, 192, 528, (3, 3), strides=(2, 2), padding=(1, 1, 1, 1), groups=2), 8388608),
    "a21": (Conv2d(64, 8, 4096, 64, (3, 3), padding=(1, 1, 1, 1)), 262144),
}


@pytest.mark.parametrize("name", AS_REPORTED)
def test_the_shapes_as_reported_have_plans_that_fit(name: str) -> None:
    op, sram_bytes = AS_REPORTED[name]
    shapes = {
        "data": (1, op.in_channels, op.in_rows, op.in_cols),
        "weight": op.weight_shape,
        "output": (1, op.out_channels, op.out_rows, op.out_cols),
    }
    data, weight, output = (Tensor(role, shape, "float32") for role, shape in shapes.items())
    region = Region(name, (data, weight), (output,), (Step(name, op, data, weight, output, 1),))
    spec = AcceleratorSpec(name=name, sram_bytes=sram_bytes)
    plan = plan_region(region, spec, Options())
    check_plan(region, plan, spec)
    (step,) = plan.steps
    assert step.chunk_count > 1
    assert step.used_bytes("pool") <= sram_bytes
