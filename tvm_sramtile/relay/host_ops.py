"""What of a module stays on the host, and why."""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import relay

from tvm_sramtile.frontend import HostOp
from tvm_sramtile.relay.access import named_ops, op_name, static_shape
from tvm_sramtile.relay.decide import NO_UNIT, decide_function
from tvm_sramtile.relay.functions import read_marks, typed_copy
from tvm_sramtile.relay.graph import Graph, Node, graph_of, is_closed, post_order
from tvm_sramtile.relay.pads import pad_reasons
from tvm_sramtile.relay.read import find_steps

NOT_PARTITIONED = "the module has not been partitioned"


def host_ops(mod: tvm.IRModule) -> tuple[HostOp, ...]:
    """The operators of a partitioned module that no region holds, in the order of execution.

    Functions of other back ends are left out: they do not run on the host either.
    """
    typed = typed_copy(mod)
    functions = [typed[var] for var in function_order(typed) if not is_closed(typed[var])]
    return tuple(op for function in functions for op in _function_ops(typed, function))


def function_order(mod: tvm.IRModule) -> list[Any]:
    """The variables of the module's Relay functions: ``main``, then each in order of its first call, then the rest."""
    functions = {var: function for var, function in mod.functions.items() if isinstance(function, relay.Function)}
    by_name = sorted(functions, key=lambda var: (var.name_hint != "main", var.name_hint))
    order: dict[Any, None] = {}
    waiting = list(reversed(by_name))
    while waiting:
        var = waiting.pop()
        if var in order:
            continue
        order[var] = None
        called = [
            node.op
            for node in post_order(functions[var].body)
            if isinstance(node, relay.Call) and isinstance(node.op, relay.GlobalVar) and node.op in functions
        ]
        waiting.extend(reversed(called))
    return list(order)


def _function_ops(mod: tvm.IRModule, function: Any) -> list[HostOp]:
    graph = graph_of(function.body)
    reasons = _reasons(mod, graph)
    return [HostOp(op_name(node), name, macs_of(node), reasons.get(node) or NO_UNIT) for node, name in named_ops(graph)]


def _reasons(mod: tvm.IRModule, graph: Graph) -> dict[Node, str]:
    """Why operators that have a reader are on the host."""
    marks = read_marks(mod)
    if marks is None:
        return {node: NOT_PARTITIONED for found in find_steps(graph) for node in found.nodes}
    # One that fits can only stand here if somebody has added it after the partition.
    decisions = decide_function(graph, *marks)
    reasons = {node: made.reason or NOT_PARTITIONED for made in decisions for node in made.found.nodes}
    return {**reasons, **pad_reasons(graph)}


def macs_of(call: Node) -> int:
    """Multiply-accumulates of one call; 0 for operators without any, and where an extent is known at run time only.

    Taps in padding count, as is the custom, and so do those of a transposed convolution that are cropped.
    """
    name = op_name(call)
    if name not in ("nn.conv2d", "nn.conv2d_transpose", "nn.dense", "nn.matmul", "nn.batch_matmul"):
        return 0
    data, weight, output = (static_shape(node) for node in (*call.args[:2], call))
    if data is None or weight is None or output is None:
        return 0
    if name == "nn.dense":
        return math.prod(output) * data[-1]
    if name in ("nn.matmul", "nn.batch_matmul"):
        return math.prod(output) * data[-2 if call.attrs.transpose_a else -1]
    # Each weight is used once for each position of the map that the kernel moves over, and each image.
    layout = str(call.attrs.data_layout)
    moved = data if name == "nn.conv2d_transpose" else output
    if name == "nn.conv2d" and str(call.attrs.out_layout):
        layout = str(call.attrs.out_layout)
    return math.prod(extent for extent, axis in zip(moved, layout, strict=False) if axis in "NHW") * math.prod(weight)
