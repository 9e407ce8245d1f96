"""Somebody else's back end: a toy NPU that refuses large operators, which works once ``SplitOversized`` went before."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import relax_graphs as graphs
import tvm
import tvm_ffi
from toy_memory import CODEGEN, LIMIT_BYTES, TOLERANCE, WRONG_CHOICES, ToyMemory, check_where_cuts_may_go
from tvm import relax, te, topi
from tvm.relax import op
from tvm.relax.dpl import is_op, wildcard

from tvm_sramtile import relax as front
from tvm_sramtile.errors import OptionError

X = graphs.tensor("x", 2, 8, 20, 14)
INPUT = graphs.random(0, 2, 8, 20, 14)


# The toy's back end. It knows nothing of this package.


def map_bytes(*values: Any) -> int:
    return sum(4 * math.prod(int(extent) for extent in value.ty.shape.values) for value in values)


def takes(context: Any) -> bool:
    call = context.matched_expr
    return map_bytes(call, call.args[0]) <= LIMIT_BYTES


def partition_for_toy(mod: tvm.IRModule) -> tvm.IRModule:
    pattern = is_op("relax.nn.conv2d")(wildcard(), wildcard())
    fuse = relax.transform.FuseOpsByPattern(
        [(f"{CODEGEN}.conv2d", pattern, {}, takes)], bind_constants=False, annotate_codegen=True
    )
    return fuse(mod)


def generate(functions: Sequence[relax.Function], *_: Any) -> list[Any]:
    """One operator a function, computed by TVM."""
    return [convolution(str(function.attrs["global_symbol"]), function) for function in functions]


def convolution(name: str, function: relax.Function) -> Any:
    call = next(call for call in calls_in(function) if graphs.is_call(call, "nn.conv2d"))
    assert map_bytes(call, call.args[0]) <= LIMIT_BYTES, "the toy has no room for this"
    attrs = call.attrs
    data, weight = (te.placeholder([int(extent) for extent in arg.ty.shape.values], "float32") for arg in call.args)
    numbers = [[int(value) for value in values] for values in (attrs.strides, attrs.padding, attrs.dilation)]
    result = topi.nn.conv(data, weight, *numbers, int(attrs.groups), "NCHW", "OIHW", "float32")
    primitive = te.create_prim_func([data, weight, result]).with_attr("global_symbol", name)
    return tvm.compile(tvm.IRModule({name: primitive}), "llvm").mod


def calls_in(function: relax.Function) -> Iterator[relax.Call]:
    found: list[Any] = []
    relax.analysis.post_order_visit(function, lambda expr: found.append(expr) if isinstance(expr, relax.Call) else None)
    yield from found


tvm_ffi.register_global_func(f"relax.ext.{CODEGEN}", generate, override=True)


def on_the_toy(mod: tvm.IRModule) -> tuple[int, tuple[graphs.Array, ...]]:
    """How many operators the toy takes, and the results with it."""
    partitioned = partition_for_toy(mod)
    functions = graphs.functions_with(partitioned, "Codegen")
    taken = sum(name in functions for name in graphs.ops_of(partitioned))
    passes = [relax.transform.RunCodegen()] if taken else []
    return taken, graphs.run_plain(tvm.transform.Sequential(passes)(partitioned), INPUT)


def network() -> tvm.IRModule:
    w0, b0, w1, w2 = (
        graphs.literal(seed, *shape)
        for seed, shape in enumerate([(16, 8, 3, 3), (1, 16, 1, 1), (12, 8, 3, 2), (6, 12, 1, 1)], start=1)
    )

    def build(builder: Any, x: Any) -> Any:
        value = builder.emit(op.add(builder.emit(op.nn.conv2d(x, w0, padding=1)), b0))
        value = builder.emit(op.nn.max_pool2d(builder.emit(op.nn.relu(value)), 2, strides=2))
        value = builder.emit(op.nn.conv2d(value, w1, padding=(1, 2, 0, 1), dilation=(2, 1), groups=2))
        return op.nn.conv2d(value, w2, strides=2)

    return graphs.module([X], build)


def convolutions(mod: tvm.IRModule) -> list[tuple[int, ...]]:
    """The shapes of what convolutions yield."""
    return [tuple(map(int, c.ty.shape.values)) for c in calls_in(mod["main"]) if graphs.is_call(c, "nn.conv2d")]


def test_the_toy_alone_takes_one_of_three() -> None:
    taken, results = on_the_toy(network())
    assert (taken, len(convolutions(network()))) == (1, 3)
    graphs.assert_close(results, graphs.run_plain(network(), INPUT), TOLERANCE)


@pytest.mark.parametrize(
    ("choices", "capacity"),
    [
        ({}, ToyMemory()),
        ({}, ToyMemory(row_multiple=2, channel_multiple=4)),
        ({}, ToyMemory(unit_kernels=((1, 1), (2, 2)))),
        ({"axes": ("columns", "channels")}, ToyMemory()),
        ({"axes": ("rows", "columns")}, ToyMemory()),
    ],
)
def test_after_the_split_the_toy_takes_every_convolution(choices: dict[str, Any], capacity: ToyMemory) -> None:
    mod = network()
    split = front.SplitOversized(capacity, ops=["nn.conv2d"], **choices)(mod)
    assert front.SplitOversized(capacity, ops=["nn.conv2d"], **choices)(split).same_as(split)
    assert graphs.ops_of(split).count("nn.max_pool2d") == 1
    taken, results = on_the_toy(split)
    assert taken == len(convolutions(split)) > 3
    graphs.assert_close(results, graphs.run_plain(mod, INPUT), TOLERANCE)


def test_where_cuts_may_go() -> None:
    mod = graphs.module([X], lambda _, x: op.nn.conv2d(x, graphs.literal(1, 4, 8, 1, 1)))
    check_where_cuts_may_go(front, mod, convolutions, "gv")


@pytest.mark.parametrize(
    ("ops", "cut"),
    [
        (None, {"nn.conv2d", "nn.max_pool2d", "image.resize2d"}),
        (["nn.max_pool2d"], {"nn.max_pool2d"}),
        (["relax.image.resize2d", "multiply"], {"image.resize2d", "multiply"}),
        ([], set()),
    ],
)
def test_which_operators_are_looked_at(ops: list[str] | None, cut: set[str]) -> None:
    def build(builder: Any, x: Any) -> Any:
        value = builder.emit(op.nn.conv2d(x, graphs.literal(1, 8, 8, 3, 3), padding=1))
        value = builder.emit(op.nn.max_pool2d(value, 3, strides=1, padding=1))
        value = builder.emit(op.image.resize2d(value, (40, 28), method="nearest_neighbor"))
        return op.multiply(value, value)

    mod = graphs.module([X], build)
    split = front.SplitOversized(ToyMemory(), ops=ops)(mod)
    names = ("nn.conv2d", "nn.max_pool2d", "image.resize2d", "multiply")
    counts = {name: graphs.ops_of(split).count(name) for name in names}
    assert {name for name, count in counts.items() if count > 1} == cut
    graphs.assert_close(graphs.run_plain(split, INPUT), graphs.run_plain(mod, INPUT), 1e-4)


@pytest.mark.parametrize(
    ("capacity", "choices", "message"),
    [
        (ToyMemory(), {"ops": ["conv"]}, "option ops: 'conv' is no operator of Relax: they are named as nn.conv2d"),
        *WRONG_CHOICES,
    ],
)
def test_choices_that_are_wrong(capacity: Any, choices: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        front.SplitOversized(capacity, **choices)
    assert str(caught.value) == message
