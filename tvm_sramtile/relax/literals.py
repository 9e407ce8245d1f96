"""Constant folding: what TVM would compile code for is mostly a change of shape or a sum, done here at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from tvm_sramtile.relax.access import constant_value, dtype_of, is_constant, is_tensor, op_name, static_shape
from tvm_sramtile.relax.regions import ModuleEdit
from tvm_sramtile.relax.walk import Uses, blocks_of, identity, plain_functions, rebuild

Array = NDArray[Any]


def fold_constants(mod: tvm.IRModule) -> tvm.IRModule:
    """TVM's constant folding, but for the bodies of functions that are not to be touched."""
    edit = ModuleEdit(mod)
    for var, function in plain_functions(mod):
        folded_function = _fold_at_once(function)
        if folded_function is not function:
            edit.replace(var, folded_function)
    mod = edit.result()
    plain = {var.name_hint for var, function in plain_functions(mod) if _has_constant_calls(function)}
    if not plain:  # TVM would lower every operator only to find that
        return mod
    # Regions are held back: folding slices of their weights would take long and be in vain.
    open_to_it = {
        var: function
        for var, function in mod.functions_items()
        if var.name_hint in plain or isinstance(function, tvm.tirx.PrimFunc)
    }
    folded = relax.transform.FoldConstant()(tvm.IRModule(open_to_it, global_infos=mod.global_infos))
    edit = ModuleEdit(mod)
    for var, _ in plain_functions(mod):
        if var.name_hint in plain:
            edit.replace(var, folded[var.name_hint])
    return edit.result()


def _has_constant_calls(function: relax.Function) -> bool:
    """Whether some operator is applied to literals alone."""
    literals: set[int] = set()

    def is_literal(expr: Any) -> bool:
        if isinstance(expr, relax.Tuple):
            return all(is_literal(part) for part in expr.fields)
        return is_constant(expr) or not isinstance(expr, relax.Var) or identity(expr) in literals

    for block in blocks_of(function.body):
        for binding in block.bindings:
            value: Any = getattr(binding, "value", None)
            if is_constant(value):
                literals.add(identity(binding.var))
            elif op_name(value) and value.args and all(is_literal(argument) for argument in value.args):
                return True
    return False


def _fold_at_once(function: relax.Function) -> relax.Function:
    """Calls on literals that numpy computes as TVM does, as literals.

    An imported network has one for each bias and limit, and TVM compiles code to fold each of them.
    """
    folded: dict[int, Any] = {}
    known: dict[int, Any] = {}  # these, and the literals that are bound to variables
    for block in blocks_of(function.body):
        for binding in block.bindings:
            value: Any = getattr(binding, "value", None)
            literal = _computed(value, known)
            if literal is not None:
                folded[identity(binding.var)] = literal
            known[identity(binding.var)] = value if literal is None else literal
    if not folded:
        return function
    replaceable = _used_by_calls_only(function, folded)

    def rewrite(block: Any, position: int, _: bool) -> list[Any] | None:
        binding = block.bindings[position]
        key = identity(binding.var)
        if key in folded:
            return [] if key in replaceable else [relax.VarBinding(binding.var, folded[key])]
        value = _with_literals(getattr(binding, "value", None), folded)
        return None if value is None else [relax.VarBinding(binding.var, value)]

    return rebuild(function, rewrite)


def _computed(value: Any, known: Mapping[int, Any]) -> Any:
    """The literal that a call yields; ``None`` where its operands are none, or numpy is not to compute it."""
    fold = _FOLDERS.get(op_name(value))
    if fold is None:
        return None
    operands = [known.get(identity(argument), argument) for argument in _tensors(value.args)]
    if not operands or not all(is_constant(operand) for operand in operands):
        return None
    arrays = [constant_value(operand) for operand in operands]
    with np.errstate(all="ignore"):
        result = fold(value, *arrays)
    shape, dtype = static_shape(value), dtype_of(value)
    if result is None or shape != result.shape or dtype != result.dtype.name:
        return None
    return relax.const(np.ascontiguousarray(result).reshape(shape), dtype)


def _tensors(arguments: Any) -> list[Any]:
    return [argument for argument in arguments if is_constant(argument) or is_tensor(argument)]


def _used_by_calls_only(function: relax.Function, folded: Mapping[int, Any]) -> set[int]:
    """Those values that can be put into calls in place of their variables, so that nothing else uses these."""
    uses = Uses.of(function)
    direct = Counter(
        identity(part)
        for block in blocks_of(function.body)
        for binding in block.bindings
        if isinstance(getattr(binding, "value", None), relax.Call)
        for argument in binding.value.args
        for part in (argument.fields if isinstance(argument, relax.Tuple) else (argument,))
    )
    return {key for key in folded if uses.count[key] == direct[key]}


def _with_literals(value: Any, folded: Mapping[int, Any]) -> Any:
    """A call with literals among its operands; ``None`` where nothing changes."""
    if not isinstance(value, relax.Call):
        return None

    def known(argument: Any) -> Any:
        if not isinstance(argument, relax.Tuple):
            return folded.get(identity(argument), argument)
        fields = [known(part) for part in argument.fields]
        if all(new.same_as(old) for new, old in zip(fields, argument.fields, strict=True)):
            return argument
        return relax.Tuple(fields)

    arguments = [known(argument) for argument in value.args]
    if all(new.same_as(old) for new, old in zip(arguments, value.args, strict=True)):
        return None
    call = relax.Call(value.op, arguments, value.attrs, value.ty_args, value.span)
    relax.expr._update_type(call, value.ty)
    return call


def _reshape(call: Any, value: Array) -> Array | None:
    shape = static_shape(call)
    return None if shape is None else value.reshape(shape)


def _permute_dims(call: Any, value: Array) -> Array:
    axes = call.attrs.axes
    return value.transpose() if axes is None else value.transpose([int(axis) for axis in axes])


def _where(_: Any, condition: Array, yes: Array, no: Array) -> Array:
    return np.where(condition, yes, no)


def _exact(function: Callable[..., Array]) -> Callable[..., Array | None]:
    """A function that rounds once, in float32, on whatever machine."""

    def fold(_: Any, *values: Array) -> Array | None:
        return function(*values) if all(value.dtype == np.float32 for value in values) else None

    return fold


_FOLDERS: Mapping[str, Callable[..., Array | None]] = {
    **dict.fromkeys(("relax.reshape", "relax.expand_dims", "relax.squeeze", "relax.flatten"), _reshape),
    "relax.permute_dims": _permute_dims,
    "relax.isnan": lambda _, value: np.isnan(value),
    "relax.where": _where,
    "relax.add": _exact(np.add),
    "relax.subtract": _exact(np.subtract),
    "relax.multiply": _exact(np.multiply),
    "relax.divide": _exact(np.divide),
    "relax.sqrt": _exact(np.sqrt),
    "relax.negative": _exact(np.negative),
}
