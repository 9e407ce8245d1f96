"""What of a module stays on the host, and why."""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import relay

from tvm_sramtile.frontend import HostOp
from tvm_sramtile.relay.functions import read_marks, typed_copy
from tvm_sramtile.relay.graph import Node, graph_of, is_closed, post_order
from tvm_sramtile.relay.read import named_ops, op_name, shape_of
from tvm_sramtile.relay.split import NO_UNIT, candidates

NOT_PARTITIONED = "the module was not partitioned"


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
    order: list[Any] = []
    waiting = list(reversed(by_name))
    while waiting:
        var = waiting.pop()
        if var in order:
            continue
        order.append(var)
        called = [
            node.op
            for node in post_order(functions[var].body)
            if isinstance(node, relay.Call) and isinstance(node.op, relay.GlobalVar) and node.op in functions
        ]
        waiting.extend(reversed(called))
    return order


def _function_ops(mod: tvm.IRModule, function: Any) -> list[HostOp]:
    graph = graph_of(function.body)
    marks = read_marks(mod)
    reasons: dict[Node, str] = {}
    if marks is None:
        reasons = dict.fromkeys((node for node in graph.order if op_name(node) == "nn.conv2d"), NOT_PARTITIONED)
    else:
        for candidate in candidates(graph, *marks, digests=False):
            # One that fits can only stand here if somebody has added it after the partition.
            reasons[candidate.match.nodes[0]] = candidate.reason or NOT_PARTITIONED
    return [
        HostOp(str(op_name(node)), name, macs_of(node), reasons.get(node, NO_UNIT)) for node, name in named_ops(graph)
    ]


def macs_of(call: Node) -> int:
    """Multiply-accumulates of one call; 0 for operators without any, and where an extent is known at run time only."""
    name = op_name(call)
    if name not in ("nn.conv2d", "nn.conv2d_transpose", "nn.dense", "nn.batch_matmul"):
        return 0
    data, weight, output = (shape_of(node) for node in (*call.args[:2], call))
    if data is None or weight is None or output is None:
        return 0
    if name == "nn.dense":
        return math.prod(output) * data[-1]
    if name == "nn.batch_matmul":
        return math.prod(output) * data[1 if call.attrs.transpose_a else 2]
    # Each weight is used once for each position of the map that the kernel moves over, and each image.
    layout = str(call.attrs.data_layout)
    moved = data if name == "nn.conv2d_transpose" else output
    if name == "nn.conv2d" and str(call.attrs.out_layout):
        layout = str(call.attrs.out_layout)
    return math.prod(extent for extent, axis in zip(moved, layout, strict=False) if axis in "NHW") * math.prod(weight)
