"""What is done to an imported module before it is partitioned: parameters bound, batch norm and constants folded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relay

from tvm_sramtile.errors import ModelError
from tvm_sramtile.relay.functions import exchange, is_plain
from tvm_sramtile.relay.graph import Graph, Lookup, Node, graph_of
from tvm_sramtile.relay.read import is_per_channel, op_name, shape_of
from tvm_sramtile.relay.split import Edits


def prepare_module(mod: tvm.IRModule, params: Mapping[str, Any]) -> tvm.IRModule:
    """A module of the same meaning whose convolutions have constant weights and biases wherever that can be.

    Only plain functions are changed: what a back end has taken, it keeps as it is.

    Args:
        mod: left as it is.
        params: values of parameters of ``main`` by name, to become constants.

    Raises:
        ModelError: ``params`` has a name that is no parameter's.
    """
    functions = dict(mod.functions)
    if params:
        known = parameter_names(mod)
        for name in params:
            if name not in known:
                raise ModelError(f"params has {name!r}, which is no parameter of main: these are {', '.join(known)}")
        main = mod.get_global_var("main")
        functions[main] = relay.build_module.bind_params_by_name(functions[main], dict(params))
    # Called one by one: in a Sequential, the current opt_level would leave some out.
    work = tvm.IRModule({var: f for var, f in functions.items() if isinstance(f, relay.Function)}, mod.type_definitions)
    for one_pass in _PASSES:
        work = one_pass(work)
    folded = {var.name_hint: function for var, function in work.functions.items()}
    changed = {var: folded[var.name_hint] for var, function in functions.items() if _is_open(function)}
    typed = exchange(mod, {**functions, **changed})
    while True:
        sums = {var: _sum_constants(typed[var]) for var in changed}
        summed = {var: function for var, function in sums.items() if function is not None}
        if not summed:
            return typed
        typed = exchange(typed, summed)


def parameter_names(mod: tvm.IRModule) -> list[str]:
    """The names of the parameters of ``main``."""
    return [str(param.name_hint) for param in mod["main"].params]


_PASSES = (
    relay.transform.InferType(),
    relay.transform.SimplifyInference(),
    relay.transform.FoldConstant(),
    relay.transform.BackwardFoldScaleAxis(),
    relay.transform.FoldConstant(),
    relay.transform.ForwardFoldScaleAxis(),
    relay.transform.FoldConstant(),
)


def _is_open(function: Any) -> bool:
    """Whether no part of a function belongs to a back end."""
    if not is_plain(function):
        return False
    nested = (node for node in graph_of(function.body).order if isinstance(node, relay.Function))
    return all(is_plain(node) for node in nested)


def _sum_constants(function: Any) -> Any:
    """``x + a + b`` with a constant for each channel twice, as folding leaves it, becomes ``x + (a + b)``.

    ``None`` when there is no such sum.
    """
    graph = graph_of(function.body)
    edits = Edits()
    for node in graph.order:
        outer = _constant_added(graph, node)
        inner = None if outer is None else _constant_added(graph, graph.resolve(node.args[0]))
        if outer is None or inner is None:
            continue
        first = graph.resolve(node.args[0])
        if graph.only_user(first) is None or first in edits.replace:
            continue
        edits.replace[node] = _biased(first.args[0], inner + outer)
        edits.absorbed.add(first)
    return edits.apply(function, graph) if edits.replace else None


def _biased(value: Node, bias: Any) -> Any:
    constant = relay.const(bias)

    def build(lookup: Lookup) -> Node:
        return relay.nn.bias_add(lookup(value), constant)

    return build


def _constant_added(graph: Graph, node: Node) -> Any:
    """The constant, one element a channel, that ``node`` adds to a convolution's value, as a vector."""
    if op_name(node) not in ("add", "nn.bias_add") or not isinstance(node.args[1], relay.Constant):
        return None
    shape, value = shape_of(node), node.args[1]
    source = graph.resolve(node.args[0])
    if shape is None or len(shape) != 4 or op_name(source) not in ("nn.conv2d", "add", "nn.bias_add"):
        return None
    along = node.attrs.axis in (1, -3) if op_name(node) == "nn.bias_add" else is_per_channel(value, shape[1])
    if not along or shape_of(node.args[0]) != shape:
        return None
    return value.data.numpy().reshape(-1) if value.checked_type.dtype == "float32" else None
