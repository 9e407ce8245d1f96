"""A region's body compared with its plan: what TVM would run is what the accelerator is told to do.

The body that the attributes ask for is emitted once more, and the two are compared value by value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm_ffi
from numpy.typing import NDArray
from tvm import relax

from tvm_sramtile.attributes import RegionAttributes
from tvm_sramtile.errors import CheckFailed
from tvm_sramtile.ir import digest_of
from tvm_sramtile.relax.access import constant_value, is_constant, number_of, op_name
from tvm_sramtile.relax.emit import body_is_chunked, region_function
from tvm_sramtile.relax.regions import literals_in
from tvm_sramtile.relax.walk import blocks_of, identity

Array = NDArray[np.generic]
_LOWERED = ("relax.call_tir", "relax.call_dps_packed", "relax.call_pure_packed")


def check_region(name: str, attributes: RegionAttributes, function: relax.Function) -> None:
    """Compare the body of a region with its plan: it is the operators whole, or the plan's chunks.

    Passes that run on a whole module between partitioning and codegen rewrite the bodies of regions too. Where
    operators became ``call_tir`` (``LegalizeOps``, the zero pipeline) there is nothing left to read, and the body is
    accepted: codegen compiles from the attributes, which no pass changes. Values that are shared, renamed or folded
    are followed.

    Raises:
        CheckFailed: the body computes something else than the plan says.
    """
    inputs = attributes.region.inputs
    if len(function.params) != len(inputs):
        raise CheckFailed(f"function {name}: it has {len(function.params)} parameters, its region {len(inputs)}")
    values = _values(function)
    if any(op_name(value) in _LOWERED for value in values.values()):
        return
    literals = literals_in(function)
    for constant in attributes.region.constants:
        if str(constant.digest) not in literals:
            raise CheckFailed(f"function {name}: it does not carry its constant {constant.name} {constant.shape}")
    chunked = body_is_chunked(attributes)
    difference = _difference(function, region_function(attributes, literals, chunked=chunked, codegen=True))
    if difference is None:
        return
    # The limit of chunks to unroll is no part of what is computed: the other body is right as well.
    other = region_function(attributes, literals, chunked=not chunked, codegen=True)
    if _difference(function, other) is not None:
        raise CheckFailed(f"function {name}: {difference}")


def _values(function: relax.Function) -> Mapping[int, Any]:
    """What variables are bound to."""
    return {
        identity(binding.var): binding.value
        for block in blocks_of(function.body)
        for binding in block.bindings
        if isinstance(binding, relax.VarBinding)
    }


def _difference(found: relax.Function, wanted: relax.Function) -> str | None:
    """The first difference between two functions of as many parameters; ``None`` where they compute the same."""
    for ours, theirs in zip(found.params, wanted.params, strict=True):
        if not tvm_ffi.structural_equal(ours.ty, theirs.ty):
            return f"parameter {theirs.name} is {ours.ty}, in its region {theirs.ty}"
    comparison = _Comparison(_Side.of(found), _Side.of(wanted))
    return comparison.run(found.body.body, wanted.body.body)


@dataclass(frozen=True, slots=True)
class _Side:
    """One of two functions: its variables' values, and the positions of its parameters."""

    values: Mapping[int, Any]
    params: Mapping[int, int]

    @staticmethod
    def of(function: relax.Function) -> _Side:
        return _Side(_values(function), {identity(param): at for at, param in enumerate(function.params)})

    def value(self, expr: Any) -> Any:
        """What a variable stands for; a parameter or an expression stands for itself."""
        while isinstance(expr, relax.Var) and identity(expr) in self.values:
            expr = self.values[identity(expr)]
        return expr

    def literal(self, expr: Any) -> Array | None:
        """The value of what is computed from one literal by mere changes of shape; else ``None``."""
        value = self.value(expr)
        if is_constant(value):
            return constant_value(value)
        fold = _FOLDS.get(op_name(value))
        data = None if fold is None else self.literal(value.args[0])
        return None if fold is None or data is None else fold(data, value)


@dataclass(slots=True)
class _Comparison:
    """Goes through two functions at once, each pair of values once."""

    found: _Side
    wanted: _Side
    same: set[tuple[int, int]] = field(default_factory=set)

    def run(self, found: Any, wanted: Any) -> str | None:
        """The first difference; a sum of many parts is too deep to recurse."""
        waiting = [(found, wanted, "its result")]
        while waiting:
            ours, theirs, name = waiting.pop()
            ours, theirs = self.found.value(ours), self.wanted.value(theirs)
            if (hash(ours), hash(theirs)) in self.same:
                continue
            difference = self._here(ours, theirs)
            if difference is not None:
                return f"{name} {difference}"
            self.same.add((hash(ours), hash(theirs)))
            waiting += reversed(list(self._operands(ours, theirs)))
        return None

    def _here(self, ours: Any, theirs: Any) -> str | None:
        """How two values differ, their operands apart."""
        if is_constant(ours):
            if ours.same_as(theirs):
                return None
            value = self.wanted.literal(theirs)
            if value is not None and digest_of(value) == digest_of(constant_value(ours)):
                return None
        elif isinstance(theirs, relax.Var):
            if isinstance(ours, relax.Var) and self.found.params[hash(ours)] == self.wanted.params[hash(theirs)]:
                return None
        elif isinstance(theirs, relax.Call) and isinstance(ours, relax.Call):
            alike = ours.op.same_as(theirs.op) and len(ours.args) == len(theirs.args)
            if alike and tvm_ffi.structural_equal(ours.attrs, theirs.attrs):
                return None
        elif isinstance(theirs, relax.Tuple) and any(map(_is_value, theirs.fields)):
            if isinstance(ours, relax.Tuple) and len(ours.fields) == len(theirs.fields):
                return None
        elif not isinstance(ours, relax.Call | relax.Var) and tvm_ffi.structural_equal(ours, theirs):
            return None
        return f"is {self._text(ours)} in its body, {self._text(theirs)} by its plan"

    def _operands(self, ours: Any, theirs: Any) -> Iterator[tuple[Any, Any, str]]:
        if isinstance(ours, relax.Call):
            for index, pair in enumerate(zip(ours.args, theirs.args, strict=True)):
                yield (*pair, f"operand {index} of {_short(ours)}")
        elif isinstance(ours, relax.Tuple) and any(map(_is_value, ours.fields)):
            for index, pair in enumerate(zip(ours.fields, theirs.fields, strict=True)):
                yield (*pair, f"part {index}")

    @staticmethod
    def _text(value: Any) -> str:
        if isinstance(value, relax.Call):
            attributes = "" if value.attrs is None else str(value.attrs).rpartition("Attrs")[2]
            return f"{_short(value)}{attributes}"
        if is_constant(value):
            return f"a constant of shape {constant_value(value).shape}"
        if isinstance(value, relax.Tuple):
            return f"a tuple of {len(value.fields)}" if any(map(_is_value, value.fields)) else str(value)
        if isinstance(value, relax.Var):
            return f"parameter {value.name}"
        number = number_of(value)
        return str(value if number is None else number)


def _is_value(expr: Any) -> bool:
    return isinstance(expr, relax.Var | relax.Call) or is_constant(expr)


def _short(call: relax.Call) -> str:
    return op_name(call).removeprefix("relax.") or str(call.op)


def _slice(data: Array, call: relax.Call) -> Array:
    axes, begin, end = ([int(bound.value) for bound in bounds.fields] for bounds in call.args[1:4])
    cuts = [slice(None)] * data.ndim
    for axis, start, stop in zip(axes, begin, end, strict=True):
        cuts[axis] = slice(start, stop)
    return data[tuple(cuts)]


def _reshape(data: Array, call: relax.Call) -> Array:
    return data.reshape([int(extent) for extent in call.ty.shape.values])


# What TVM's FoldConstant computes of the weights in a body.
_FOLDS: Mapping[str, Callable[[Array, relax.Call], Array]] = {
    "relax.strided_slice": _slice,
    "relax.reshape": _reshape,
    "relax.squeeze": _reshape,
    "relax.expand_dims": _reshape,
    "relax.permute_dims": lambda data, call: data.transpose([int(axis) for axis in call.attrs.axes]),
}
