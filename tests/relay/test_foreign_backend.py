"""Somebody else's back end: a toy NPU that refuses large operators, which works once ``SplitOversized`` went before."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import relay_graphs as graphs
import tvm
from relay_graphs import constant, tensor
from toy_memory import CODEGEN, LIMIT_BYTES, TOLERANCE, WRONG_CHOICES, ToyMemory, check_where_cuts_may_go
from tvm import relay, te, topi
from tvm.contrib import graph_executor

from tvm_sramtile import relay as front
from tvm_sramtile.errors import OptionError

TARGET = "llvm -mtriple=x86_64-unknown-linux-gnu"  # the wheel's own default is RISC-V
INPUT = graphs.random(0, 2, 8, 20, 14)
nn = relay.nn


# The toy's back end. It knows nothing of this package.


def shape_of(node: Any) -> tuple[int, ...]:
    return tuple(map(int, node.checked_type.shape))


def map_bytes(*nodes: Any) -> int:
    return sum(4 * math.prod(shape_of(node)) for node in nodes)


@tvm.ir.register_op_attr("nn.conv2d", f"target.{CODEGEN}")
def takes(call: Any) -> bool:
    return map_bytes(call, call.args[0]) <= LIMIT_BYTES


def partition_for_toy(mod: tvm.IRModule) -> tvm.IRModule:
    mark = relay.transform.AnnotateTarget(CODEGEN, include_non_call_ops=False)
    passes = [mark, relay.transform.PartitionGraph(bind_constants=False)]
    return tvm.transform.Sequential([*passes, relay.transform.InferType()])(mod)


@tvm.register_func(f"relay.ext.{CODEGEN}", override=True)
def generate(function: relay.Function) -> Any:
    """One operator a function, computed by TVM."""
    call = next(call for call in calls_in(function) if graphs.is_call(call, "nn.conv2d"))
    assert map_bytes(call, call.args[0]) <= LIMIT_BYTES, "the toy has no room for this"
    attrs = call.attrs
    data, weight = (te.placeholder(shape_of(arg), "float32") for arg in call.args)
    numbers = [[int(value) for value in values] for values in (attrs.strides, attrs.padding, attrs.dilation)]
    result = topi.nn.conv(data, weight, *numbers, int(attrs.groups), "NCHW", "OIHW", "float32")
    name = str(function.attrs["global_symbol"])
    primitive = te.create_prim_func([data, weight, result]).with_attr("global_symbol", name)
    return tvm.build(tvm.IRModule({name: primitive}), target=TARGET)


def calls_in(function: Any) -> Iterator[Any]:
    found: list[Any] = []
    relay.analysis.post_order_visit(
        function.body, lambda node: found.append(node) if isinstance(node, relay.Call) else None
    )
    yield from found


def run(mod: tvm.IRModule) -> tuple[graphs.Array, ...]:
    with tvm.transform.PassContext(opt_level=0):
        library = relay.build(mod, target=TARGET)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.run(x=tvm.nd.array(INPUT))
    return tuple(executor.get_output(at).numpy() for at in range(executor.get_num_outputs()))


def on_the_toy(mod: tvm.IRModule) -> tuple[int, tuple[graphs.Array, ...]]:
    """How many operators the toy takes, and the results with it."""
    partitioned = partition_for_toy(mod)
    functions = graphs.functions_with(partitioned, "Compiler")
    return sum(name in functions for name in graphs.ops_of(partitioned)), run(partitioned)


def one(build: Any) -> tvm.IRModule:
    x = tensor("x", *INPUT.shape)
    return graphs.module([x], build(x))


@cache
def network() -> tvm.IRModule:
    def build(x: Any) -> Any:
        value = relay.add(nn.conv2d(x, constant(1, 16, 8, 3, 3), padding=(1, 1)), constant(2, 1, 16, 1, 1))
        value = nn.max_pool2d(nn.relu(value), (2, 2), strides=(2, 2))
        value = nn.conv2d(value, constant(3, 12, 8, 3, 2), padding=(1, 2, 0, 1), dilation=(2, 1), groups=2)
        return nn.conv2d(value, constant(4, 6, 12, 1, 1), strides=(2, 2))

    return one(build)


@cache
def expected() -> tuple[graphs.Array, ...]:
    return run(network())


def convolutions(mod: tvm.IRModule) -> list[tuple[int, ...]]:
    """The shapes of what convolutions yield."""
    return [shape_of(call) for call in calls_in(mod["main"]) if graphs.is_call(call, "nn.conv2d")]


def test_the_toy_alone_takes_one_of_three() -> None:
    taken, results = on_the_toy(network())
    assert (taken, len(convolutions(network()))) == (1, 3)
    graphs.assert_close(results, expected(), TOLERANCE)


@pytest.mark.parametrize(
    ("choices", "capacity"),
    [
        ({}, ToyMemory()),
        ({}, ToyMemory(row_multiple=2, channel_multiple=4)),
        ({}, ToyMemory(unit_kernels=((1, 1), (3, 1), (3, 2)))),
        ({"axes": ("columns", "channels")}, ToyMemory()),
        ({"axes": ("rows", "columns")}, ToyMemory()),
    ],
)
def test_after_the_split_the_toy_takes_every_convolution(choices: dict[str, Any], capacity: ToyMemory) -> None:
    split = front.SplitOversized(capacity, ops=["nn.conv2d"], **choices)(network())
    assert graphs.equal(front.SplitOversized(capacity, ops=["nn.conv2d"], **choices)(split), split)
    assert graphs.ops_of(split).count("nn.max_pool2d") == 1
    taken, results = on_the_toy(split)
    assert taken == len(convolutions(split)) > 3
    graphs.assert_close(results, expected(), TOLERANCE)


def test_where_cuts_may_go() -> None:
    mod = one(lambda x: nn.conv2d(x, constant(1, 4, 8, 1, 1)))
    check_where_cuts_may_go(front, mod, convolutions, "conv2d_0")


@pytest.mark.parametrize(
    ("ops", "cut"),
    [
        (None, {"nn.conv2d", "nn.max_pool2d", "image.resize2d"}),
        (["nn.max_pool2d"], {"nn.max_pool2d"}),
        (["image.resize2d", "multiply"], {"image.resize2d", "multiply"}),
        ([], set()),
    ],
)
def test_which_operators_are_looked_at(ops: list[str] | None, cut: set[str]) -> None:
    def build(x: Any) -> Any:
        value = nn.conv2d(x, constant(1, 8, 8, 3, 3), padding=(1, 1))
        value = nn.max_pool2d(value, (3, 3), strides=(1, 1), padding=(1, 1))
        value = relay.image.resize2d(value, (40, 28), method="nearest_neighbor", rounding_method="round")
        return relay.multiply(value, value)

    mod = one(build)
    split = front.SplitOversized(ToyMemory(), ops=ops)(mod)
    names = ("nn.conv2d", "nn.max_pool2d", "image.resize2d", "multiply")
    counts = {name: graphs.ops_of(split).count(name) for name in names}
    assert {name for name, count in counts.items() if count > 1} == cut
    graphs.assert_close(run(split), run(mod), 1e-4)


@pytest.mark.parametrize(
    ("capacity", "choices", "message"),
    [
        (ToyMemory(), {"ops": ["conv"]}, "option ops: 'conv' is no operator of Relay: they are named as nn.conv2d"),
        *WRONG_CHOICES,
    ],
)
def test_choices_that_are_wrong(capacity: Any, choices: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        front.SplitOversized(capacity, **choices)
    assert str(caught.value) == message
