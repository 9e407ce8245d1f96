"""What an importer has lowered already, as operators again: limits (ONNX ``Clip``, so ReLU6) and padding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx, topi

from tvm_sramtile.relax.access import attributes_of, dtype_of, static_shape
from tvm_sramtile.relax.emit import Emitter
from tvm_sramtile.relax.regions import ModuleEdit
from tvm_sramtile.relax.walk import blocks_of, identity, plain_functions, rebuild

_OPS = {"Max": relax.op.maximum, "Min": relax.op.minimum}


_Named = Callable[[Any], Any]
"""From the ``call_tir`` of a function to the operator; to ``None`` where it would mean something else."""


def name_lowered(mod: tvm.IRModule) -> tvm.IRModule:
    """Each ``call_tir`` of a function that is nothing but an elementwise limit or padding becomes the operator."""
    named = {
        var.name_hint: operator
        for var, function in mod.functions_items()
        if isinstance(function, tirx.PrimFunc) and (operator := _operator_of(function)) is not None
    }
    if not named:
        return mod
    edit = ModuleEdit(mod)
    for var, function in plain_functions(mod):
        rewritten = _rewritten(function, named)
        if rewritten is not function:
            edit.replace(var, rewritten)
    return _without_unused(edit.result(), mod)


def _operator_of(function: tirx.PrimFunc) -> _Named | None:
    """What a function does, if all it does is an elementwise limit or padding with a number."""
    store = _elementwise_store(function)
    if store is None:
        return None
    *inputs, output = function.params
    if not store.buffer.same_as(output) or not inputs:
        return None
    operator = _OPS.get(type(store.value).__name__)
    return _pad(function, store) if operator is None else _limit(operator, store, inputs)


def _limit(operator: Any, store: Any, inputs: list[Any]) -> _Named | None:
    first, second = store.value.a, store.value.b
    if not _is_load(first, inputs[0], list(store.indices)):
        return None
    number = float(second.value) if isinstance(second, tirx.FloatImm) and len(inputs) == 1 else None
    if number is None and not (len(inputs) == 2 and _is_load(second, inputs[1], [])):
        return None

    def limited(call: Any) -> Any:
        data, *rest = call.args[1].fields
        # The same shape and type in and out: then the operator cannot mean anything else.
        if static_shape(call) is None or static_shape(call) != static_shape(data):
            return None
        return operator(data, *rest) if number is None else operator(data, relax.const(number, dtype_of(data)))

    return limited


def _pad(function: tirx.PrimFunc, store: Any) -> _Named | None:
    """Padding as TOPI writes it: the element read is as far behind the one written as padding is before the map."""
    choice = store.value
    if not getattr(getattr(choice, "op", None), "name", "").endswith("if_then_else"):
        return None
    _, load, value = choice.args
    if not isinstance(value, tirx.FloatImm) or len(getattr(load, "indices", ())) != len(store.indices):
        return None
    before = [getattr(getattr(index, "b", 0), "value", 0) for index in load.indices]

    def padded(call: Any) -> Any:
        data = call.args[1].fields[0]
        source, out = static_shape(data), static_shape(call)
        if len(call.args[1].fields) != 1 or source is None or out is None or len(source) != len(before):
            return None
        after = [whole - part - first for whole, part, first in zip(out, source, before, strict=True)]
        if min(*before, *after) < 0 or not _is_padding(function, data, before, after, float(value.value)):
            return None
        width = [extent for pair in zip(before, after, strict=True) for extent in pair]
        return relax.op.nn.pad(data, width, "constant", float(value.value))

    return padded


def _is_padding(function: tirx.PrimFunc, data: Any, before: list[int], after: list[int], value: float) -> bool:
    """Whether a function is exactly what TOPI makes of this padding."""
    builder, x = relax.BlockBuilder(), relax.Var("x", data.ty)
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit_te(topi.nn.pad, x, before, after, value))
    made = [one for one in builder.get().functions.values() if isinstance(one, tirx.PrimFunc)]
    return len(made) == 1 and bool(tvm_ffi.structural_equal(made[0], function, map_free_vars=True))


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


def _rewritten(function: relax.Function, named: Mapping[str, _Named]) -> relax.Function:
    calls: dict[tuple[int, int], tuple[Any, Any]] = {}
    for block in blocks_of(function.body):
        for position, binding in enumerate(block.bindings):
            new = _named(getattr(binding, "value", None), named)
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


def _named(value: Any, named: Mapping[str, _Named]) -> Any:
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op) or value.op.name != "relax.call_tir":
        return None
    operator = named.get(value.args[0].name_hint)
    return operator(value) if operator is not None and len(value.args) == 2 else None


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
