"""Readers of elementwise operators: alone they are steps, after another operator they are its epilogue."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm_sramtile.geometry import Elementwise
from tvm_sramtile.geometry.elementwise import Function
from tvm_sramtile.ir import Clip
from tvm_sramtile.relax.access import (
    constant_value,
    dtype_of,
    is_constant,
    number_of,
    op_name,
    shape_text,
    static_shape,
)
from tvm_sramtile.relax.reading import (
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
from tvm_sramtile.relax.walk import Uses, identity

# By operator: the function where the map is the first operand, and where it is the second.
_BINARY: dict[str, tuple[Function, Function]] = {
    "relax.add": ("add", "add"),
    "relax.subtract": ("subtract", "reverse_subtract"),
    "relax.multiply": ("multiply", "multiply"),
    "relax.divide": ("divide", "reverse_divide"),
    "relax.maximum": ("maximum", "maximum"),
    "relax.minimum": ("minimum", "minimum"),
}
_UNARY: dict[str, Function] = {
    "relax.sigmoid": "sigmoid",
    "relax.tanh": "tanh",
    "relax.exp": "exp",
    "relax.sqrt": "sqrt",
    "relax.abs": "abs",
    "relax.negative": "negative",
    "relax.nn.silu": "silu",
}


def read_binary(call: Any, scene: Scene) -> Reading:
    """An operator of two operands: a map, and a map like it, one value a channel, or a literal number."""
    shape = static_shape(call)
    first, second = (scene.uses.literal(argument) for argument in call.args)
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


def read_unary(call: Any, scene: Scene) -> Reading:
    """An operator of one map."""
    data = call.args[0]
    check_operands(call, {"data": data})
    layout = _prelu_layout(call, len(static_shape(data) or ())) or scene.layout_of(data)
    pointwise = pointwise_of(call, data, layout, scene.uses)
    if pointwise is None:
        raise RefusedError(f"{op_name(call).rpartition('.')[2]} of {shape_text(data)}: its parameters are no numbers")
    return _reading(pointwise, data, layout)


def _prelu_layout(call: Any, rank: int) -> str | None:
    """The layout whose channels are the axis that a prelu names, where the map has four axes."""
    if op_name(call) != "relax.nn.prelu":
        return None
    return {(4, 1): CHANNELS_FIRST, (4, 3): CHANNELS_LAST}.get((rank, int(call.attrs.axis) % rank))


def _reading(pointwise: Pointwise, data: Any, layout: str) -> Reading:
    source = extents(data, layout)
    channels, rows, cols = (source[letter] for letter in "CHW")
    if pointwise.partner == "none":
        op = Elementwise(channels, rows, cols, "copy")
        return Reading(op, data, layout, layout, activations=(pointwise,))
    op = Elementwise(channels, rows, cols, pointwise.function, pointwise.partner, pointwise.value0)
    return Reading(op, data, layout, layout, other=pointwise.other)


def pointwise_of(call: Any, value: Any, layout: str, uses: Uses) -> Pointwise | None:
    """What ``call`` does to each element of the map ``value``; ``None`` where that is no function we have."""
    name = op_name(call)
    if name in _BINARY:
        other = other_operand(call, value)
        if other is None:
            return None
        function = _BINARY[name][0 if identity(call.args[0]) == identity(value) else 1]
        try:
            return _with_partner(function, value, uses.literal(other), layout)
        except RefusedError:
            return None
    if not name or identity(call.args[0]) != identity(value):
        return None
    if name in _UNARY:
        return Pointwise(_UNARY[name])
    reader = _PARAMETERISED.get(name)
    return None if reader is None else reader(call, value, layout, uses)


def _with_partner(function: Function, data: Any, other: Any, layout: str) -> Pointwise:
    """The function with its second operand: a number, a vector or a map."""
    channels = extents(data, layout)["C"]
    rank = len(static_shape(data) or ())
    if dtype_of(other) != dtype_of(data):
        raise RefusedError(f"dtype of other = {dtype_of(other)}: the accelerator takes that of data, {dtype_of(data)}")
    if is_number(other):
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


def other_operand(call: Any, value: Any) -> Any:
    """The operand of a call of two beside ``value``; ``None`` where ``value`` is none of them."""
    first, second = call.args
    if identity(first) == identity(value):
        return second
    return first if identity(second) == identity(value) else None


def _clip(call: Any, *_: Any) -> Pointwise | None:
    clip = limits(number_of(call.args[1]), number_of(call.args[2]))
    return None if clip is None else clip_pointwise(clip)


def _leakyrelu(call: Any, *_: Any) -> Pointwise:
    return Pointwise("leaky_relu", value0=float(call.attrs.alpha))


def _prelu(call: Any, value: Any, layout: str, uses: Uses) -> Pointwise | None:
    slopes = uses.literal(call.args[1])
    axis = int(call.attrs.axis) % len(layout)
    shape = static_shape(slopes)
    if layout[axis] != "C" or shape is None or shape != (extents(value, layout)["C"],):
        return None
    return Pointwise("prelu", "vector", slopes) if dtype_of(slopes) == dtype_of(value) else None


_PARAMETERISED: dict[str, Callable[..., Pointwise | None]] = {
    "relax.nn.relu": lambda *_: clip_pointwise(Clip(0.0, None)),
    "relax.clip": _clip,
    "relax.nn.leakyrelu": _leakyrelu,
    "relax.nn.prelu": _prelu,
}

BINARY_NAMES = tuple(_BINARY)
UNARY_NAMES = (*_UNARY, *_PARAMETERISED)


def bias_of(call: Any, value: Any, channels: int, layout: str = CHANNELS_FIRST) -> Any:
    """What ``call`` adds to each channel of ``value``: one element a channel and nothing else, else ``None``."""
    if op_name(call) != "relax.add":
        return None
    other = other_operand(call, value)
    if other is None or dtype_of(other) != dtype_of(value):
        return None
    return other if is_vector(other, layout, len(layout), channels) else None


def clip_of(call: Any, value: Any, literal: Callable[[Any], Any] = lambda expr: expr) -> Clip | None:
    """The limits that ``call`` puts on ``value``; ``None`` for any other call."""
    name = op_name(call)
    if name == "relax.nn.relu":
        return Clip(0.0, None)
    if name == "relax.clip":
        return limits(number_of(call.args[1]), number_of(call.args[2]))
    if name in ("relax.maximum", "relax.minimum"):
        other = other_operand(call, value)
        other = None if other is None else literal(other)
        if other is None or not is_constant(other) or constant_value(other).size != 1:
            return None
        number = number_of(other)
        return limits(number, math.inf) if name == "relax.maximum" else limits(-math.inf, number)
    return None


def limits(low: float | None, high: float | None) -> Clip | None:
    """A clip, where both limits are numbers and in order: what TVM makes of others is not ours to say."""
    if low is None or high is None or not low <= high or low == math.inf or high == -math.inf:
        return None
    return Clip(None if low == -math.inf else low, None if high == math.inf else high)


def clip_pointwise(clip: Clip) -> Pointwise:
    """A clip as an elementwise function."""
    low = -math.inf if clip.low is None else clip.low
    high = math.inf if clip.high is None else clip.high
    return Pointwise("clip", value0=low, value1=high)
