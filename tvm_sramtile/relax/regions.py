"""Regions as functions of a module: their names, their calls, and which ones a module has."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax

from tvm_sramtile.attributes import CODEGEN, RegionAttributes
from tvm_sramtile.counting import counters_name, mode_name, reset_name
from tvm_sramtile.relax.access import attributes_of, called_function
from tvm_sramtile.relax.decide import Decision
from tvm_sramtile.relax.emit import CONSTANTS
from tvm_sramtile.relax.walk import Place, blocks_of

PLAN = "sramtile.plan"


def is_region(function: Any) -> bool:
    """Whether our back end compiles the function."""
    return isinstance(function, relax.Function) and str(attributes_of(function).get("Codegen")) == CODEGEN


def is_outlined(function: Any) -> bool:
    """Whether the function is a split operator that ``SplitOversized(outline=True)`` made."""
    return (
        isinstance(function, relax.Function)
        and PLAN in attributes_of(function)
        and attributes_of(function).get("Codegen") is None
    )


def attributes_in(var: tvm.ir.GlobalVar, function: relax.Function) -> RegionAttributes:
    """The region that a function carries; raises ``CheckFailed`` when they are damaged."""
    return RegionAttributes.from_attrs(attributes_of(function), var.name_hint)


def functions_in_order(mod: tvm.IRModule) -> tuple[tuple[tvm.ir.GlobalVar, relax.Function], ...]:
    """All Relax functions: ``main`` and what it calls in order of the first call, then what nothing calls."""
    by_name = {var.name_hint: (var, function) for var, function in mod.functions_items()}
    order: dict[str, None] = {}

    def visit(name: str) -> None:
        if name in order or not isinstance(by_name[name][1], relax.Function):
            return
        order[name] = None
        for _, _, called in calls_of(by_name[name][1]):
            visit(called.name_hint)

    for name in sorted(by_name, key=lambda name: (name != "main", _is_callee(by_name[name][1]), name)):
        visit(name)
    return tuple(by_name[name] for name in order)


def _is_callee(function: Any) -> bool:
    return is_region(function) or is_outlined(function)


def calls_of(function: relax.Function) -> Iterator[tuple[Place, Any, tvm.ir.GlobalVar]]:
    """The direct calls of the module's own functions: place, binding, function."""
    for block in blocks_of(function.body):
        for position, binding in enumerate(block.bindings):
            called = called_function(getattr(binding, "value", None))
            if called is not None:
                yield (hash(block), position), binding, called


def literals_in(function: relax.Function) -> Mapping[str, Any]:
    """The literal tensors of a region's constants, by digest.

    The function carries them as an attribute: passes that fold constants would leave only slices of them in its body.
    """
    carried = attributes_of(function).get(CONSTANTS)
    return {} if carried is None else {str(digest): literal for digest, literal in carried.items()}


@dataclass(slots=True)
class Names:
    """Names of new functions: C identifiers that nothing in the module uses, nor what is derived from them."""

    taken: set[str] = field(default_factory=set)
    _next: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def of(mod: tvm.IRModule) -> Names:
        """With all names in ``mod`` taken."""
        taken = {var.name_hint for var in mod.get_global_vars()}
        symbols = (attributes_of(function).get("global_symbol") for function in mod.functions.values())
        return Names(taken | {str(symbol) for symbol in symbols if symbol is not None})

    def new(self, kind: str) -> str:
        """The next free name for an operator of this kind."""
        while True:
            index = self._next.get(kind, 0)
            self._next[kind] = index + 1
            name = f"{CODEGEN}_{kind}_{index}"
            derived = {name, counters_name(name), reset_name(name), mode_name(name)}
            if not derived & self.taken:
                self.taken |= derived
                return name


@dataclass(slots=True)
class ModuleEdit:
    """Functions that a pass replaces or adds; the module it started from stays as it is."""

    mod: tvm.IRModule
    functions: dict[str, tuple[tvm.ir.GlobalVar, Any]] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, function: relax.Function) -> tvm.ir.GlobalVar:
        """A function under a name of its own, replacing what has that name."""
        var = tvm.ir.GlobalVar(name)
        relax.expr._update_type(var, function.ty)
        self.functions[name] = (var, function)
        return var

    def replace(self, var: tvm.ir.GlobalVar, function: relax.Function) -> None:
        """Another function of the same type."""
        self.functions[var.name_hint] = (var, function)

    def result(self) -> tvm.IRModule:
        """The new module; the old one where nothing changed."""
        before = attributes_of(self.mod)
        attributes = {**before, **self.attributes}
        same = all(str(before.get(name)) == str(value) for name, value in attributes.items())
        if not self.functions and same:
            return self.mod
        kept = {var: function for var, function in self.mod.functions_items() if var.name_hint not in self.functions}
        added = dict(self.functions.values())
        return tvm.IRModule({**kept, **added}, attrs=attributes or None, global_infos=self.mod.global_infos)


def without_unused(mod: tvm.IRModule, names: Collection[str]) -> tvm.IRModule:
    """The module without those of these functions that no other uses."""
    used = {
        var.name_hint
        for name, function in mod.functions_items()
        if isinstance(function, relax.Function)
        for var in relax.analysis.all_global_vars(function)
        if var.name_hint != name.name_hint
    }
    gone = set(names) - used
    if not gone:
        return mod
    kept = {var: function for var, function in mod.functions_items() if var.name_hint not in gone}
    return tvm.IRModule(kept, attrs=attributes_of(mod) or None, global_infos=mod.global_infos)


def call_region(decision: Decision, var: tvm.ir.GlobalVar, attributes: RegionAttributes) -> relax.Call:
    """The call of a region's function with the operands of the operator that it stands for."""
    return relax.Call(var, [decision.found.operands[tensor.name] for tensor in attributes.region.inputs])


def literals_of(decision: Decision, attributes: RegionAttributes) -> Mapping[str, Any]:
    """The literal operands of a region's constants, by digest."""
    return {str(tensor.digest): decision.found.operands[tensor.name] for tensor in attributes.region.constants}
