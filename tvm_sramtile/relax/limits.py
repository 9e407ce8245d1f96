"""``maximum`` and ``minimum`` that an importer has lowered already (ONNX ``Clip``, so ReLU6), as operators again."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, tirx

from tvm_sramtile.relax.access import attributes_of, dtype_of, static_shape
from tvm_sramtile.relax.emit import Emitter
from tvm_sramtile.relax.regions import ModuleEdit
from tvm_sramtile.relax.walk import blocks_of, identity, plain_functions, rebuild

_OPS = {"Max": relax.op.maximum, "Min": relax.op.minimum}


def name_limits(mod: tvm.IRModule) -> tvm.IRModule:
    """Each ``call_tir`` of a function that is nothing but an elementwise limit becomes the operator."""
    limits = {
        var.name_hint: limit
        for var, function in mod.functions_items()
        if isinstance(function, tirx.PrimFunc) and (limit := _limit_of(function)) is not None
    }
    if not limits:
        return mod
    edit = ModuleEdit(mod)
    for var, function in plain_functions(mod):
        rewritten = _rewritten(function, limits)
        if rewritten is not function:
            edit.replace(var, rewritten)
    return _without_unused(edit.result(), mod)


_Limit = tuple[Any, "float | None", int]
"""An operator, its literal limit if it has one, and the number of tensors that it takes."""


def _limit_of(function: tirx.PrimFunc) -> _Limit | None:
    """What a function does, if all it does is an elementwise limit."""
    store = _elementwise_store(function)
    if store is None:
        return None
    *inputs, output = function.params
    operator = _OPS.get(type(store.value).__name__)
    if operator is None or not store.buffer.same_as(output) or not inputs:
        return None
    first, second = store.value.a, store.value.b
    if not _is_load(first, inputs[0], list(store.indices)):
        return None
    if isinstance(second, tirx.FloatImm) and len(inputs) == 1:
        return operator, float(second.value), 1
    return (operator, None, 2) if len(inputs) == 2 and _is_load(second, inputs[1], []) else None


def _elementwise_store(function: tirx.PrimFunc) -> Any:
    """The one statement of a function that is a loop nest over all elements of its output, in order; else ``None``."""
    loops: list[Any] = []
    realize: Any = None
    node = function.body
    while not isinstance(node, tirx.BufferStore):
        if isinstance(node, tirx.For):
            loops.append(node)
            node = node.body
        elif hasattr(node, "block") and hasattr(node, "iter_values"):
            realize = node
            node = node.block.body
        else:
            return None
    if realize is None:
        return None
    bound = [value.same_as(loop.loop_var) for value, loop in zip(realize.iter_values, loops, strict=False)]
    indices = list(node.indices)
    stored = [index.same_as(iterator.var) for index, iterator in zip(indices, realize.block.iter_vars, strict=False)]
    extents = [getattr(loop.extent, "value", None) for loop in loops]
    shape = [getattr(extent, "value", None) for extent in node.buffer.shape]
    counts = {len(loops), len(realize.iter_values), len(indices), len(shape)}
    whole = len(counts) == 1 and all(bound) and all(stored) and extents == shape and None not in shape
    return node if whole and getattr(realize.predicate, "value", None) == 1 else None


def _is_load(expr: Any, tensor: Any, indices: list[Any]) -> bool:
    source = getattr(expr, "source", getattr(expr, "buffer", None))  # of a TensorLoad in 0.27, a BufferLoad in 0.26
    return (
        source is not None
        and source.same_as(tensor)
        and len(expr.indices) == len(indices)
        and all(mine.same_as(its) for mine, its in zip(expr.indices, indices, strict=True))
    )


def _rewritten(function: relax.Function, limits: dict[str, _Limit]) -> relax.Function:
    calls: dict[tuple[int, int], tuple[Any, Any]] = {}
    for block in blocks_of(function.body):
        for position, binding in enumerate(block.bindings):
            new = _operator_of(getattr(binding, "value", None), limits)
            if new is not None:
                calls[identity(block), position] = (binding.var, new)

    def rewrite(block: Any, position: int, dataflow: bool) -> list[Any] | None:
        call = calls.get((identity(block), position))
        if call is None:
            return None
        out = Emitter(str(call[0].name), dataflow=dataflow)
        out.bind(*call)
        return out.bindings

    return rebuild(function, rewrite) if calls else function


def _operator_of(value: Any, limits: dict[str, _Limit]) -> Any:
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op) or value.op.name != "relax.call_tir":
        return None
    limit = limits.get(value.args[0].name_hint)
    tensors = list(value.args[1].fields)
    if limit is None or len(value.args) != 2 or len(tensors) != limit[2]:
        return None
    operator, number, _ = limit
    # The same shape and type in and out: then the operator cannot mean anything else.
    if static_shape(value) is None or static_shape(value) != static_shape(tensors[0]):
        return None
    return operator(tensors[0], tensors[1] if number is None else relax.const(number, dtype_of(tensors[0])))


def _without_unused(mod: tvm.IRModule, before: tvm.IRModule) -> tvm.IRModule:
    """Without the private functions that lost their last call."""
    called, called_before = (
        {
            var.name_hint
            for function in module.functions.values()
            if isinstance(function, relax.Function)
            for var in relax.analysis.all_global_vars(function)
        }
        for module in (mod, before)
    )
    gone = {
        var.name_hint
        for var, function in mod.functions_items()
        if isinstance(function, tirx.PrimFunc)
        and var.name_hint in called_before - called
        and attributes_of(function).get("global_symbol") is None
    }
    if not gone:
        return mod
    kept = {var: function for var, function in mod.functions_items() if var.name_hint not in gone}
    return tvm.IRModule(kept, attrs=mod.attrs, global_infos=mod.global_infos)
