"""A body that is not what the plan says is found, whatever is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import relax_graphs as graphs
import tvm
from tvm import relax
from tvm.relax import op

from tvm_sramtile import relax as front
from tvm_sramtile.attributes import RegionAttributes
from tvm_sramtile.errors import CheckFailed
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ints import Range
from tvm_sramtile.ir import Clip, Step
from tvm_sramtile.options import Options
from tvm_sramtile.plan import StepPlan
from tvm_sramtile.relax.body import check_region
from tvm_sramtile.relax.codegen import compile_function

SPEC = AcceleratorSpec(name="small", sram_bytes=2820, channel_align=4)
X = graphs.tensor("x", 1, 4, 16, 10)
NAME = "sramtile_conv2d_0"


def layer(builder: Any, x: Any) -> Any:
    value = builder.emit(op.nn.conv2d(x, graphs.literal(1, 4, 4, 3, 3), padding=1))
    return op.clip(builder.emit(op.add(value, graphs.literal(2, 1, 4, 1, 1))), relax.prim_value(0), relax.prim_value(6))


def partitioned(limit: int | None = None) -> tvm.IRModule:
    return front.partition_for_sramtile(graphs.module([X], layer), SPEC, Options(max_unrolled_chunks=limit))


def attributes() -> RegionAttributes:
    return RegionAttributes.from_attrs(dict(partitioned()[NAME].attrs), NAME)


def changed_plan(change: Callable[[StepPlan], StepPlan]) -> RegionAttributes:
    known = attributes()
    (step,) = known.plan.steps
    return replace(known, plan=replace(known.plan, steps=(change(step),)))


def changed_step(change: Callable[[Step], Step]) -> RegionAttributes:
    known = attributes()
    (step,) = known.region.steps
    return replace(known, region=replace(known.region, steps=(change(step),)))


def with_chunk(index: int, **changes: Any) -> Callable[[StepPlan], StepPlan]:
    def change(plan: StepPlan) -> StepPlan:
        chunks = list(plan.chunks)
        chunks[index] = replace(chunks[index], **changes)
        return replace(plan, chunks=tuple(chunks))

    return change


def test_right_bodies() -> None:
    for limit in (1, 100):
        check_region(NAME, attributes(), partitioned(limit)[NAME])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_chunk(0, pad_top=0), f"function {NAME}: chunk 0 of its body is Chunk("),
        (with_chunk(1, in_rows=Range(4, 10)), f"function {NAME}: chunk 1 of its body is Chunk("),
        (with_chunk(3, out_rows=Range(11, 16)), f"function {NAME}: chunk 3 of its body is Chunk("),
        (lambda plan: replace(plan, chunks=plan.chunks[:-1]), f"function {NAME}: its body has 4 chunks, its plan 3"),
        (lambda plan: replace(plan, pad_left=0), f"function {NAME}: columns and their pads in its body is"),
    ],
)
def test_another_plan_than_that_of_the_chunks(change: Any, message: str) -> None:
    with pytest.raises(CheckFailed) as caught:
        check_region(NAME, changed_plan(change), partitioned()[NAME])
    assert str(caught.value).startswith(message)


STEPS = [
    (lambda step: replace(step, op=replace(step.op, dilation=(2, 2))), "the operator"),
    (lambda step: replace(step, op=replace(step.op, groups=2)), "the operator"),
    (lambda step: replace(step, clip=Clip(0.0, 5.0)), "the limits"),
    (lambda step: replace(step, clip=None), "the limits"),
    (lambda step: replace(step, bias=None), "the operand bias"),
    (lambda step: replace(step, weight=replace(step.weight, digest="0" * 32)), "the operand weight"),
    (lambda step: replace(step, bias=replace(step.bias, digest="0" * 32)), "the operand bias"),
    (lambda step: replace(step, data=replace(step.data, digest="0" * 32)), "the operand data"),
]


@pytest.mark.parametrize(("change", "what"), STEPS)
@pytest.mark.parametrize("limit", [1, 100])
def test_another_step_than_that_of_the_body(change: Any, what: str, limit: int) -> None:
    with pytest.raises(CheckFailed) as caught:
        check_region(NAME, changed_step(change), partitioned(limit)[NAME])
    assert str(caught.value).startswith(f"function {NAME}: {what}")


def test_other_bodies() -> None:
    function = partitioned()[NAME]
    other = graphs.module([graphs.tensor("data", 1, 4, 16, 10)], lambda _, x: op.nn.relu(x))["main"]
    with pytest.raises(CheckFailed, match=r"an operator in its body is none, in its plan nn.conv2d"):
        check_region(NAME, attributes(), other)
    two = graphs.module([X, graphs.tensor("y", 1)], lambda _, x, y: op.nn.relu(x))["main"]
    with pytest.raises(CheckFailed, match="it has 2 parameters, its region 1"):
        check_region(NAME, attributes(), two)
    check_region(NAME, attributes(), function)


def test_lowered_bodies_cannot_be_read_and_are_accepted() -> None:
    lowered = relax.transform.LegalizeOps()(partitioned())
    assert compile_function(lowered[NAME]).code == compile_function(partitioned()[NAME]).code


def test_chunks_in_padding() -> None:
    def build(_: Any, x: Any) -> Any:
        return op.nn.conv2d(x, graphs.literal(1, 4, 4, 3, 3), padding=(5, 1, 5, 1))

    mod = front.partition_for_sramtile(
        graphs.module([graphs.tensor("x", 1, 4, 4, 10)], build), SPEC.replace(sram_bytes=1300)
    )
    assert "zeros" in graphs.ops_of(mod, NAME)
    check_region(NAME, RegionAttributes.from_attrs(dict(mod[NAME].attrs), NAME), mod[NAME])


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("sramtile.plan", None, f"function {NAME} has no attribute 'sramtile.plan': was it made by this package?"),
        ("sramtile.plan", "{}", "plan attribute is damaged at region: Field required"),
        ("sramtile.region", "no", "region attribute is damaged at "),
    ],
)
def test_codegen_refuses_damaged_attributes(attribute: str, value: str | None, message: str) -> None:
    mod = partitioned()
    function = mod[NAME]
    damaged = function.without_attr(attribute) if value is None else function.with_attr(attribute, value)
    broken = tvm.IRModule({v: damaged if v.name_hint == NAME else f for v, f in mod.functions_items()})
    with pytest.raises(CheckFailed) as caught:
        tvm.compile(broken, "llvm", relax_pipeline="sramtile")
    assert str(caught.value).startswith(message)


def test_codegen_refuses_a_body_that_differs() -> None:
    mod = partitioned()
    texts = changed_plan(with_chunk(0, pad_top=0)).to_attrs()
    broken = tvm.IRModule({v: f.with_attrs(texts) if v.name_hint == NAME else f for v, f in mod.functions_items()})
    with pytest.raises(CheckFailed, match=f"^function {NAME}: chunk 0 of its body"):
        tvm.compile(broken, "llvm", relax_pipeline="sramtile")
