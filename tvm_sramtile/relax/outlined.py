"""Outlined functions of ``SplitOversized`` taken over as regions, as they stand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import tvm
from tvm import relax

from tvm_sramtile.attributes import CODEGEN, RegionAttributes
from tvm_sramtile.ir import Tensor, digest_of
from tvm_sramtile.relax.access import constant_value, is_constant
from tvm_sramtile.relax.decide import renamed
from tvm_sramtile.relax.emit import CONSTANTS
from tvm_sramtile.relax.regions import ModuleEdit, attributes_in, calls_of, is_outlined
from tvm_sramtile.relax.walk import Uses, rebuild


def take_over(mod: tvm.IRModule) -> tvm.IRModule:
    """Make a region of each outlined function; where all its calls bring the same literal, it moves inside."""
    outlined = {var.name_hint: (var, function) for var, function in mod.functions_items() if is_outlined(function)}
    if not outlined:
        return mod
    edit = ModuleEdit(mod)
    brought = _arguments(mod, set(outlined))
    new: dict[str, tuple[tvm.ir.GlobalVar, frozenset[int]]] = {}
    for name in sorted(outlined):
        var, function = outlined[name]
        literals = _common_literals(brought[name], len(function.params))
        region = _region(name, attributes_in(var, function), function, literals)
        new[name] = (edit.add(name, region), frozenset(literals))
    for var, function in mod.functions_items():
        if isinstance(function, relax.Function) and var.name_hint not in outlined:
            rewritten = _with_new_calls(function, new)
            if rewritten is not function:
                edit.replace(var, rewritten)
    return edit.result()


def _arguments(mod: tvm.IRModule, names: set[str]) -> Mapping[str, list[list[Any]]]:
    """What each call of these functions brings; a use that is no call counts as a call that brings nothing."""
    brought: dict[str, list[list[Any]]] = defaultdict(list)
    for function in mod.functions.values():
        if not isinstance(function, relax.Function):
            continue
        mentioned = [var.name_hint for var in relax.analysis.all_global_vars(function) if var.name_hint in names]
        if not mentioned:
            continue
        uses = Uses.of(function)
        called = set()
        for _, binding, var in calls_of(function):
            if var.name_hint in names:
                called.add(var.name_hint)
                brought[var.name_hint].append([uses.literal(argument) for argument in binding.value.args])
        for name in set(mentioned) - called:
            brought[name].append([])
    return brought


def _common_literals(calls: Sequence[Sequence[Any]], count: int) -> dict[int, Any]:
    """By position, the literals that all calls agree upon."""
    literals: dict[int, Any] = {}
    if not calls or any(len(arguments) != count for arguments in calls):
        return literals
    for position in range(count):
        values = [arguments[position] for arguments in calls]
        if all(is_constant(value) for value in values):
            digests = {digest_of(constant_value(value)) for value in {hash(v): v for v in values}.values()}
            if len(digests) == 1:
                literals[position] = values[0]
    return literals


def _region(
    name: str, attributes: RegionAttributes, function: relax.Function, literals: Mapping[int, Any]
) -> relax.Function:
    """The function as a region, some of its parameters bound."""
    region = attributes.region
    digests = {region.inputs[at].name: digest_of(constant_value(literal)) for at, literal in literals.items()}

    def known(tensor: Tensor) -> Tensor:
        return replace(tensor, digest=digests[tensor.name]) if tensor.name in digests else tensor

    inputs = tuple(tensor for tensor in region.inputs if tensor.name not in digests)
    steps = tuple(step.with_inputs(known) for step in region.steps)
    bound = replace(region, inputs=inputs, steps=steps)
    body = function
    if literals:
        body = function.bind_params({function.params[at]: literal for at, literal in literals.items()})
    new = renamed(replace(attributes, region=bound), name)
    marks: dict[str, Any] = {"global_symbol": name, "Codegen": CODEGEN, **new.to_attrs()}
    if digests:
        marks[CONSTANTS] = {digests[region.inputs[at].name]: literal for at, literal in literals.items()}
    return body.with_attrs(marks)


def _with_new_calls(
    function: relax.Function, new: Mapping[str, tuple[tvm.ir.GlobalVar, frozenset[int]]]
) -> relax.Function:
    calls = {place: (binding, new[var.name_hint]) for place, binding, var in calls_of(function) if var.name_hint in new}

    def rewrite(block: Any, position: int, _: bool) -> list[Any] | None:
        call = calls.get((hash(block), position))
        if call is None:
            return None
        binding, (var, bound) = call
        kept = [argument for at, argument in enumerate(binding.value.args) if at not in bound]
        value = relax.BlockBuilder().normalize(relax.Call(var, kept))
        return [relax.VarBinding(binding.var, value)]

    return rebuild(function, rewrite)
