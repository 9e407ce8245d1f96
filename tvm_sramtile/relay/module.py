"""A region as Relay wants it back from a code generator: a ``tvm.runtime.Module`` with entry, program and engine.

The entry is a TIR function, so TVM itself makes the packed-function ABI; it calls a C stub (``engine.native``) that
runs the region's program. Everything is handed over as object files. In particular the compiled entry is not left as
an LLVM module: TVM would then run it just in time, without the objects it calls, and crash the process where "no such
function" is the right answer. A built library is run after ``export_library`` and ``load_module``; ``load_exported``
does both. Relay's graph executor and its virtual machine can call it; the ahead-of-time executor cannot, for it hands
bare pointers to functions that it has not compiled.
"""

from __future__ import annotations

import functools
import platform
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import tir

from tvm_sramtile.counting import REGIONS, counters_name, mode_name, reset_name
from tvm_sramtile.engine.stubs import REGIONS_SYMBOL, RegionObject


@dataclass(frozen=True, slots=True)
class TensorType:
    """A region's input or output as TVM sees it."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class RegionEntry:
    """What the entry of a region looks like from outside.

    Attributes:
        name: the region's ``global_symbol``; beside it stand the functions of ``tvm_sramtile.counting``.
        images: how many images one call processes (the batch).
        inputs: the types of the region function's parameters, in order.
        outputs: the types of its results, in order.
        counter_count: how many int64 values ``<name>__counters`` writes.
    """

    name: str
    images: int
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    counter_count: int


def host_triple() -> str:
    """This machine's LLVM triple: what the engine's object is compiled for, and not every TVM's own default."""
    machine = platform.machine()
    if sys.platform == "darwin":
        return f"{machine}-apple-darwin"
    return f"{ {'AMD64': 'x86_64', 'arm64': 'aarch64'}.get(machine, machine) }-unknown-linux-gnu"


def host_target() -> str:
    """The TVM target of the code that runs beside the accelerator."""
    return f"llvm -mtriple={host_triple()}"


def region_module(entry: RegionEntry, region: RegionObject, engine: Path) -> Any:
    """The module that ``relay.ext.sramtile`` returns for one region.

    Args:
        entry: the region's name and types.
        region: the object file with its program and stub, from ``engine.native.region_object``.
        engine: the engine's object file, from ``engine.native.engine_object``.

    Returns:
        A ``tvm.runtime.Module`` of static libraries: the entry, which imports the stub, which imports what all regions
        share, which imports the engine.
    """
    stub = tvm.runtime.load_static_library(str(region.path), [])
    stub.import_module(_engine_module(engine, engine.stat().st_mtime_ns))
    module = _built(entry_functions(entry, region))
    module.import_module(stub)
    return module


def _built(functions: tvm.IRModule) -> Any:
    """The functions as a static library."""
    with tempfile.TemporaryDirectory(prefix="sramtile-") as directory:
        path = Path(directory) / "entry.o"
        tvm.build(functions, target=host_target()).save(str(path))
        return tvm.runtime.load_static_library(str(path), [var.name_hint for var in functions.get_global_vars()])


def entry_functions(entry: RegionEntry, region: RegionObject) -> tvm.IRModule:
    """The TIR functions of a region: the entry, its counters, their reset, the mode of its calls."""
    # The stub's reset takes an argument without meaning: an extern call without any is not taken by every TVM.
    calls = {
        entry.name: _Call(region.run_symbol, (*entry.inputs, *entry.outputs), (tir.IntImm("int64", entry.images),)),
        counters_name(entry.name): _Call(region.counters_symbol, (TensorType((entry.counter_count,), "int64"),)),
        reset_name(entry.name): _Call(region.reset_symbol, (), (tir.IntImm("int32", 0),)),
    }
    functions = {name: _packed(name, call, region.raise_symbol) for name, call in calls.items()}
    mode = tir.Var("mode", "int64")
    functions[mode_name(entry.name)] = tir.PrimFunc(
        [mode], tir.Evaluate(tir.call_extern("int32", region.mode_symbol, mode))
    )
    return tvm.IRModule({name: function.with_attr("global_symbol", name) for name, function in functions.items()})


def _regions_function() -> tir.PrimFunc:
    """What tells the regions of a library."""
    handle, length = tir.Var("out", "handle"), tir.Var("length", "int64")
    buffer = tir.decl_buffer([length], "uint8", name="regions")
    call = tir.call_extern("int32", REGIONS_SYMBOL, length, buffer.data)
    return tir.PrimFunc([handle], tir.Evaluate(call), buffer_map={handle: buffer}).with_attr("global_symbol", REGIONS)


def load_exported(library: Any, directory: Path, name: str = "deploy.so") -> Any:
    """Export a library built by ``relay.build`` into ``directory`` and load it back, ready to run."""
    path = directory / name
    library.export_library(str(path))
    return tvm.runtime.load_module(str(path))


@dataclass(frozen=True, slots=True)
class _Call:
    """A C function that returns 0 for success: ``symbol(*scalars, *pointers to tensors)``."""

    symbol: str
    tensors: tuple[TensorType, ...]
    scalars: tuple[Any, ...] = ()


def _packed(name: str, call: _Call, raise_symbol: str) -> tir.PrimFunc:
    """``if symbol(...) != 0: raise``, as a packed function of the tensors.

    The C function has set TVM's error text by then. ``raise_symbol`` is a function of the packed ABI that only reports
    failure: the code TVM makes for the call of such a function returns at once with failure, and the caller raises
    that text. An assertion would replace the text with its own.
    """
    handles = [tir.Var(f"argument{index}", "handle") for index in range(len(call.tensors))]
    buffers = [_buffer(index, tensor) for index, tensor in enumerate(call.tensors)]
    status = tir.call_extern("int32", call.symbol, *call.scalars, *(buffer.data for buffer in buffers))
    no_resource = tir.reinterpret("handle", tir.IntImm("uint64", 0))
    failed = tir.Evaluate(tir.call_cpacked(raise_symbol, no_resource))
    body: Any = tir.IfThenElse(tir.NE(status, tir.IntImm("int32", 0)), failed, None)
    for index, (tensor, buffer) in enumerate(zip(call.tensors, buffers, strict=True)):
        body = _checked(f"{name}: argument {index}", tensor, buffer, body)
    return tir.PrimFunc(handles, body, buffer_map=dict(zip(handles, buffers, strict=True)))


def _buffer(index: int, tensor: TensorType) -> Any:
    # Symbolic extents and offset, which `_checked` compares: not every TVM does so for constant ones.
    extents = [tir.Var(f"tensor{index}_extent{axis}", "int64") for axis in range(len(tensor.shape))]
    offset = tir.Var(f"tensor{index}_offset", "int64")
    return tir.decl_buffer(extents, tensor.dtype, name=f"tensor{index}", elem_offset=offset, offset_factor=1)


def _checked(argument: str, tensor: TensorType, buffer: Any, body: Any) -> Any:
    """``body``, after the proof that a buffer has the tensor's extents and starts at its data."""
    offset = tir.EQ(buffer.elem_offset, tir.IntImm("int64", 0))
    body = tir.AssertStmt(offset, tir.StringImm(f"{argument} must start at its data, without a byte offset"), body)
    for axis, extent in enumerate(tensor.shape):
        matches = tir.EQ(buffer.shape[axis], tir.IntImm("int64", extent))
        text = f"{argument} must have the shape {tensor.shape}: extent of axis {axis} differs"
        body = tir.AssertStmt(matches, tir.StringImm(text), body)
    return body


@functools.lru_cache(maxsize=8)
def _engine_module(path: Path, modified_ns: int) -> Any:
    """What all regions share, one module an engine file: TVM exports it once however many regions import it."""
    del modified_ns  # part of the key only: a rebuilt engine is loaded again
    module = _built(tvm.IRModule({REGIONS: _regions_function()}))
    module.import_module(tvm.runtime.load_static_library(str(path), []))
    return module
