"""What is taken into a step, what is not, and the whole texts of refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import relax_graphs as graphs
from tvm import relax, tirx
from tvm.relax import op
from tvm.script import relax as R  # noqa: N812 (what everyone calls it)

from tvm_sramtile import relax as front
from tvm_sramtile.errors import UnsupportedOp
from tvm_sramtile.ir import Clip
from tvm_sramtile.options import Options
from tvm_sramtile.relax.read import Found, find_steps

Build = Callable[..., Any]
X = graphs.tensor("x", 1, 4, 6, 5)
W = graphs.literal(1, 4, 4, 3, 3)


def found(build: Build, *params: relax.Var) -> Found:
    first, *_ = find_steps(graphs.module(list(params or (X,)), build)["main"])
    return first


def number(value: float, *shape: int) -> Any:
    return relax.const(np.full(shape, value, "float32"), "float32")


def conv(builder: Any, x: Any) -> Any:
    return builder.emit(op.nn.conv2d(x, W, padding=1))


@pytest.mark.parametrize(
    ("apply", "clip"),
    [
        (op.nn.relu, Clip(0.0, None)),
        (op.nn.relu6, Clip(0.0, 6.0)),
        (lambda v: op.clip(v, relax.prim_value(-1.5), relax.prim_value(2)), Clip(-1.5, 2.0)),
        (lambda v: op.maximum(v, number(0.25)), Clip(0.25, None)),
        (lambda v: op.minimum(number(0.75, 1, 1, 1), v), Clip(None, 0.75)),
        (lambda v: op.maximum(v, number(-np.inf)), Clip(None, None)),
    ],
)
def test_limits(apply: Build, clip: Clip) -> None:
    step = found(lambda b, x: apply(conv(b, x))).step
    assert step is not None
    assert step.clip == clip


def test_limits_one_after_the_other_are_one() -> None:
    def build(builder: Any, x: Any) -> Any:
        value = builder.emit(op.nn.relu(conv(builder, x)))
        return op.minimum(value, number(6.0))

    step = found(build).step
    assert step is not None
    assert step.clip == Clip(0.0, 6.0)
    assert step.origin == ("lv", "lv1", "gv") or len(step.origin) == 3


@pytest.mark.parametrize(
    "apply",
    [
        lambda v: op.clip(v, relax.prim_value(2.0), relax.prim_value(1.0)),
        lambda v: op.maximum(v, number(np.nan)),
        lambda v: op.maximum(v, number(1.0, 2, 1, 1, 1)),
        lambda v: op.multiply(v, number(np.inf)),
        lambda v: op.minimum(v, v),
        lambda v: op.erf(v),
    ],
)
def test_what_we_cannot_say_stays_outside(apply: Build) -> None:
    result = found(lambda b, x: apply(conv(b, x)))
    assert result.step is not None
    assert result.step.activations == ()
    assert len(result.places) == 1
    assert result.step is not None
    assert result.step.clip is None


@pytest.mark.parametrize(
    ("shape", "swapped", "taken"),
    [
        ((1, 4, 1, 1), False, True),
        ((1, 4, 1, 1), True, True),
        ((4, 1, 1), False, True),
        ((4, 1, 1), True, True),
        ((5,), False, False),
        ((1, 1, 6, 1), False, False),
        ((1, 4, 6, 5), False, False),
        ((2, 4, 1, 1), False, False),
    ],
)
@pytest.mark.parametrize("constant", [True, False])
def test_a_bias_has_one_element_a_channel(shape: tuple[int, ...], swapped: bool, taken: bool, constant: bool) -> None:
    bias = number(1.0, *shape) if constant else graphs.tensor("b", *shape)

    def build(builder: Any, x: Any, *_: Any) -> Any:
        operands = (conv(builder, x), bias)
        return op.add(*(reversed(operands) if swapped else operands))

    result = found(build, *([X] if constant else [X, bias]))
    assert (len(result.places) == 2) == taken
    assert result.step is not None
    assert (result.step.bias is not None) == taken


def test_one_channel_takes_a_scalar_as_bias() -> None:
    w = graphs.literal(1, 1, 4, 3, 3)
    step = found(lambda b, x: op.add(b.emit(op.nn.conv2d(x, w)), number(1.0))).step
    assert step is not None
    assert step.bias is not None


def test_a_bias_comes_before_the_limits_and_once() -> None:
    def late(builder: Any, x: Any) -> Any:
        return op.add(builder.emit(op.nn.relu(conv(builder, x))), number(1.0, 1, 4, 1, 1))

    def twice(builder: Any, x: Any) -> Any:
        return op.add(builder.emit(op.add(conv(builder, x), number(1.0, 1, 4, 1, 1))), number(1.0, 1, 4, 1, 1))

    for build, clip in ((late, Clip(0.0, None)), (twice, None)):
        step = found(build).step
        assert step is not None
        assert (step.bias is None) == (build is late)
        assert step.clip == clip
        assert [(a.function, a.partner) for a in step.activations] == [("add", "vector")]


def test_a_value_that_is_used_again_ends_the_epilogue() -> None:
    def doubled(builder: Any, x: Any) -> Any:
        value = conv(builder, x)
        return op.add(value, value)

    def again(builder: Any, x: Any) -> Any:
        value = conv(builder, x)
        limited = builder.emit(op.nn.relu(value))
        return op.multiply(limited, value)

    def output(builder: Any, x: Any) -> Any:
        value = conv(builder, x)
        return relax.Tuple([value, builder.emit(op.nn.relu(value))])

    for build in (doubled, again, output):
        assert len(found(build).places) == 1


def test_no_more_than_the_operator_where_no_epilogue_is_wanted() -> None:
    def build(builder: Any, x: Any) -> Any:
        return op.nn.relu(conv(builder, x))

    function = graphs.module([X], build)["main"]
    conv2d, relu = find_steps(function, epilogue=False)
    assert [len(each.places) for each in (conv2d, relu)] == [1, 1]
    (only,) = find_steps(function)
    assert len(only.places) == 2


def test_what_is_not_accepted_with_its_epilogue_is_tried_alone() -> None:
    def build(builder: Any, x: Any) -> Any:
        return op.nn.relu(conv(builder, x))

    function = graphs.module([X], build)["main"]
    conv2d, relu = find_steps(function, lambda each: len(each.places) == 1)
    assert (conv2d.kind, relu.kind) == ("conv2d", "relu")
    assert not set(conv2d.places) & set(relu.places)


def test_constants_bound_to_a_variable_are_constants() -> None:
    def build(builder: Any, x: Any) -> Any:
        return op.nn.conv2d(x, builder.emit(W), padding=1)

    assert found(build).operands["weight"].same_as(W) or found(build).operands["weight"].ty.ndim == 4
    partitioned = front.partition_for_sramtile(graphs.module([X], build))
    (region,) = front.regions(partitioned)
    assert [tensor.name for tensor in region.region.inputs] == ["data"]


ROWS = tirx.Var("n", "int64")


@pytest.mark.parametrize(
    ("params", "attrs", "reason"),
    [
        (
            [graphs.tensor("x", 1, 4, 6, 5), graphs.tensor("w", 4, 4, 3, 3)],
            {"out_layout": "NHWC"},
            "out_layout = 'NHWC': the accelerator takes that of data, 'NCHW'",
        ),
        (
            [graphs.tensor("x", 1, 4, 6, 5, dtype="float16"), graphs.tensor("w", 4, 4, 3, 3, dtype="float16")],
            {},
            "dtype float16 of data: the accelerator takes float32",
        ),
        (
            [graphs.tensor("x", 1, 4, 6, 5, dtype="int8"), graphs.tensor("w", 4, 4, 3, 3, dtype="int8")],
            {"out_dtype": "int32"},
            "out_dtype = 'int32': the accelerator takes the dtype of data, 'int8'",
        ),
        (
            [relax.Var("x", R.Tensor((ROWS, 4, 6, 5), "float32")), graphs.tensor("w", 4, 4, 3, 3)],
            {},
            "shape of data = (n, 4, 6, 5): the accelerator takes static shapes",
        ),
        (
            [relax.Var("x", R.Tensor(ndim=4, dtype="float32")), graphs.tensor("w", 4, 4, 3, 3)],
            {},
            "shape of data = unknown: the accelerator takes static shapes",
        ),
        (
            [graphs.tensor("x", 4, 6, 5, 1), graphs.tensor("w", 4, 4, 3, 3)],
            {"data_layout": "CHWN"},
            "data_layout = 'CHWN': the accelerator takes 'NCHW' and 'NHWC'",
        ),
    ],
    ids=["out_layout", "float16", "out_dtype", "dynamic", "unknown", "data_layout"],
)
def test_refusals_name_the_attribute_and_its_value(params: list[Any], attrs: dict[str, Any], reason: str) -> None:
    mod = graphs.module(params, lambda b, *args: b.emit(op.nn.conv2d(*args, **attrs), "c"))
    partitioned = front.partition_for_sramtile(mod)
    assert front.regions(partitioned) == ()
    assert graphs.equal(partitioned["main"], mod["main"])
    assert [(o.op, o.name, o.reason) for o in front.host_ops(partitioned)] == [("nn.conv2d", "c", reason)]
    for run in (front.partition_for_sramtile, lambda *args: front.PartitionForSramtile(*args[1:])(args[0])):
        with pytest.raises(UnsupportedOp) as caught:
            run(mod, None, Options(on_refusal="error"))
        assert str(caught.value) == f"conv2d c: {reason}"


def test_other_convolutions_are_other_operators() -> None:
    x, w = graphs.tensor("x", 1, 4, 6), graphs.tensor("w", 4, 4, 3)
    mod = graphs.module([x, w], lambda _, a, b: op.nn.conv1d(a, b))
    (only,) = front.host_ops(front.partition_for_sramtile(mod))
    assert (only.op, only.reason) == ("nn.conv1d", "no unit of the accelerator computes it")
