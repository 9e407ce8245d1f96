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
from tvm_sramtile.ir import Activation, Clip, Step, Tensor
from tvm_sramtile.options import Options
from tvm_sramtile.plan import StepPlan, plan_region
from tvm_sramtile.relax.access import constant_value
from tvm_sramtile.relax.body import check_region
from tvm_sramtile.relax.codegen import compile_function

SPEC = AcceleratorSpec(name="small", sram_bytes=2820, channel_align=4)
X = graphs.tensor("x", 1, 4, 16, 10)
NAME = "sramtile_conv2d_0"


def layer(builder: Any, x: Any) -> Any:
    value = builder.emit(op.nn.conv2d(x, graphs.literal(1, 4, 4, 3, 3), padding=1))
    return op.clip(builder.emit(op.add(value, graphs.literal(2, 1, 4, 1, 1))), relax.prim_value(0), relax.prim_value(6))


def partitioned(limit: int | None = None, spec: AcceleratorSpec = SPEC) -> tvm.IRModule:
    return front.partition_for_sramtile(
        graphs.module([X], layer), spec, Options(strategy="seed", max_unrolled_chunks=limit)
    )


def attributes(mod: tvm.IRModule | None = None) -> RegionAttributes:
    return RegionAttributes.from_attrs(dict((mod or partitioned())[NAME].attrs), NAME)


def changed_plan(change: Callable[[StepPlan], StepPlan]) -> RegionAttributes:
    known = attributes()
    (step,) = known.plan.steps
    return replace(known, plan=replace(known.plan, steps=(change(step),)))


def changed_step(change: Callable[[Step], Step]) -> RegionAttributes:
    known = attributes()
    (step,) = known.region.steps
    return replace(known, region=replace(known.region, steps=(change(step),)))


def message_of(known: RegionAttributes, function: Any) -> str:
    with pytest.raises(CheckFailed) as caught:
        check_region(NAME, known, function)
    return str(caught.value)


def test_right_bodies() -> None:
    for limit in (1, 100):
        check_region(NAME, attributes(), partitioned(limit)[NAME])


def with_row(index: int, **changes: Any) -> Callable[[StepPlan], StepPlan]:
    def change(plan: StepPlan) -> StepPlan:
        rows = list(plan.rows)
        rows[index] = replace(rows[index], **changes)
        return replace(plan, rows=tuple(rows))

    return change


def test_another_pad_than_the_plans() -> None:
    # The pads of a chunk follow from the whole operator; the plan's copy of them is proven by its own check.
    known = changed_step(lambda step: replace(step, op=replace(step.op, padding=(2, 1, 0, 1))))
    message = message_of(known, partitioned()[NAME])
    assert message.startswith(f"function {NAME}: operand 0 of add is nn.conv2d(strides=(1, 1), padding=(1, 1, 0, 1)")


@pytest.mark.parametrize("sram_bytes", [2000, 5000, 100_000])
def test_another_plan_than_that_of_the_body(sram_bytes: int) -> None:
    known = attributes()
    other = replace(known, plan=plan_region(known.region, SPEC.replace(sram_bytes=sram_bytes), known.options))
    assert other.plan.chunk_count != known.plan.chunk_count
    message = message_of(other, partitioned()[NAME])
    assert message.startswith((f"function {NAME}: part 0 ", f"function {NAME}: operand 0 of ", f"function {NAME}: its"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda plan: replace(plan, rows=plan.rows[:-1]),
            "operand 0 of concat is a tuple of 4 in its body, a tuple of 3",
        ),
        (lambda plan: replace(plan, rows=plan.rows[:1]), "its result is concat(axis=2) in its body, clip by its plan"),
        (
            lambda plan: replace(plan, rows=plan.rows[::-1]),
            "operand 0 of add is nn.conv2d(strides=(1, 1), padding=(1, 1",
        ),
        (lambda plan: replace(plan, passes=plan.passes * 2), "operand 0 of add is nn.conv2d("),
    ],
)
def test_other_chunks_than_those_of_the_plan(change: Any, message: str) -> None:
    assert message_of(changed_plan(change), partitioned()[NAME]).startswith(f"function {NAME}: {message}")


def damaged(tensor: Tensor) -> Tensor:
    return replace(tensor, digest="0" * 32)


STEPS = [
    (lambda step: replace(step, op=replace(step.op, dilation=(2, 2))), "operand 0 of add is nn.conv2d(", None),
    (lambda step: replace(step, op=replace(step.op, strides=(1, 2))), "operand 0 of add is nn.conv2d(", None),
    (lambda step: replace(step, clip=Clip(0.0, 5.0)), "operand 2 of clip is 6.0 in its body, 5.0 by its plan", None),
    (
        lambda step: replace(step, clip=Clip(0.0)),
        "part 0 is clip in its body, nn.relu by its plan",
        "its result is clip",
    ),
    (lambda step: replace(step, clip=None), "part 0 is clip in its body, add by its plan", "its result is clip"),
    (lambda step: replace(step, bias=None), "operand 0 of clip is add in its body, nn.conv2d(", None),
    (
        lambda step: replace(step, activations=(Activation("tanh"),)),
        "part 0 is clip in its body, tanh by its plan",
        "its result is clip in its body, tanh by its plan",
    ),
    (
        lambda step: replace(step, weight=damaged(step.weight)),
        "it does not carry its constant weight (4, 4, 3, 3)",
        None,
    ),
    (lambda step: replace(step, bias=damaged(step.bias)), "it does not carry its constant bias (1, 4, 1, 1)", None),
]


@pytest.mark.parametrize(("change", "message", "whole"), STEPS)
@pytest.mark.parametrize("limit", [1, 100])
def test_another_step_than_that_of_the_body(change: Any, message: str, whole: str | None, limit: int) -> None:
    known = changed_step(change)
    known = replace(known, options=replace(known.options, max_unrolled_chunks=limit))
    expected = whole if limit == 1 and whole else message
    assert message_of(known, partitioned(limit)[NAME]).startswith(f"function {NAME}: {expected}")


def test_constants_of_other_values() -> None:
    mod = partitioned()
    function = mod[NAME]
    carried = dict(function.attrs["sramtile.constants"])
    assert sorted(constant_value(value).shape for value in carried.values()) == [(1, 4, 1, 1), (4, 4, 3, 3)]
    other = {
        digest: graphs.literal(7, *constant_value(value).shape) if constant_value(value).size > 4 else value
        for digest, value in carried.items()
    }
    swapped = function.with_attr("sramtile.constants", other)
    wanted = "operand 1 of nn.conv2d is a constant of shape (4, 4, 3, 3) in its body, a constant of shape (4, 4, 3, 3)"
    assert message_of(attributes(mod), swapped).startswith(f"function {NAME}: {wanted}")
    with pytest.raises(CheckFailed, match=r"constant weight .*: its value is not among those of the region's function"):
        compile_function(swapped)


def test_other_bodies() -> None:
    other = graphs.module([graphs.tensor("data", 1, 4, 16, 10)], lambda _, x: op.nn.relu(x))["main"]
    carrying = other.with_attr("sramtile.constants", partitioned()[NAME].attrs["sramtile.constants"])
    assert message_of(attributes(), carrying) == (
        f"function {NAME}: its result is nn.relu in its body, concat(axis=2) by its plan"
    )
    two = graphs.module([X, graphs.tensor("y", 1)], lambda _, x, y: op.nn.relu(x))["main"]
    assert message_of(attributes(), two) == f"function {NAME}: it has 2 parameters, its region 1"
    wide = graphs.module([graphs.tensor("data", 1, 4, 16, 11)], lambda _, x: op.nn.relu(x))["main"]
    carrying = wide.with_attr("sramtile.constants", partitioned()[NAME].attrs["sramtile.constants"])
    assert message_of(attributes(), carrying).startswith(f"function {NAME}: parameter data is R.Tensor((1, 4, 16, 11)")


def rebuilt(function: Any, change: Callable[[int, Any], Any]) -> Any:
    """The function with other values for some bindings of its one block."""
    bindings = []
    for position, binding in enumerate(function.body.blocks[0].bindings):
        value = relax.BlockBuilder().normalize(change(position, binding.value))
        bindings.append(relax.VarBinding(binding.var, value))
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], function.body.body)
    relax.expr._update_type(body, function.body.ty)
    return relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)


def test_a_slice_of_other_rows() -> None:
    def shifted(_: int, value: Any) -> Any:
        if (
            isinstance(value, relax.Call)
            and value.op.name == "relax.strided_slice"
            and int(value.args[2].fields[0]) == 3
        ):
            return op.strided_slice(value.args[0], [2], [4], [10])
        return value

    assert message_of(attributes(), rebuilt(partitioned()[NAME], shifted)) == (
        f"function {NAME}: operand 2 of strided_slice is (4,) in its body, (3,) by its plan"
    )


def test_chunks_in_another_order() -> None:
    def turned(_: int, value: Any) -> Any:
        if graphs.is_call(value, "concat"):
            parts = list(value.args[0].fields)
            return op.concat([parts[0], parts[2], parts[1], parts[3]], axis=2)
        return value

    message = message_of(attributes(), rebuilt(partitioned()[NAME], turned))
    assert message == f"function {NAME}: operand 2 of strided_slice is (7,) in its body, (3,) by its plan"


@pytest.mark.parametrize(
    "rewrite",
    [
        relax.transform.Normalize(),
        relax.transform.CanonicalizeBindings(),
        relax.transform.EliminateCommonSubexpr(),
        relax.transform.DeadCodeElimination(),
        relax.transform.FoldConstant(),
        relax.transform.LegalizeOps(),
    ],
    ids=lambda rewrite: str(rewrite.info.name),
)
@pytest.mark.parametrize(
    "spec",
    [SPEC, SPEC.replace(sram_bytes=900), SPEC.replace(unit_kernels=((1, 2), (2, 1), (1, 1)))],
    ids=["rows", "channels", "sub-kernels"],
)
def test_bodies_that_other_passes_rewrote(spec: AcceleratorSpec, rewrite: Any) -> None:
    w = graphs.literal(1, 12, 12, 3, 3)
    mod = graphs.module([graphs.tensor("x", 1, 12, 4, 4)], lambda _, x: op.nn.conv2d(x, w, padding=1))
    mod = front.partition_for_sramtile(mod, spec, Options(strategy="seed", max_unrolled_chunks=1000))
    assert {"add", "strided_slice"} & set(graphs.ops_of(mod, NAME))
    after = rewrite(mod)
    assert compile_function(after[NAME]).code == compile_function(mod[NAME]).code


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
    mod, finer = partitioned(), partitioned(spec=SPEC.replace(sram_bytes=2000))
    texts = attributes(finer).to_attrs()
    broken = tvm.IRModule({v: f.with_attrs(texts) if v.name_hint == NAME else f for v, f in mod.functions_items()})
    with pytest.raises(CheckFailed, match=f"^function {NAME}: "):
        tvm.compile(broken, "llvm", relax_pipeline="sramtile")


def test_codegen_refuses_a_plan_that_is_wrong() -> None:
    mod = partitioned()
    texts = changed_plan(with_row(0, before=0)).to_attrs()
    broken = tvm.IRModule({v: f.with_attrs(texts) if v.name_hint == NAME else f for v, f in mod.functions_items()})
    with pytest.raises(CheckFailed, match=r"row chunk 0, output 0-4: before is 0, must be 1"):
        tvm.compile(broken, "llvm", relax_pipeline="sramtile")
