"""Constant folding: what TVM would compile code for is often a mere change of shape, done here at once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import tvm
from tvm import relax

from tvm_sramtile.relax.access import constant_value, is_constant, op_name, static_shape
from tvm_sramtile.relax.regions import ModuleEdit
from tvm_sramtile.relax.walk import Uses, blocks_of, identity, plain_functions, rebuild

_RESHAPES = ("relax.reshape", "relax.expand_dims", "relax.squeeze", "relax.flatten")


def fold_constants(mod: tvm.IRModule) -> tvm.IRModule:
    """TVM's constant folding, but for the bodies of functions that are not to be touched."""
    edit = ModuleEdit(mod)
    for var, function in plain_functions(mod):
        reshaped = _fold_reshapes(function)
        if reshaped is not function:
            edit.replace(var, reshaped)
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


def _fold_reshapes(function: relax.Function) -> relax.Function:
    """Literals that are only reshaped, as literals of the new shape, where nothing but calls uses them.

    An imported network has one for each bias, and TVM compiles code to fold each of them.
    """
    literals: dict[int, Any] = {}
    for block in blocks_of(function.body):
        for binding in block.bindings:
            reshaped: Any = getattr(binding, "value", None)
            shape = _reshaped(reshaped)
            if shape is not None:
                value = constant_value(reshaped.args[0]).reshape(shape)
                literals[identity(binding.var)] = relax.const(value, str(reshaped.ty.dtype))
    if not literals:
        return function
    uses = Uses.of(function)
    direct = Counter(
        identity(argument)
        for block in blocks_of(function.body)
        for binding in block.bindings
        if isinstance(getattr(binding, "value", None), relax.Call)
        for argument in binding.value.args
    )
    literals = {key: literal for key, literal in literals.items() if uses.count[key] == direct[key]}

    def rewrite(block: Any, position: int, _: bool) -> list[Any] | None:
        binding = block.bindings[position]
        if identity(binding.var) in literals:
            return []
        value = getattr(binding, "value", None)
        if not isinstance(value, relax.Call) or not any(identity(argument) in literals for argument in value.args):
            return None
        arguments = [literals.get(identity(argument), argument) for argument in value.args]
        call = relax.Call(value.op, arguments, value.attrs, value.ty_args, value.span)
        relax.expr._update_type(call, value.ty)
        return [relax.VarBinding(binding.var, call)]

    return rebuild(function, rewrite)


def _reshaped(value: Any) -> tuple[int, ...] | None:
    if op_name(value) not in _RESHAPES or not is_constant(value.args[0]):
        return None
    return static_shape(value)
