"""How tests ask what the Relax front end reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import relax_graphs as graphs
from tvm import relax
from tvm.relax import op

from tvm_sramtile.ir import Step
from tvm_sramtile.relax.read import Found, find_steps

Build = Callable[..., Any]

X = graphs.tensor("x", 1, 5, 7, 6)


def number(value: float, *shape: int) -> Any:
    return relax.const(np.full(shape, value, "float32"), "float32")


def all_found(build: Build, *params: relax.Var) -> tuple[Found, ...]:
    return find_steps(graphs.module(list(params or (X,)), build)["main"])


def step_of(build: Build, *params: relax.Var) -> Step:
    (only,) = all_found(build, *params)
    assert only.step is not None, only.refusal
    return only.step


def refusal_of(build: Build, *params: relax.Var) -> str:
    (only,) = all_found(build, *params)
    assert only.steps == ()
    return only.refusal


def functions(step: Step) -> list[str]:
    return [activation.function for activation in step.activations]


def hard_gate(builder: Any, value: Any) -> Any:
    for apply in (
        lambda v: op.add(v, number(3.0)),
        lambda v: op.maximum(v, number(0.0)),
        lambda v: op.minimum(v, number(6.0)),
    ):
        value = builder.emit(apply(value))
    return value


def divided_last(builder: Any, value: Any) -> Any:
    return op.divide(builder.emit(op.multiply(value, hard_gate(builder, value))), number(6.0))


def divided_first(builder: Any, value: Any) -> Any:
    return op.multiply(builder.emit(op.divide(hard_gate(builder, value), number(6.0))), value)


def sixth(builder: Any, value: Any) -> Any:
    gate = builder.emit(op.add(builder.emit(op.multiply(number(1 / 6), value)), number(0.5)))
    gate = builder.emit(op.clip(gate, relax.prim_value(0.0), relax.prim_value(1.0)))
    return op.multiply(value, gate)


def swish(builder: Any, value: Any) -> Any:
    return op.multiply(value, builder.emit(op.sigmoid(value)))


GATES = [(divided_last, "hard_swish"), (divided_first, "hard_swish"), (sixth, "hard_swish"), (swish, "silu")]
