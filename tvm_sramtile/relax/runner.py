"""Importing, running and exporting: what the command line and ``verify`` ask of a front end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvm_sramtile.attributes import RegionAttributes
from tvm_sramtile.counting import counters, reset_counters
from tvm_sramtile.errors import ModelError
from tvm_sramtile.frontend import Array, NetworkRun, RegionRun
from tvm_sramtile.relax.access import called_function
from tvm_sramtile.relax.codegen import constant_values
from tvm_sramtile.relax.emit import region_function
from tvm_sramtile.relax.module import DEFAULT_TARGET
from tvm_sramtile.relax.pipeline import PIPELINE
from tvm_sramtile.relax.regions import (
    ModuleEdit,
    Names,
    attributes_in,
    functions_in_order,
    is_region,
    literals_in,
)
from tvm_sramtile.relax.walk import plain_functions, rebuild

MAIN = "main"


def import_onnx(proto: Any, shapes: Mapping[str, tuple[int, ...]]) -> tvm.IRModule:
    """An ONNX network with static input shapes as a module, its weights as constants.

    Inputs keep their names, whatever characters these have.
    """
    from tvm.relax.frontend.onnx import from_onnx

    wanted = {name: list(shape) for name, shape in shapes.items()}
    return from_onnx(proto, shape_dict=wanted, sanitize_input_names=False)


def regions(mod: tvm.IRModule) -> tuple[RegionAttributes, ...]:
    """The regions of a partitioned module, in the order of execution."""
    return tuple(attributes_in(var, function) for var, function in functions_in_order(mod) if is_region(function))


def constants(mod: tvm.IRModule) -> Mapping[str, Array]:
    """The values of the constants in the regions of a partitioned module, by digest."""
    values: dict[str, Array] = {}
    for function in mod.functions.values():
        if is_region(function):
            values |= constant_values(function)
    return values


def run_host(mod: tvm.IRModule, inputs: Mapping[str, Array]) -> tuple[Array, ...]:
    """The outputs of a module that has no regions, under stock TVM."""
    machine = relax.VirtualMachine(tvm.compile(mod, DEFAULT_TARGET), tvm.cpu())
    return _arrays(machine[MAIN](*_arguments(mod[MAIN], inputs)))


def run_accelerator(mod: tvm.IRModule, inputs: Mapping[str, Array]) -> NetworkRun:
    """Run a partitioned module with the accelerator inside the TVM executable.

    Of a region that is called several times (in a function that is), the first call is told of. Regions in the branches
    of an ``if`` and in functions that call themselves are run, but not among the results.
    """
    known = {var.name_hint for var in mod.get_global_vars()}  # copies of regions have new names
    observed, calls = _observed(_flattened(mod))
    machine = relax.VirtualMachine(compile_partitioned(observed), tvm.cpu())
    arguments = _arguments(mod[MAIN], inputs)

    if calls:
        reset_counters(machine)
    outputs, seen = machine[MAIN](*arguments)
    measured = counters(machine).regions if calls else {}
    values = iter(_arrays(seen))
    runs: dict[str, RegionRun] = {}
    for call in calls:
        given = tuple(next(values) for _ in range(call.inputs))
        returned = tuple(next(values) for _ in range(call.outputs))
        if call.region in known:
            runs[call.region] = RegionRun(given, returned, measured[call.region].measured)
    return NetworkRun(_arrays(outputs), runs)


def run_regions(
    mod: tvm.IRModule, inputs: Mapping[str, tuple[Array, ...]], *, chunked: bool
) -> Mapping[str, tuple[Array, ...]]:
    """Run regions' bodies under stock TVM, each on its own inputs: as the operator itself, or as the chunked subgraph.

    All of them are compiled at once.
    """
    functions: dict[Any, Any] = {}
    for var, function in mod.functions_items():
        if var.name_hint in inputs and is_region(function):
            attributes = attributes_in(var, function)
            functions[tvm.ir.GlobalVar(var.name_hint)] = region_function(
                attributes, literals_in(function), chunked=chunked, codegen=False
            )
    missing = sorted(set(inputs) - {var.name_hint for var in functions})
    if missing:
        raise ModelError(f"the module has no region {missing[0]!r}")
    if not functions:
        return {}
    machine = relax.VirtualMachine(tvm.compile(tvm.IRModule(functions), DEFAULT_TARGET), tvm.cpu())
    return {name: _arrays(machine[name](*map(_tensor, arrays))) for name, arrays in inputs.items()}


def compile_partitioned(mod: tvm.IRModule, target: Any = DEFAULT_TARGET) -> Any:
    """The executable of a partitioned module, its regions compiled by our back end."""
    return tvm.compile(mod, target, relax_pipeline=PIPELINE)


def export_library(mod: tvm.IRModule, path: str) -> None:
    """Compile a partitioned module to one self-contained library file."""
    compile_partitioned(mod).export_library(path)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a region in ``main``: how many tensors go in and come out."""

    region: str
    inputs: int
    outputs: int


def _flattened(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with plain functions inlined in ``main``, where each further call of a region is one of a copy."""
    recursive = {var.name_hint for group in relax.analysis.detect_recursion(mod) for var in group}
    plain = {var: f for var, f in plain_functions(mod) if var.name_hint not in {MAIN, *recursive}}
    main = mod[MAIN].inline_functions(plain) if plain else mod[MAIN]
    edit, names, called = ModuleEdit(mod), Names.of(mod), set[str]()

    def rewrite(block: Any, position: int, _: bool) -> list[Any] | None:
        binding = block.bindings[position]
        var = called_function(getattr(binding, "value", None))
        if var is None or not is_region(mod[var]):
            return None
        if var.name_hint not in called:
            called.add(var.name_hint)
            return None
        name = names.new("copy")
        copy = edit.add(name, mod[var].with_attr("global_symbol", name))
        call = relax.Call(copy, binding.value.args)
        relax.expr._update_type(call, binding.value.ty)
        return [relax.VarBinding(binding.var, call)]

    edit.add(MAIN, rebuild(main, rewrite))
    return edit.result()


def _observed(mod: tvm.IRModule) -> tuple[tvm.IRModule, tuple[_Call, ...]]:
    """The module with a ``main`` that returns, beside its result, what each region was given and gave back."""
    outputs = {
        var.name_hint: len(attributes_in(var, function).region.outputs)
        for var, function in mod.functions_items()
        if is_region(function)
    }
    calls: list[_Call] = []
    blocks: list[Any] = []
    seen: list[Any] = []
    builder = relax.BlockBuilder()

    def bound(name: str, fields: list[Any]) -> Any:
        value = builder.normalize(relax.Tuple(fields))
        return relax.VarBinding(relax.Var(name, value.ty), value)

    for block in mod[MAIN].body.blocks:
        tensors: list[Any] = []
        for binding in block.bindings:
            called = called_function(getattr(binding, "value", None))
            if called is not None and called.name_hint in outputs:
                tensors += [*binding.value.args, binding.var]
                calls.append(_Call(called.name_hint, len(binding.value.args), outputs[called.name_hint]))
        if tensors:  # a tuple that leaves the block: the variables of a dataflow block cannot
            kind = relax.DataflowBlock if isinstance(block, relax.DataflowBlock) else relax.BindingBlock
            last = bound("seen", tensors)
            seen.append(last.var)
            block = kind([*block.bindings, last])
        blocks.append(block)
    result = bound("observed", [mod[MAIN].body.body, builder.normalize(relax.Tuple(seen))])
    blocks.append(relax.BindingBlock([result]))
    body = relax.SeqExpr(blocks, result.var)
    relax.expr._update_type(body, result.var.ty)
    main = relax.Function(mod[MAIN].params, body, result.var.ty, mod[MAIN].is_pure, mod[MAIN].attrs)
    edit = ModuleEdit(mod)
    edit.add(MAIN, main)
    return edit.result(), tuple(calls)


def _arguments(main: relax.Function, inputs: Mapping[str, Array]) -> list[Any]:
    """The arguments of ``main`` in order; raises ``ModelError`` where one is missing or unknown."""
    names = [str(param.name) for param in main.params]
    for name in (*names, *inputs):
        if name not in inputs or name not in names:
            problem = "is missing" if name in names else "is unknown"
            raise ModelError(f"input {name!r} {problem}: the network's inputs are {', '.join(names)}")
    return [_tensor(inputs[name]) for name in names]


def _tensor(array: Array) -> Any:
    return tvm.runtime.tensor(np.asarray(array, order="C"))


def _arrays(value: Any) -> tuple[Array, ...]:
    """The arrays in a result of the machine, nested tuples laid out flat."""
    if isinstance(value, tvm.runtime.Tensor):
        return (value.numpy(),)
    return tuple(array for part in value for array in _arrays(part))
