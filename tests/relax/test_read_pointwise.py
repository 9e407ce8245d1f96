"""Elementwise operators and gates: what steps they become, what is refused and why."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import relax_graphs as graphs
from relax_reading import GATES, X, all_found, functions, number, refusal_of, step_of, swish
from tvm import relax
from tvm.relax import op

from tvm_sramtile.geometry import Elementwise


@pytest.mark.parametrize(
    ("apply", "function", "reverse"),
    [
        (op.add, "add", "add"),
        (op.subtract, "subtract", "reverse_subtract"),
        (op.multiply, "multiply", "multiply"),
        (op.divide, "divide", "reverse_divide"),
        (op.maximum, "maximum", "maximum"),
        (op.minimum, "minimum", "minimum"),
    ],
)
def test_operators_of_two(apply: Any, function: str, reverse: str) -> None:
    y, v = graphs.tensor("y", 1, 5, 7, 6), graphs.tensor("v", 5, 1, 1)
    for build, name, partner, value in (
        (lambda b, x, y, v: apply(x, y), function, "map", 0.0),
        (lambda b, x, y, v: apply(x, x), function, "map", 0.0),
        (lambda b, x, y, v: apply(x, v), function, "vector", 0.0),
        (lambda b, x, y, v: apply(v, x), reverse, "vector", 0.0),
        (lambda b, x, y, v: apply(x, number(0.75)), function, "value", 0.75),
        (lambda b, x, y, v: apply(number(0.75, 1, 1), x), reverse, "value", 0.75),
    ):
        assert step_of(build, X, y, v).op == Elementwise(5, 7, 6, name, partner, value)


def test_a_vector_tells_where_the_channels_are() -> None:
    step = step_of(lambda b, x: op.multiply(x, graphs.literal(1, 5)), graphs.tensor("x", 1, 7, 6, 5))
    assert step.op == Elementwise(5, 7, 6, "multiply", "vector")
    assert step.data.layout == "NHWC"


@pytest.mark.parametrize(
    ("shape", "text"),
    [((), "()"), ((7, 1), "(7, 1)"), ((2, 5, 1, 1), "(2, 5, 1, 1)"), ((1, 5, 7, 6), "(1, 5, 7, 6)")],
)
def test_other_partners_are_refused(shape: tuple[int, ...], text: str) -> None:
    x = graphs.tensor("x", 2, 5, 7, 6)
    reason = (
        f"shape of other = {text} beside (2, 5, 7, 6): the accelerator takes the same shape, one value a channel, or a "
        "constant number"
    )
    assert refusal_of(lambda b, x, y: op.multiply(x, y), x, graphs.tensor("y", *shape)) == reason


def test_operands_that_broadcast_each_other_are_refused() -> None:
    x, y = graphs.tensor("x", 1, 5, 7, 1), graphs.tensor("y", 1, 1, 7, 6)
    reason = "shapes (1, 5, 7, 1) and (1, 1, 7, 6): the accelerator takes one of the result's shape"
    assert refusal_of(lambda b, x, y: op.add(x, y), x, y) == reason


def test_a_number_that_is_none_is_refused() -> None:
    assert refusal_of(lambda b, x: op.add(x, number(np.inf))) == "constant inf: the accelerator takes finite ones"


@pytest.mark.parametrize(
    ("apply", "function", "values"),
    [
        (op.nn.relu, "clip", (0.0, np.inf)),
        (lambda v: op.clip(v, relax.prim_value(-1.0), relax.prim_value(2)), "clip", (-1.0, 2.0)),
        (lambda v: op.nn.leakyrelu(v, 0.25), "leaky_relu", (0.25, 0.0)),
        (op.sigmoid, "sigmoid", (0.0, 0.0)),
        (op.tanh, "tanh", (0.0, 0.0)),
        (op.exp, "exp", (0.0, 0.0)),
        (op.sqrt, "sqrt", (0.0, 0.0)),
        (op.abs, "abs", (0.0, 0.0)),
        (op.negative, "negative", (0.0, 0.0)),
        (op.nn.silu, "silu", (0.0, 0.0)),
    ],
)
def test_operators_of_one(apply: Any, function: str, values: tuple[float, float]) -> None:
    for build, first in (
        (lambda b, x: apply(x), Elementwise(5, 7, 6, "copy")),
        (lambda b, x: apply(b.emit(op.add(x, x))), Elementwise(5, 7, 6, "add", "map")),
    ):
        step = step_of(build)
        assert step.op == first
        assert [(a.function, a.value0, a.value1) for a in step.activations] == [(function, *values)]


@pytest.mark.parametrize(("layout", "axis"), [("NCHW", 1), ("NHWC", 3)])
def test_prelu(layout: str, axis: int) -> None:
    extents = {"N": 1, "C": 5, "H": 7, "W": 6}
    x = graphs.tensor("x", *(extents[letter] for letter in layout))
    step = step_of(lambda b, x: op.nn.prelu(x, graphs.literal(1, 5), axis), x)
    assert step.data.layout == layout
    assert step.op == Elementwise(5, 7, 6, "prelu", "vector")


def test_maps_of_other_ranks() -> None:
    for shape, expected in (((7, 5), (5, 1, 7)), ((2, 7, 5), (5, 2, 7))):
        assert step_of(lambda b, x: op.sigmoid(x), graphs.tensor("x", *shape)).op == Elementwise(*expected, "copy")
    x = graphs.tensor("x", 1, 2, 3, 4, 5)
    reason = "shape = (1, 2, 3, 4, 5): the accelerator takes maps of 2 to 4 axes"
    assert refusal_of(lambda b, x: op.sigmoid(x), x) == reason


# Gates: a map times a function of itself.


@pytest.mark.parametrize(("gate", "function"), GATES)
def test_gates_are_one_activation(gate: Any, function: str) -> None:
    pooled = step_of(lambda b, x: gate(b, b.emit(op.nn.max_pool2d(x, 2))))
    assert functions(pooled) == [function]
    alone = step_of(lambda b, x: gate(b, x))
    assert alone.op == Elementwise(5, 7, 6, "copy")
    assert functions(alone) == [function]


def test_a_gate_that_is_nearly_a_hard_swish_is_taken_step_by_step() -> None:
    def build(builder: Any, x: Any) -> Any:
        gate = builder.emit(op.add(builder.emit(op.multiply(number(0.2), x)), number(0.5)))
        return op.multiply(x, builder.emit(op.clip(gate, relax.prim_value(0.0), relax.prim_value(1.0))))

    first, second = all_found(build)
    assert [first.kind, second.kind] == ["multiply", "multiply"]
    assert first.step is not None
    assert functions(first.step) == ["add", "clip"]


def test_a_gated_value_with_another_use_stays() -> None:
    def build(builder: Any, x: Any) -> Any:
        value = builder.emit(op.nn.max_pool2d(x, 2))
        return relax.Tuple([builder.emit(swish(builder, value)), value])

    pool, gate = all_found(build)
    assert pool.step is not None
    assert gate.step is not None
    assert (functions(pool.step), functions(gate.step)) == ([], ["silu"])
