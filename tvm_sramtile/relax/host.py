"""What stays on the host, and why."""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import relax

from tvm_sramtile.frontend import HostOp
from tvm_sramtile.relax.access import elements_of, op_name, static_shape
from tvm_sramtile.relax.decide import NO_UNIT, decide_function
from tvm_sramtile.relax.partition import partitioned_with
from tvm_sramtile.relax.read import find_steps
from tvm_sramtile.relax.regions import functions_in_order
from tvm_sramtile.relax.walk import Place, blocks_of, identity, is_closed

NOT_PARTITIONED = "the module has not been partitioned"


def host_ops(mod: tvm.IRModule) -> tuple[HostOp, ...]:
    """The operators of a partitioned module that no region holds, in the order of execution.

    Functions of other back ends are left out: they do not run on the host either.
    """
    found: list[HostOp] = []
    for _, function in functions_in_order(mod):
        if is_closed(function):
            continue
        reasons = _reasons(mod, function)
        for block in blocks_of(function.body):
            for position, binding in enumerate(block.bindings):
                name = op_name(getattr(binding, "value", None))
                if name:
                    found.append(_host_op(binding, name, reasons.get((identity(block), position), "")))
    return tuple(found)


def _reasons(mod: tvm.IRModule, function: relax.Function) -> dict[Place, str]:
    """Why operators that have a reader are on the host, by their places."""
    partitioned = partitioned_with(mod)
    if partitioned is None:
        return {place: NOT_PARTITIONED for found in find_steps(function) for place in found.places}
    return {place: made.reason for made in decide_function(function, *partitioned) for place in made.places}


def _host_op(binding: Any, op: str, reason: str) -> HostOp:
    shown = f"call_tir {binding.value.args[0].name_hint}" if op == "relax.call_tir" else op.removeprefix("relax.")
    return HostOp(shown, str(binding.var.name), macs_of(binding.value), reason or NO_UNIT)


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
