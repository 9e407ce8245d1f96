"""Bindings, collected one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from tvm_sramtile.ints import Range


class Emitter:
    """Collects bindings for one block.

    Operators take variables and literals as arguments. Functions that build code return the last call unbound, so that
    the caller can bind it to a variable of its own.
    """

    def __init__(self, name: str, *, dataflow: bool) -> None:
        self.bindings: list[Any] = []
        self._builder = relax.BlockBuilder()
        self._variable = relax.DataflowVar if dataflow else relax.Var
        self._name = name
        self._slices: dict[tuple[int, tuple[tuple[int, Range], ...]], Any] = {}

    def typed(self, expr: Any) -> Any:
        """The expression with its type inferred."""
        return self._builder.normalize(expr)

    def emit(self, expr: Any) -> Any:
        """Bind an expression to a new variable."""
        typed = self.typed(expr)
        var = self._variable(f"{self._name}_{len(self.bindings)}", typed.ty)
        self.bindings.append(relax.VarBinding(var, typed))
        return var

    def leaf(self, expr: Any) -> Any:
        """An expression that can be an argument: what is a call becomes a variable."""
        return self.emit(expr) if isinstance(expr, relax.Call) else expr

    def bind(self, var: Any, expr: Any) -> None:
        """Bind an expression to a variable that is there already."""
        self.bindings.append(relax.VarBinding(var, self.typed(expr)))

    def sliced(self, expr: Any, cuts: Sequence[tuple[int, Range]]) -> Any:
        """A slice along some axes, as a variable; the same slice is taken but once."""
        if not cuts:
            return expr
        value = self.leaf(expr)
        key = (hash(value), tuple(cuts))
        if key not in self._slices:
            axes, begin, end = ([*values] for values in zip(*((a, p.start, p.stop) for a, p in cuts), strict=True))
            self._slices[key] = self.emit(relax.op.strided_slice(value, axes, begin, end))
        return self._slices[key]
