"""Modules as the graph executor takes them: one function beside the regions, and no ``let``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relay

from tvm_sramtile.relay.functions import Names, exchange, is_outlined, is_plain, is_region, typed_copy
from tvm_sramtile.relay.graph import Lookup, Node, graph_of, rewrite


def inlined(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with calls of plain and outlined functions in ``main`` inlined and ``let`` dissolved; a copy.

    TVM's own inlining fails on functions that are called several times, and so it does on regions, within
    ``relay.build``: each further call of a region gets a copy of it. Functions that call themselves stay.
    """
    typed = _without_let(typed_copy(mod))
    main = typed.get_global_var("main")
    open_functions = {
        var: function
        for var, function in typed.functions.items()
        if var.name_hint != "main" and (is_plain(function) or is_outlined(function))
    }
    for _ in open_functions:  # as deep as calls can be nested, unless there is recursion
        function = typed[main]
        graph = graph_of(function.body)
        calls = {
            node: _body_of(open_functions[node.op], node)
            for node in graph.order
            if isinstance(node, relay.Call) and isinstance(node.op, relay.GlobalVar) and node.op in open_functions
        }
        if not calls:
            break
        body = rewrite(graph, calls, frozenset())
        whole = relay.Function(function.params, body, function.ret_type, function.type_params, function.attrs)
        typed = exchange(typed, {main: whole})
    return _with_copies(typed)


def _with_copies(mod: tvm.IRModule) -> tvm.IRModule:
    main = mod.get_global_var("main")
    function, names = mod[main], Names(mod)
    graph = graph_of(function.body)
    called: set[Node] = set()
    calls: dict[Node, Callable[[Lookup], Node]] = {}
    copies: dict[Any, Any] = {}
    for node in graph.order:
        if not isinstance(node, relay.Call) or not isinstance(node.op, relay.GlobalVar) or not is_region(mod[node.op]):
            continue
        if node.op in called:
            name = names.fresh("copy")
            copy = relay.GlobalVar(name)
            copies[copy] = _renamed(mod[node.op], name)
            calls[node] = _call_of(copy, node)
        called.add(node.op)
    if not calls:
        return mod
    body = rewrite(graph, calls, frozenset())
    whole = relay.Function(function.params, body, function.ret_type, function.type_params, function.attrs)
    return exchange(mod, {**copies, main: whole})


def _renamed(function: Any, name: str) -> Any:
    """A copy with parameters of its own: variables of two functions must differ."""
    params = [relay.var(param.name_hint, param.checked_type) for param in function.params]
    body = relay.bind(function.body, dict(zip(function.params, params, strict=True)))
    copy = relay.Function(params, body, function.ret_type, function.type_params, function.attrs)
    return copy.with_attr("global_symbol", tvm.runtime.String(name))


def _call_of(target: Any, call: Node) -> Callable[[Lookup], Node]:
    return lambda lookup: relay.Call(target, [lookup(argument) for argument in call.args])


def _without_let(mod: tvm.IRModule) -> tvm.IRModule:
    functions = [function for function in mod.functions.values() if is_plain(function)]
    if any(isinstance(node, relay.Let) for function in functions for node in graph_of(function.body).order):
        return relay.transform.InferType()(relay.transform.ToGraphNormalForm()(mod))
    return mod


def _body_of(function: Any, call: Node) -> Callable[[Lookup], Node]:
    def build(lookup: Lookup) -> Node:
        return relay.bind(function.body, dict(zip(function.params, map(lookup, call.args), strict=True)))

    return build
