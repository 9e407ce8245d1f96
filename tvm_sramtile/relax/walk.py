"""Relax functions as blocks of bindings: who uses a value, and how a function is rebuilt with other bindings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from tvm_sramtile.relax.access import attributes_of, is_constant

Place = tuple[int, int]
"""A binding: its block's identity, and its position there."""


def identity(node: Any) -> int:
    """What tells a node of the IR from all others that are alive; `==` of variables may be an expression."""
    return hash(node)


def plain_functions(mod: tvm.IRModule) -> Iterator[tuple[tvm.ir.GlobalVar, relax.Function]]:
    """The Relax functions that passes may change, ``main`` first, then by name.

    Those that belong to a back end (``Codegen``), that stand for one operator of a back end or of a fusion
    (``Composite``, ``Primitive``) and those that we have outlined before are left out.
    """
    named = sorted(mod.functions_items(), key=lambda item: (item[0].name_hint != "main", item[0].name_hint))
    for var, function in named:
        if isinstance(function, relax.Function) and not is_closed(function):
            yield var, function


def is_closed(function: Any) -> bool:
    """Whether passes leave the function as it stands."""
    attributes = attributes_of(function)
    return any(attributes.get(name) is not None for name in ("Codegen", "Composite", "Primitive", "sramtile.plan"))


def blocks_of(body: Any) -> Iterator[relax.BindingBlock]:
    """All blocks of a function's body in program order, those in the branches of an ``if`` too."""
    for block in body.blocks:
        yield block
        for binding in block.bindings:
            for branch in _branches(binding):
                yield from blocks_of(branch)


def _branches(binding: Any) -> tuple[Any, ...]:
    value = getattr(binding, "value", None)
    if isinstance(value, relax.If):
        return tuple(b for b in (value.true_branch, value.false_branch) if isinstance(b, relax.SeqExpr))
    return ()


@dataclass(frozen=True, slots=True)
class Uses:
    """How often each variable is used in a function, and by which bindings.

    Attributes:
        count: uses of each variable, in the function's result too.
        places: the bindings that use a variable, in program order, once a use.
        definitions: what variables are bound to.
    """

    count: Counter[int]
    places: dict[int, list[Place]]
    definitions: dict[int, Any]

    @staticmethod
    def of(function: relax.Function) -> Uses:
        """Look through a function."""
        uses = Uses.none()
        uses._add_sequence(function.body)
        return uses

    @staticmethod
    def none() -> Uses:
        """Of no function: nothing is bound, nothing is used."""
        return Uses(Counter(), {}, {})

    def sole_consumer(self, var: Any, block: Any) -> int | None:
        """The position in ``block`` of the one binding that uses ``var``, if all its uses are that one."""
        found = self.consumers(var, block)
        return found[0] if found is not None and len(found) == 1 else None

    def consumers(self, var: Any, block: Any) -> tuple[int, ...] | None:
        """The positions in ``block`` of the bindings that use ``var``, once a use; ``None`` if it is used elsewhere."""
        places = self.places.get(identity(var), [])
        if self.count[identity(var)] != len(places) or any(place[0] != identity(block) for place in places):
            return None
        return tuple(position for _, position in places)

    def definition(self, expr: Any) -> Any:
        """What ``expr`` is bound to, else ``expr`` itself."""
        while isinstance(expr, relax.Var) and identity(expr) in self.definitions:
            expr = self.definitions[identity(expr)]
        return expr

    def literal(self, expr: Any) -> Any:
        """The constant that ``expr`` is bound to, else ``expr`` itself."""
        value = self.definition(expr)
        return value if is_constant(value) else expr

    def _add_sequence(self, body: Any) -> None:
        for block in body.blocks:
            for position, binding in enumerate(block.bindings):
                if isinstance(binding, relax.VarBinding):
                    self.definitions[identity(binding.var)] = binding.value
                self._add(binding.value, (identity(block), position))
        self._add(body.body, None)

    def _add(self, expr: Any, place: Place | None) -> None:
        if isinstance(expr, relax.Var):
            self.count[identity(expr)] += 1
            if place is not None:
                self.places.setdefault(identity(expr), []).append(place)
        elif isinstance(expr, relax.Call):
            for part in (expr.op, *expr.args):
                self._add(part, place)
        elif isinstance(expr, relax.Tuple):
            for part in expr.fields:
                self._add(part, place)
        elif isinstance(expr, relax.TupleGetItem):
            self._add(expr.tuple_value, place)
        elif isinstance(expr, relax.If):
            self._add(expr.cond, place)
            for branch in (expr.true_branch, expr.false_branch):
                self._add_sequence(branch)
        elif isinstance(expr, relax.Function | relax.SeqExpr):
            for var in relax.analysis.all_vars(expr):
                self.count[identity(var)] += 2  # never the one use of anything


Rewrite = Callable[[Any, int, bool], "list[Any] | None"]
"""From a block, a position, and whether it is a dataflow block, to the bindings that replace the one there.

``None`` leaves it as it is.
"""


def rebuild(function: relax.Function, rewrite: Rewrite) -> relax.Function:
    """The function with some bindings replaced; the very same object where nothing was."""
    before = function.body
    body = _rebuild_sequence(before, rewrite)
    return function if body is before else with_body(function, body)


def with_body(function: relax.Function, body: Any) -> relax.Function:
    """The function with another body of the same type."""
    return relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs, function.span)


def _rebuild_sequence(body: Any, rewrite: Rewrite) -> Any:
    before = list(body.blocks)
    blocks = [_rebuild_block(block, rewrite) for block in before]
    if all(new is old for new, old in zip(blocks, before, strict=True)):
        return body
    rebuilt = relax.SeqExpr(blocks, body.body)
    relax.expr._update_type(rebuilt, body.ty)
    return rebuilt


def _rebuild_block(block: Any, rewrite: Rewrite) -> Any:
    is_dataflow = isinstance(block, relax.DataflowBlock)
    bindings: list[Any] = []
    changed = False
    for position, binding in enumerate(block.bindings):
        new = rewrite(block, position, is_dataflow)
        if new is None and _branches(binding):
            new = _rebuild_if(binding, rewrite)
        changed |= new is not None
        bindings += [binding] if new is None else new
    if not changed:
        return block
    return (relax.DataflowBlock if is_dataflow else relax.BindingBlock)(bindings)


def _rebuild_if(binding: Any, rewrite: Rewrite) -> list[Any] | None:
    value = binding.value
    before = (value.true_branch, value.false_branch)
    branches = [_rebuild_sequence(branch, rewrite) for branch in before]
    if all(new is old for new, old in zip(branches, before, strict=True)):
        return None
    rebuilt = relax.If(value.cond, *branches)
    relax.expr._update_type(rebuilt, value.ty)
    return [relax.VarBinding(binding.var, rebuilt)]
