"""Batch norm after a convolution, folded into its weights and a bias."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
    dropped = {place for folding in foldings.values() for place in folding.dropped}

    def rewrite(block: Any, position: int, dataflow: bool) -> list[Any] | None:
        place = (identity(block), position)
        if place in foldings:
            return _replacement(foldings[place], block.bindings[position].var, dataflow)
        return [] if place in dropped else None

    return rebuild(function, rewrite) if foldings else function


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


def _replacement(folding: _Folding, var: Any, dataflow: bool) -> list[Any]:
    out = Emitter(str(var.name), dataflow=dataflow)
    conv = relax.Call(folding.conv.op, [folding.conv.args[0], folding.weight], folding.conv.attrs)
    out.bind(var, relax.op.add(out.emit(conv), folding.bias))
    return out.bindings
