"""Readers of elementwise operators: alone they are steps, after another operator they are its epilogue."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tvm_sramtile.geometry import Elementwise
from tvm_sramtile.geometry.elementwise import Function
from tvm_sramtile.ir import Clip
from tvm_sramtile.relay.access import (
    constant_value,
    dtype_of,
    is_constant,
    op_name,
    shape_text,
    short_name,
    static_shape,
)
from tvm_sramtile.relay.graph import Graph, Node
from tvm_sramtile.relay.reading import (
    CHANNELS_FIRST,
    CHANNELS_LAST,
    Pointwise,
    Reading,
    RefusedError,
    Scene,
    check_operands,
    extents,
    is_number,
    is_vector,
)

# By operator: the function where the map is the first operand, and where it is the second.
_BINARY: dict[str, tuple[Function, Function]] = {
    "add": ("add", "add"),
    "subtract": ("subtract", "reverse_subtract"),
    "multiply": ("multiply", "multiply"),
    "divide": ("divide", "reverse_divide"),
    "maximum": ("maximum", "maximum"),
    "minimum": ("minimum", "minimum"),
}
_UNARY: dict[str, Function] = {
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "exp": "exp",
    "sqrt": "sqrt",
    "abs": "abs",
    "negative": "negative",
}


def read_binary(call: Node, scene: Scene) -> Reading:
    """An operator of two operands: a map, and a map like it, one value a channel, or a literal number."""
    shape = static_shape(call)
    first, second = (scene.graph.literal(argument) for argument in call.args)
    names = ("data", "other") if static_shape(first) == shape else ("other", "data")
    check_operands(call, dict(zip(names, (first, second), strict=True)))
    if shape not in (static_shape(first), static_shape(second)):
        raise RefusedError(
            f"shapes {shape_text(first)} and {shape_text(second)}: the accelerator takes one of the result's shape"
        )
    is_first = static_shape(first) == shape and not (is_number(first) and static_shape(second) == shape)
    data, other = (first, second) if is_first else (second, first)
    function = _BINARY[op_name(call)][0 if is_first else 1]
    reason = ""
    for layout in dict.fromkeys((scene.layout_of(data), *_layouts_of_rank(len(shape or ())))):
        try:
            pointwise = _with_partner(function, data, other, layout)
        except RefusedError as refusal:
            reason = reason or str(refusal)
            continue
        return _reading(pointwise, data, layout)
    raise RefusedError(reason)


def _layouts_of_rank(rank: int) -> tuple[str, ...]:
    """The layouts that an elementwise operator may be read with: whichever makes its partner a vector."""
    return (CHANNELS_FIRST, CHANNELS_LAST) if rank == 4 else ()


def read_unary(call: Node, scene: Scene) -> Reading:
    """An operator of one map."""
    data = call.args[0]
    check_operands(call, {"data": data})
    layout = _named_layout(call, len(static_shape(data) or ())) or scene.layout_of(data)
    pointwise = pointwise_of(call, data, layout, scene.graph)
    if pointwise is None:
        raise RefusedError(f"{short_name(call)} of {shape_text(data)}: the accelerator takes other parameters")
    return _reading(pointwise, data, layout)


def _named_layout(call: Node, rank: int) -> str | None:
    """The layout whose channels are the axis that a call names, where the map has four axes."""
    if op_name(call) not in ("nn.prelu", "nn.bias_add"):
        return None
    return {(4, 1): CHANNELS_FIRST, (4, 3): CHANNELS_LAST}.get((rank, int(call.attrs.axis) % rank))


def _reading(pointwise: Pointwise, data: Node, layout: str) -> Reading:
    source = extents(data, layout)
    channels, rows, cols = (source[letter] for letter in "CHW")
    if pointwise.partner == "none":
        op = Elementwise(channels, rows, cols, "copy")
        return Reading(op, data, layout, layout, activations=(pointwise,))
    op = Elementwise(channels, rows, cols, pointwise.function, pointwise.partner, pointwise.value0)
    return Reading(op, data, layout, layout, other=pointwise.other)


def pointwise_of(call: Node, value: Node, layout: str, graph: Graph) -> Pointwise | None:
    """What ``call`` does to each element of the map ``value``; ``None`` where that is no function we have."""
    name = op_name(call)
    if name in _BINARY:
        other = other_operand(call, value, graph)
        if other is None:
            return None
        function = _BINARY[name][0 if _is(call.args[0], value, graph) else 1]
        try:
            return _with_partner(function, value, graph.literal(other), layout)
        except RefusedError:
            return None
    if not name or not _is(call.args[0], value, graph):
        return None
    if name in _UNARY:
        return Pointwise(_UNARY[name])
    reader = _PARAMETERISED.get(name)
    return None if reader is None else reader(call, value, layout, graph)


def _with_partner(function: Function, data: Node, other: Node, layout: str) -> Pointwise:
    """The function with its second operand: a number, a vector or a map."""
    channels = extents(data, layout)["C"]
    rank = len(static_shape(data) or ())
    if dtype_of(other) != dtype_of(data):
        raise RefusedError(f"dtype of other = {dtype_of(other)}: the accelerator takes that of data, {dtype_of(data)}")
    if is_number(other) and len(static_shape(other) or ()) <= rank:
        number = float(constant_value(other).reshape(()))
        if not math.isfinite(number):
            raise RefusedError(f"constant {number}: the accelerator takes finite ones")
        return Pointwise(function, "value", None, number)
    if is_vector(other, layout, rank, channels):
        return Pointwise(function, "vector", other)
    if static_shape(other) == static_shape(data):
        return Pointwise(function, "map", other)
    raise RefusedError(
        f"shape of other = {shape_text(other)} beside {shape_text(data)}: the accelerator takes the same shape, one "
        "value a channel, or a constant number"
    )


def _is(node: Node, value: Node, graph: Graph) -> bool:
    """Whether two nodes stand for one value."""
    return bool(graph.resolve(node).same_as(graph.resolve(value)))


def other_operand(call: Node, value: Node, graph: Graph) -> Node | None:
    """The operand of a call of two beside ``value``; ``None`` where ``value`` is none of them."""
    first, second = call.args
    if _is(first, value, graph):
        return second
    return first if _is(second, value, graph) else None


def _clip(call: Node, *_: object) -> Pointwise | None:
    clip = limits(float(call.attrs.a_min), float(call.attrs.a_max))
    return None if clip is None else clip_pointwise(clip)


def _leaky_relu(call: Node, *_: object) -> Pointwise:
    return Pointwise("leaky_relu", value0=float(call.attrs.alpha))


def _prelu(call: Node, value: Node, layout: str, graph: Graph) -> Pointwise | None:
    return _along_channels("prelu", call, value, layout, graph)


def _bias_add(call: Node, value: Node, layout: str, graph: Graph) -> Pointwise | None:
    return _along_channels("add", call, value, layout, graph)


def _along_channels(function: Function, call: Node, value: Node, layout: str, graph: Graph) -> Pointwise | None:
    """A function whose second operand lies along an axis that the call names."""
    vector = graph.literal(call.args[1])
    axis = int(call.attrs.axis) % len(layout)
    if layout[axis] != "C" or static_shape(vector) != (extents(value, layout)["C"],):
        return None
    return Pointwise(function, "vector", vector) if dtype_of(vector) == dtype_of(value) else None


_PARAMETERISED: dict[str, Callable[..., Pointwise | None]] = {
    "nn.relu": lambda *_: clip_pointwise(Clip(0.0, None)),
    "clip": _clip,
    "nn.leaky_relu": _leaky_relu,
    "nn.prelu": _prelu,
    "nn.bias_add": _bias_add,
}

BINARY_NAMES = tuple(_BINARY)
UNARY_NAMES = (*_UNARY, *_PARAMETERISED)


def bias_of(call: Node, value: Node, channels: int, layout: str, graph: Graph) -> Node | None:
    """What ``call`` adds to each channel of ``value``: one element a channel and nothing else, else ``None``."""
    if op_name(call) == "nn.bias_add":
        found = pointwise_of(call, value, layout, graph)
        return None if found is None else found.other
    if op_name(call) != "add":
        return None
    other = other_operand(call, value, graph)
    if other is None or dtype_of(other) != dtype_of(value):
        return None
    return graph.literal(other) if is_vector(other, layout, len(layout), channels) else None


def clip_of(call: Node, value: Node, graph: Graph) -> Clip | None:
    """The limits that ``call`` puts on ``value``; ``None`` for any other call."""
    name = op_name(call)
    if name == "nn.relu":
        return Clip(0.0, None)
    if name == "clip":
        return limits(float(call.attrs.a_min), float(call.attrs.a_max))
    if name in ("maximum", "minimum"):
        other = other_operand(call, value, graph)
        other = None if other is None else graph.literal(other)
        if other is None or not is_constant(other) or constant_value(other).size != 1:
            return None
        number = float(constant_value(other).reshape(()))
        return limits(number, math.inf) if name == "maximum" else limits(-math.inf, number)
    return None


def limits(low: float, high: float) -> Clip | None:
    """A clip, where both limits are numbers and in order: what TVM makes of others is not ours to say."""
    low, high = float(np.float32(low)), float(np.float32(high))
    if not low <= high or low == math.inf or high == -math.inf:
        return None
    return Clip(None if low == -math.inf else low, None if high == math.inf else high)


def clip_pointwise(clip: Clip) -> Pointwise:
    """A clip as an elementwise function."""
    low = -math.inf if clip.low is None else clip.low
    high = math.inf if clip.high is None else clip.high
    return Pointwise("clip", value0=low, value1=high)
