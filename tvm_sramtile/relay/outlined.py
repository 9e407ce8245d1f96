"""Outlined functions of ``SplitOversized`` taken over as regions, as they stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import tvm
from tvm import relay

from tvm_sramtile.errors import CheckFailed
from tvm_sramtile.ir import Region, Tensor, digest_of
from tvm_sramtile.relay.access import constant_value, is_constant
from tvm_sramtile.relay.decide import renamed
from tvm_sramtile.relay.functions import (
    as_region,
    exchange,
    is_outlined,
    plain_functions,
    read_attributes,
    with_constants,
    with_text_attrs,
)
from tvm_sramtile.relay.graph import Edits, Graph, Node, graph_of
from tvm_sramtile.relay.split import call_of


def take_over(mod: tvm.IRModule) -> tvm.IRModule:
    """Make a region of each outlined function; where all its calls bring the same literal, it moves inside.

    Args:
        mod: with types inferred.
    """
    outlined = {var: function for var, function in mod.functions.items() if is_outlined(function)}
    if not outlined:
        return mod
    functions = plain_functions(mod)
    graphs = {var: graph_of(function.body) for var, function in functions.items()}
    edits = {var: Edits() for var in functions}
    changed: dict[Any, Any] = {}
    for var, function in outlined.items():
        name = var.name_hint
        region = read_attributes(name, function).region
        if len(function.params) != len(region.inputs):
            raise CheckFailed(
                f"function {name}: it has {len(function.params)} parameters, its region {len(region.inputs)}"
            )
        calls = {owner: _calls(graph, var) for owner, graph in graphs.items()}
        brought = [
            [graphs[owner].resolve(argument) for argument in call.args]
            for owner, found in calls.items()
            for call in found
        ]
        literals = _common_literals(brought, region)
        target = relay.GlobalVar(name)
        changed[target] = _region(name, function, literals)
        for owner, found in calls.items():
            for call in found:
                kept = [argument for at, argument in enumerate(call.args) if at not in literals]
                edits[owner].take([call], call_of(target, kept))
    changed |= {var: edits[var].apply(functions[var], graph) for var, graph in graphs.items() if edits[var].replace}
    return exchange(mod, changed, outlined)


def _calls(graph: Graph, var: Any) -> list[Node]:
    return [node for node in graph.order if isinstance(node, relay.Call) and node.op.same_as(var)]


def _common_literals(calls: Sequence[Sequence[Node]], region: Region) -> dict[int, Node]:
    """By position, the literals that all calls agree upon; of maps, those of one image only."""
    maps = {tensor.name for step in region.steps for tensor, role in step.uses if role == "data" and step.images > 1}
    literals: dict[int, Node] = {}
    for position, tensor in enumerate(region.inputs):
        values = [arguments[position] for arguments in calls]
        if tensor.name in maps or not values or not all(map(is_constant, values)):
            continue
        if len({digest_of(constant_value(value)) for value in set(values)}) == 1:
            literals[position] = values[0]
    return literals


def _region(name: str, function: Any, literals: Mapping[int, Node]) -> Any:
    """The function as a region, some of its parameters bound."""
    attributes = read_attributes(name, function)
    region = attributes.region
    digests = {region.inputs[at].name: digest_of(constant_value(literal)) for at, literal in literals.items()}

    def known(tensor: Tensor) -> Tensor:
        return replace(tensor, digest=digests[tensor.name]) if tensor.name in digests else tensor

    inputs = tuple(tensor for tensor in region.inputs if tensor.name not in digests)
    bound = replace(region, inputs=inputs, steps=tuple(step.with_inputs(known) for step in region.steps))
    values = {function.params[at]: literal for at, literal in literals.items()}
    body = relay.bind(function.body, values) if values else function.body
    params = [param for at, param in enumerate(function.params) if at not in literals]
    fresh = relay.Function(params, body, function.ret_type, function.type_params)
    texts = renamed(replace(attributes, region=bound), name).to_attrs()
    return as_region(with_constants(with_text_attrs(fresh, texts), literals.values()), name)
