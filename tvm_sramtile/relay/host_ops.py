"""What of a module stays on the host, and why."""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import relay

from tvm_sramtile.frontend import HostOp
from tvm_sramtile.relay.functions import compiler_of, is_region, read_marks
from tvm_sramtile.relay.graph import Node, graph_of, post_order
from tvm_sramtile.relay.read import op_name, shape_of, value_name
from tvm_sramtile.relay.split import NO_UNIT, candidates

NOT_PARTITIONED = "the module has not been partitioned"


def host_ops(mod: tvm.IRModule) -> tuple[HostOp, ...]:
    """Every operator outside the regions, in order of execution: ``main``, then functions that it calls, then others."""
    typed = relay.transform.InferType()(mod)
    found: list[HostOp] = []
    for var in function_order(typed):
        function = typed[var]
        if not is_region(function):
            found.extend(_function_ops(typed, function))
    return tuple(found)


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
    compiler = compiler_of(function)
    reasons: dict[Node, str] = {}
    if compiler is None:
        marks = read_marks(mod)
        if marks is None:
            reasons = dict.fromkeys((node for node in graph.order if op_name(node) == "nn.conv2d"), NOT_PARTITIONED)
        else:
            for candidate in candidates(graph, *marks, digests=False):
                # One that fits can only stand here if somebody has added it after the partition.
                reason = NOT_PARTITIONED if candidate.error is None else str(candidate.error)
                reasons[candidate.match.nodes[0]] = reason
    other = NO_UNIT if compiler is None else f"its function is compiled by the back end {compiler!r}"
    return [
        HostOp(str(op_name(node)), value_name(node, index), macs_of(node), reasons.get(node, other))
        for index, node in enumerate(node for node in graph.order if op_name(node) is not None)
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
