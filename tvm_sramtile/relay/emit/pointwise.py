"""Functions of single elements: elementwise operators, and what follows any operator in its step."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm import relay

from tvm_sramtile.geometry import Elementwise
from tvm_sramtile.ints import Range
from tvm_sramtile.ir import Activation, Clip, Tensor
from tvm_sramtile.plan import Chunk
from tvm_sramtile.relay.emit.site import Site
from tvm_sramtile.relay.graph import Node

_BINARY: Mapping[str, Callable[[Node, Node], Node]] = {
    "add": relay.add,
    "subtract": relay.subtract,
    "reverse_subtract": lambda value, other: relay.subtract(other, value),
    "multiply": relay.multiply,
    "divide": relay.divide,
    "reverse_divide": lambda value, other: relay.divide(other, value),
    "maximum": relay.maximum,
    "minimum": relay.minimum,
}
_UNARY: Mapping[str, Callable[[Node], Node]] = {
    "copy": lambda value: value,
    "sigmoid": relay.sigmoid,
    "tanh": relay.tanh,
    "exp": relay.exp,
    "sqrt": relay.sqrt,
    "abs": relay.abs,
    "negative": relay.negative,
    "silu": lambda value: relay.multiply(value, relay.sigmoid(value)),
}


def elementwise(site: Site, op: Elementwise, chunk: Chunk | None = None) -> Node:
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


def finished(site: Site, value: Node, channels: Range) -> Node:
    """What an operator yields for some channels, with its bias, its limits and its activations."""
    step = site.step
    if step.bias is not None:
        # One-dimensional: along the channels in `bias_add`, but along the last axis in `add`.
        if len(step.bias.shape) == 1:
            value = relay.nn.bias_add(value, site.flat_vector(step.bias, channels), axis=site.axis("C"))
        else:
            value = relay.add(value, site.vector(step.bias, channels))
    if step.clip is not None:
        value = _clipped(site, value, step.clip)
    for activation in step.activations:
        value = _activated(site, value, activation, channels)
    return value


def _activated(site: Site, value: Node, activation: Activation, channels: Range) -> Node:
    function = activation.function
    if activation.vector is not None:
        return _with_vector(site, function, value, activation.vector, channels)
    if activation.partner == "value":
        return _with_number(site, function, value, activation.value0)
    return _alone(site, function, value, activation.value0, activation.value1)


def _with_map(site: Site, function: str, value: Node, other: Node) -> Node:
    if function != "prelu":
        return _BINARY[function](value, other)
    return relay.where(relay.greater(value, site.number(0.0)), value, relay.multiply(value, other))


def _with_vector(site: Site, function: str, value: Node, vector: Tensor, channels: Range) -> Node:
    if function == "prelu":
        return relay.nn.prelu(value, site.flat_vector(vector, channels), axis=site.axis("C"))
    return _BINARY[function](value, site.vector(vector, channels))


def _with_number(site: Site, function: str, value: Node, number: float) -> Node:
    if function == "prelu":
        return relay.nn.leaky_relu(value, number)
    return _BINARY[function](value, site.number(number))


def _alone(site: Site, function: str, value: Node, value0: float, value1: float) -> Node:
    if function == "clip":
        return _clipped(site, value, Clip(value0, value1))
    if function == "leaky_relu":
        return relay.nn.leaky_relu(value, value0)
    if function == "hard_swish":
        gate = relay.clip(relay.add(value, site.number(3.0)), 0.0, 6.0)
        return relay.divide(relay.multiply(value, gate), site.number(6.0))
    return _UNARY[function](value)


def _clipped(site: Site, value: Node, clip: Clip) -> Node:
    low, high = clip.low, clip.high
    if low == 0 and high in (None, float("inf")):
        return relay.nn.relu(value)
    if low is not None and high is not None:
        return relay.clip(value, low, high)
    if low is not None:
        return relay.maximum(value, site.number(low))
    return value if high is None else relay.minimum(value, site.number(high))
