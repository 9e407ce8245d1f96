"""Functions of single elements: elementwise operators, and what follows any operator in its step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import relax

from tvm_sramtile.geometry import Elementwise
from tvm_sramtile.ints import Range
from tvm_sramtile.ir import Activation, Clip
from tvm_sramtile.plan import Chunk
from tvm_sramtile.relax.emit.site import Site

_BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": relax.op.add,
    "subtract": relax.op.subtract,
    "reverse_subtract": lambda value, other: relax.op.subtract(other, value),
    "multiply": relax.op.multiply,
    "divide": relax.op.divide,
    "reverse_divide": lambda value, other: relax.op.divide(other, value),
    "maximum": relax.op.maximum,
    "minimum": relax.op.minimum,
}
_UNARY: Mapping[str, Callable[[Any], Any]] = {
    "sigmoid": relax.op.sigmoid,
    "tanh": relax.op.tanh,
    "exp": relax.op.exp,
    "sqrt": relax.op.sqrt,
    "abs": relax.op.abs,
    "negative": relax.op.negative,
    "silu": relax.op.nn.silu,
}


def elementwise(site: Site, op: Elementwise, chunk: Chunk | None = None) -> Any:
    """The operator, or a chunk of it."""
    parts = {} if chunk is None else {"C": chunk.channels, "H": chunk.row.out, "W": chunk.col.out}
    value = site.map(site.step.data, parts)
    if op.partner == "none":
        return _alone(site, op.function, value, op.value, 0.0)
    if op.partner == "value":
        return _with_number(site, op.function, value, op.value)
    if site.step.other is None:
        raise ValueError(f"step {site.step.name}: its operator needs a partner")
    if op.partner == "vector":
        return _with_vector(site, op.function, value, site.step.other, parts.get("C", Range(0, op.channels)))
    return _with_map(site, op.function, value, site.map(site.step.other, parts))


def finished(site: Site, value: Any, channels: Range) -> Any:
    """What an operator yields for some channels, with its bias, its limits and its activations."""
    step = site.step
    if step.bias is not None:
        value = relax.op.add(site.out.leaf(value), site.vector(step.bias, channels))
    if step.clip is not None:
        value = _clipped(site, value, step.clip)
    for activation in step.activations:
        value = _activated(site, value, activation, channels)
    return value


def _activated(site: Site, value: Any, activation: Activation, channels: Range) -> Any:
    function, value = activation.function, site.out.leaf(value)
    if activation.vector is not None:
        return _with_vector(site, function, value, activation.vector, channels)
    if activation.partner == "value":
        return _with_number(site, function, value, activation.value0)
    return _alone(site, function, value, activation.value0, activation.value1)


def _with_map(site: Site, function: str, value: Any, other: Any) -> Any:
    if function != "prelu":
        return _BINARY[function](value, other)
    negative = site.out.emit(relax.op.multiply(value, other))
    return relax.op.where(site.out.emit(relax.op.greater(value, site.number(0.0))), value, negative)


def _with_vector(site: Site, function: str, value: Any, vector: Any, channels: Range) -> Any:
    if function == "prelu":
        return relax.op.nn.prelu(value, site.flat_vector(vector, channels), axis=site.axis("C"))
    return _BINARY[function](value, site.vector(vector, channels))


def _with_number(site: Site, function: str, value: Any, number: float) -> Any:
    if function == "prelu":
        return relax.op.nn.leakyrelu(value, number)
    return _BINARY[function](value, site.number(number))


def _alone(site: Site, function: str, value: Any, value0: float, value1: float) -> Any:
    if function == "copy":
        return value
    if function == "clip":
        return _clipped(site, value, Clip(value0, value1))
    if function == "leaky_relu":
        return relax.op.nn.leakyrelu(value, value0)
    if function == "hard_swish":
        raised = site.out.emit(relax.op.add(value, site.number(3.0)))
        gate = site.out.emit(relax.op.clip(raised, relax.prim_value(0.0), relax.prim_value(6.0)))
        return relax.op.divide(site.out.emit(relax.op.multiply(value, gate)), site.number(6.0))
    return _UNARY[function](value)


def _clipped(site: Site, value: Any, clip: Clip) -> Any:
    low, high = clip.low, clip.high
    value = site.out.leaf(value)
    if low is not None and high is not None:
        return relax.op.clip(value, relax.prim_value(low), relax.prim_value(high))
    if low is not None:
        return relax.op.nn.relu(value) if low == 0 else relax.op.maximum(value, site.number(low))
    return value if high is None else relax.op.minimum(value, site.number(high))
