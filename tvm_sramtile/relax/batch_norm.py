"""Batch norm: after a convolution folded into its weights and a bias, elsewhere a product and a sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from tvm_sramtile.relax.access import constant_value, dtype_of, is_constant, op_name, static_shape
from tvm_sramtile.relax.emit import Emitter
from tvm_sramtile.relax.read import bias_of
from tvm_sramtile.relax.walk import Place, Uses, blocks_of, identity, rebuild

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Folding:
    """A convolution with a bias in place of a convolution and a batch norm.

    Attributes:
        dropped: bindings that go.
        conv: the call that is replaced.
        weight, bias: the new operands.
    """

    dropped: tuple[Place, ...]
    conv: Any
    weight: Any
    bias: Any


def fold_batch_norm(function: relax.Function) -> relax.Function:
    """Each ``conv2d``, constant bias and inference ``batch_norm`` in a row becomes one ``conv2d`` and one ``add``.

    Only where that changes nothing: the weight and all of the statistics are literals, the normalisation uses the
    statistics it is given (``training=False``), and no value between has another use. (TVM's own
    ``FoldBatchnormToConv2D`` looks at neither, nor at ``center`` and ``scale``.) NCHW, OIHW, float32.
    """
    if not any(_is_batch_norm(binding) for block in blocks_of(function.body) for binding in block.bindings):
        return function
    uses = Uses.of(function)
    foldings: dict[Place, _Folding] = {}
    for block in blocks_of(function.body):
        for position, binding in enumerate(block.bindings):
            if _is_batch_norm(binding):
                foldings |= _folding(block, position, uses)
    return _with_replacements(function, foldings, _folded)


def open_batch_norm(function: relax.Function) -> relax.Function:
    """Each inference ``batch_norm`` that is left becomes a ``multiply`` and an ``add`` with one value a channel.

    The two vectors are literals where all statistics are, else they are computed from them, in float32.
    """
    norms = [
        (block, position)
        for block in blocks_of(function.body)
        for position, binding in enumerate(block.bindings)
        if _is_batch_norm(binding)
    ]
    if not norms:
        return function
    uses = Uses.of(function)
    openings: dict[Place, _Opening] = {}
    for block, position in norms:
        norm = block.bindings[position].value
        result = _result_places(block, position, uses)
        shape = static_shape(norm.args[0])
        if result is None or shape is None or bool(getattr(norm.attrs, "training", False)):
            continue
        shown, *unused = result
        dropped = tuple((identity(block), at) for at in (position, *unused))
        openings[identity(block), shown] = _Opening(dropped, norm, tuple(uses.literal(part) for part in norm.args[1:]))
    return _with_replacements(function, openings, _opened)


@dataclass(frozen=True, slots=True)
class _Opening:
    """A batch norm to be written as a product and a sum.

    Attributes:
        dropped: bindings that go.
        norm: the call.
        statistics: gamma, beta, mean and variance.
    """

    dropped: tuple[Place, ...]
    norm: Any
    statistics: tuple[Any, ...]


_Replaced = TypeVar("_Replaced", _Folding, _Opening)


def _with_replacements(
    function: relax.Function, found: Mapping[Place, _Replaced], emit: Callable[[_Replaced, Emitter], Any]
) -> relax.Function:
    """The function with what ``emit`` yields bound where a norm's value was."""
    if not found:
        return function
    dropped = {place for replaced in found.values() for place in replaced.dropped}

    def rewrite(block: Any, position: int, dataflow: bool) -> list[Any] | None:
        place = (identity(block), position)
        if place not in found:
            return [] if place in dropped else None
        var = block.bindings[position].var
        out = Emitter(str(var.name), dataflow=dataflow)
        out.bind(var, emit(found[place], out))
        return out.bindings

    return rebuild(function, rewrite)


def _is_batch_norm(binding: Any) -> bool:
    return isinstance(binding, relax.VarBinding) and op_name(binding.value) == "relax.nn.batch_norm"


def _folding(block: Any, position: int, uses: Uses) -> dict[Place, _Folding]:
    """The folding of the batch norm at ``position``, by the place of the value that it yields, if there is one."""
    norm = block.bindings[position].value
    statistics = [uses.literal(argument) for argument in norm.args[1:]]
    result = _result_places(block, position, uses)
    if bool(getattr(norm.attrs, "training", False)) or int(norm.attrs.axis) != 1 or result is None:
        return {}
    if not all(is_constant(value) for value in statistics):
        return {}
    source = _source(block, position, norm.args[0], uses)
    if source is None:
        return {}
    places, conv, weight, bias = source
    scale, shift = _scale_and_shift(norm.attrs, *(constant_value(value) for value in statistics))
    new_weight = np.asarray(constant_value(weight), np.float64) * scale.reshape(-1, 1, 1, 1)
    new_bias = bias * scale + shift
    if not (np.isfinite(new_weight).all() and np.isfinite(new_bias).all()):
        return {}
    shown, *unused = result
    dropped = tuple((identity(block), at) for at in (*places, position, *unused))
    constants = (
        relax.const(new_weight.astype(np.float32), "float32"),
        relax.const(new_bias.astype(np.float32).reshape(1, -1, 1, 1), "float32"),
    )
    return {(identity(block), shown): _Folding(dropped, conv, *constants)}


def _scale_and_shift(attrs: Any, gamma: Any, beta: Any, mean: Any, variance: Any) -> tuple[Array, Array]:
    """The normalisation as ``value * scale + shift``, a channel each."""
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 1 / np.sqrt(variance.astype(np.float64) + float(attrs.epsilon))
        scale = scale * gamma if attrs.scale else scale
        shift = -mean * scale
    return scale, shift + beta if attrs.center else shift


def _result_places(block: Any, position: int, uses: Uses) -> Sequence[int] | None:
    """Where the first of the three results is taken, then where the others are, if nothing uses those.

    ``None`` where the tuple is used in another way.
    """
    tuple_var = block.bindings[position].var
    first: list[int] = []
    others: list[int] = []
    for at in range(position + 1, len(block.bindings)):
        binding = block.bindings[at]
        value = getattr(binding, "value", None)
        if isinstance(value, relax.TupleGetItem) and identity(value.tuple_value) == identity(tuple_var):
            if int(value.index) == 0:
                first.append(at)
            elif uses.count[identity(binding.var)]:
                return None
            else:
                others.append(at)
    if len(first) != 1 or uses.count[identity(tuple_var)] != 1 + len(others):
        return None
    return [*first, *others]


def _source(block: Any, position: int, data: Any, uses: Uses) -> tuple[list[int], Any, Any, Array] | None:
    """The convolution that yields ``data``: places to drop, its call, its weight, and its bias (zeros without one)."""
    places: list[int] = []
    bias: Array | None = None
    value, user = data, position
    for _ in range(2):
        at = _defined_at(block, value)
        if at is None or uses.sole_consumer(value, block) != user:
            return None
        places.append(at)
        call = block.bindings[at].value
        if op_name(call) == "relax.nn.conv2d":
            weight = uses.literal(call.args[1])
            if not _is_foldable(call, weight):
                return None
            return places, call, weight, np.zeros(static_shape(weight)[0]) if bias is None else bias  # type: ignore[index]
        found = _constant_addend(call, uses)
        if found is None:
            return None
        (value, bias), user = found, at
    return None


def _defined_at(block: Any, value: Any) -> int | None:
    for at, binding in enumerate(block.bindings):
        if identity(binding.var) == identity(value) and isinstance(binding, relax.VarBinding):
            return at
    return None


def _constant_addend(call: Any, uses: Uses) -> tuple[Any, Array] | None:
    """The value that a constant of one element a channel is added to, and that constant."""
    if op_name(call) != "relax.add":
        return None
    for value in call.args:
        shape = static_shape(value)
        if shape is None or len(shape) != 4 or is_constant(uses.literal(value)):
            continue
        other = bias_of(call, value, shape[1])
        other = None if other is None else uses.literal(other)
        if other is not None and is_constant(other):
            return value, constant_value(other).astype(np.float64).reshape(-1)
    return None


def _is_foldable(call: Any, weight: Any) -> bool:
    layouts = (call.attrs.data_layout, call.attrs.kernel_layout, call.attrs.out_layout or "NCHW")
    return (
        is_constant(weight)
        and tuple(str(layout) for layout in layouts) == ("NCHW", "OIHW", "NCHW")
        and {dtype_of(call), dtype_of(weight), dtype_of(call.args[0])} == {"float32"}
    )


def _folded(folding: _Folding, out: Emitter) -> Any:
    conv = relax.Call(folding.conv.op, [folding.conv.args[0], folding.weight], folding.conv.attrs)
    return relax.op.add(out.emit(conv), folding.bias)


def _opened(opening: _Opening, out: Emitter) -> Any:
    data, attrs = opening.norm.args[0], opening.norm.attrs
    rank = len(static_shape(data) or ())
    axis = int(attrs.axis) % rank
    scale, shift = _literals(opening) or _vectors(opening, out)
    shape = [-1 if at == axis else 1 for at in range(rank)]
    scale, shift = (_reshaped(part, shape, out) for part in (scale, shift))
    return relax.op.add(out.emit(relax.op.multiply(data, scale)), shift)


def _literals(opening: _Opening) -> tuple[Any, Any] | None:
    if not all(is_constant(value) and dtype_of(value) == "float32" for value in opening.statistics):
        return None
    parts = _scale_and_shift(opening.norm.attrs, *(constant_value(value) for value in opening.statistics))
    scale, shift = (relax.const(np.asarray(part, np.float32), "float32") for part in parts)
    return scale, shift


def _vectors(opening: _Opening, out: Emitter) -> tuple[Any, Any]:
    gamma, beta, mean, variance = opening.statistics
    attrs, op = opening.norm.attrs, relax.op
    spread = out.emit(op.add(variance, relax.const(float(attrs.epsilon), dtype_of(variance))))
    root = out.emit(op.sqrt(spread))
    one = gamma if attrs.scale else relax.const(1.0, dtype_of(variance))
    scale = out.emit(op.divide(one, root))
    moved = out.emit(op.multiply(mean, scale))
    zero = beta if attrs.center else relax.const(0.0, dtype_of(variance))
    return scale, out.emit(op.subtract(zero, moved))


def _reshaped(vector: Any, shape: Sequence[int], out: Emitter) -> Any:
    if is_constant(vector):
        return relax.const(constant_value(vector).reshape(shape), dtype_of(vector))
    return out.emit(relax.op.reshape(vector, tuple(shape)))
