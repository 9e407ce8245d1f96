"""What stays on the host, and why."""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import relax

from tvm_sramtile.frontend import HostOp
from tvm_sramtile.relax.access import called_function, elements_of, op_name, static_shape
from tvm_sramtile.relax.decide import NO_UNIT, decide_function
from tvm_sramtile.relax.pads import pad_reasons
from tvm_sramtile.relax.partition import partitioned_with
from tvm_sramtile.relax.read import find_steps
from tvm_sramtile.relax.regions import functions_in_order
from tvm_sramtile.relax.walk import Place, blocks_of, identity, is_closed

NOT_PARTITIONED = "the module has not been partitioned"


def host_ops(mod: tvm.IRModule) -> tuple[HostOp, ...]:
    """The operators of a partitioned module that no region holds, in the order of execution, each once.

    Functions of other back ends are left out: they do not run on the host either.
    """
    ordered = functions_in_order(mod)
    functions = {var.name_hint: function for var, function in ordered if not is_closed(function)}
    found: list[HostOp] = []
    for var, _ in ordered:
        if var.name_hint in functions:
            _add_ops(mod, functions.pop(var.name_hint), functions, found)
    return tuple(found)


def _add_ops(mod: tvm.IRModule, function: Any, waiting: dict[str, Any], found: list[HostOp]) -> None:
    """Add the operators of a function, and of those that wait where it calls them for the first time."""
    reasons = _reasons(mod, function)
    for block in blocks_of(function.body):
        for position, binding in enumerate(block.bindings):
            value = getattr(binding, "value", None)
            called = called_function(value)
            if called is not None and called.name_hint in waiting:
                _add_ops(mod, waiting.pop(called.name_hint), waiting, found)
            name = op_name(value)
            if name:
                found.append(_host_op(binding, name, reasons.get((identity(block), position))))


def _reasons(mod: tvm.IRModule, function: relax.Function) -> dict[Place, str]:
    """Why operators that have a reader are on the host."""
    partitioned = partitioned_with(mod)
    if partitioned is None:
        return {place: NOT_PARTITIONED for found in find_steps(function) for place in found.places}
    reasons = {place: made.reason for made in decide_function(function, *partitioned) for place in made.places}
    return {**reasons, **pad_reasons(function)}


def _host_op(binding: Any, op: str, reason: str | None) -> HostOp:
    name = str(binding.var.name)
    shown = op.removeprefix("relax.")
    if op == "relax.call_tir":  # importers number the functions of one kind
        shown = f"call_tir {str(binding.value.args[0].name_hint).rstrip('0123456789')}"
    return HostOp(shown, name, macs_of(binding.value), reason or NO_UNIT)


def macs_of(call: Any) -> int:
    """Multiply-accumulates of a call; 0 for operators without any, and where a shape is not known.

    Taps in padding count, as is the custom, and so do those of a transposed convolution that are cropped.
    """
    name = op_name(call)
    if name == "relax.nn.conv2d":
        return elements_of(call) * _taps(call, "O")
    if name == "relax.nn.conv2d_transpose":
        return elements_of(call.args[0]) * _taps(call, "I")
    if name == "relax.matmul":
        shape = static_shape(call.args[0])
        return elements_of(call) * shape[-1] if shape else 0
    return 0


def _taps(call: Any, channel: str) -> int:
    """Weights that one element on the side of ``channel`` (I or O) is multiplied with."""
    shape = static_shape(call.args[1])
    layout = str(call.attrs.kernel_layout)
    if shape is None or channel not in layout or len(layout) != len(shape):
        return 0
    return math.prod(shape) // max(1, shape[layout.index(channel)])
