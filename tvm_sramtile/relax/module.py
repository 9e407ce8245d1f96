"""From compiled regions to the runtime modules that ``relax.ext.sramtile`` returns.

The entry of a region is a TIR function that calls the region's C stub, so TVM itself makes the packed function and
checks its arguments. Beside the entries stand the functions of ``tvm_sramtile.counting``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import te, tirx

from tvm_sramtile.counting import REGIONS, counters_name, mode_name, reset_name
from tvm_sramtile.engine.stubs import REGIONS_SYMBOL, RegionObject

DEFAULT_TARGET = "llvm"


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and element type of an array, as numpy names them."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class RegionEntry:
    """A region as its callers see it.

    Attributes:
        name: the region function's global symbol: what the caller's ``call_dps_packed`` looks up.
        inputs: types of the tensors that a call brings.
        outputs: types of the tensors that a call brings to be written; they follow the inputs.
        images: how many times a call runs the program (the batch).
        counter_count: how many int64 values ``<name>__counters`` writes.
        native: the program and its stubs.
    """

    name: str
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    images: int
    counter_count: int
    native: RegionObject

    def __post_init__(self) -> None:
        tensors = len(self.inputs) + len(self.outputs)
        if tensors != self.native.tensor_count:
            raise ValueError(f"region {self.name!r} has {tensors} tensors, its object {self.native.tensor_count}")


def runtime_modules(entries: Sequence[RegionEntry], engine: Path, target: tvm.target.Target | None = None) -> list[Any]:
    """The modules of some regions: their entries, compiled for the host, and the objects these need.

    The objects are read at once; their files may vanish afterwards.

    Args:
        entries: all the regions of one executable.
        engine: the engine's object file.
        target: what the entries are compiled for; by default the current target's host.
    """
    functions = {REGIONS: _regions_function()} if entries else {}
    for entry in entries:
        functions[entry.name] = _entry_function(entry)
        functions[counters_name(entry.name)] = _counters_function(entry)
        functions[reset_name(entry.name)] = _reset_function(entry.native)
        functions[mode_name(entry.name)] = _mode_function(entry.native)
    named = {name: function.with_attr("global_symbol", name) for name, function in functions.items()}
    library = tvm.compile(tvm.IRModule(named), _host_target(target)).mod
    objects = dict.fromkeys([*(entry.native.path for entry in entries), engine])
    return [library, *(tvm.runtime.load_static_library(str(path), []) for path in objects)]


def _host_target(target: tvm.target.Target | None) -> tvm.target.Target:
    """Entries run on the host, also where the rest of the module is compiled for a device."""
    chosen = target or tvm.target.Target.current(allow_none=True) or tvm.target.Target(DEFAULT_TARGET)
    host = chosen.host or chosen
    return host if "cpu" in host.keys else tvm.target.Target(DEFAULT_TARGET)


def _entry_function(entry: RegionEntry) -> tirx.PrimFunc:
    inputs = [
        te.placeholder(tensor.shape, tensor.dtype, name=f"input{index}") for index, tensor in enumerate(entry.inputs)
    ]

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> tirx.Stmt:
        pointers = [*(buffer.access_ptr("r") for buffer in ins), *(buffer.access_ptr("w") for buffer in outs)]
        images = tirx.IntImm("int64", entry.images)
        result = tirx.call_extern("int32", entry.native.run_symbol, images, *pointers)
        # A variable, because 0.26 cannot lower a condition with pointers in it.
        code = tirx.Var("code", "int32")
        # The result of a plain C call is not looked at, that of a packed one is: it makes TVM raise what `run` has set.
        failed = tirx.Evaluate(tirx.call_cpacked(entry.native.raise_symbol, 0))
        return tirx.SeqStmt([tirx.Bind(code, result), tirx.IfThenElse(code != 0, failed, None)])

    outputs = te.extern(
        [tensor.shape for tensor in entry.outputs],
        inputs,
        body,
        dtype=[tensor.dtype for tensor in entry.outputs],
        name="output",
    )
    return te.create_prim_func([*inputs, *(outputs if isinstance(outputs, list) else [outputs])])


def _counters_function(entry: RegionEntry) -> tirx.PrimFunc:
    def body(_: Sequence[Any], outs: Sequence[Any]) -> tirx.Expr:
        return tirx.call_extern("int32", entry.native.counters_symbol, outs[0].access_ptr("w"))

    return te.create_prim_func([te.extern([(entry.counter_count,)], [], body, dtype=["int64"], name="counters")])


def _reset_function(native: RegionObject) -> tirx.PrimFunc:
    return tirx.PrimFunc([], tirx.Evaluate(tirx.call_extern("int32", native.reset_symbol, 0)))


def _mode_function(native: RegionObject) -> tirx.PrimFunc:
    mode = tirx.Var("mode", "int64")
    return tirx.PrimFunc([mode], tirx.Evaluate(tirx.call_extern("int32", native.mode_symbol, mode)))


def _regions_function() -> tirx.PrimFunc:
    length = tirx.Var("length", "int64")

    def body(_: Sequence[Any], outs: Sequence[Any]) -> tirx.Expr:
        return tirx.call_extern("int32", REGIONS_SYMBOL, length, outs[0].access_ptr("w"))

    return te.create_prim_func([te.extern([(length,)], [], body, dtype=["uint8"], name="regions")])
