"""What is done to an imported module before it is partitioned.

Parameters are bound, batch norm, constants and padding folded, and what changes nothing is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm
from tvm import relay

from tvm_sramtile.errors import ModelError
from tvm_sramtile.relay.access import dtype_of, is_constant, op_name, static_shape
from tvm_sramtile.relay.functions import exchange, is_plain
from tvm_sramtile.relay.graph import Edits, Graph, Lookup, Node, graph_of
from tvm_sramtile.relay.pads import fold_pads
from tvm_sramtile.relay.reading import CHANNELS_FIRST, is_vector


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
    for simplify in (fold_pads, _with_sums):
        while True:
            simpler = {var: new for var in changed if (new := simplify(typed[var])) is not None}
            if not simpler:
                break
            typed = exchange(typed, simpler)
    return typed


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


def _with_sums(function: Any) -> Any:
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
        edits.take([first, node], _biased(first.args[0], inner + outer))
    return edits.apply(function, graph) if edits.replace else None


def _biased(value: Node, bias: Any) -> Callable[[Lookup], Node]:
    constant = relay.const(bias)
    return lambda lookup: relay.nn.bias_add(lookup(value), constant)


def _constant_added(graph: Graph, node: Node) -> Any:
    """The constant, one element a channel, that ``node`` adds to a convolution's value, as a vector."""
    if op_name(node) not in ("add", "nn.bias_add") or not is_constant(node.args[1]):
        return None
    shape, value = static_shape(node), node.args[1]
    source = graph.resolve(node.args[0])
    if shape is None or len(shape) != 4 or op_name(source) not in _SUMMED:
        return None
    if op_name(node) == "nn.bias_add":
        along = node.attrs.axis in (1, -3)
    else:
        along = is_vector(value, CHANNELS_FIRST, 4, shape[1])
    if not along or static_shape(node.args[0]) != shape:
        return None
    return value.data.numpy().reshape(-1) if dtype_of(value) == "float32" else None


_SUMMED = ("nn.conv2d", "nn.conv2d_transpose", "add", "nn.bias_add")
