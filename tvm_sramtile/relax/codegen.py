"""The back end ``relax.ext.sramtile``: what ``RunCodegen`` calls with the regions of a module."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm_ffi
from numpy.typing import NDArray
from tvm import relax

from tvm_sramtile.attributes import CODEGEN, RegionAttributes
from tvm_sramtile.compile import Compiled, compile_region
from tvm_sramtile.engine.counters import value_count
from tvm_sramtile.engine.native import engine_object
from tvm_sramtile.engine.stubs import RegionProgram, region_objects
from tvm_sramtile.errors import SramtileError
from tvm_sramtile.ir import Tensor
from tvm_sramtile.relax.access import attributes_of, constant_value
from tvm_sramtile.relax.body import check_region
from tvm_sramtile.relax.module import RegionEntry, TensorType, runtime_modules
from tvm_sramtile.relax.regions import literals_in

NAME = f"relax.ext.{CODEGEN}"


def register() -> None:
    """Make the back end and our errors known to TVM; a second call changes nothing."""
    tvm_ffi.register_global_func(NAME, generate, override=True)
    # Passes and codegen run below C++: an error whose class TVM does not know comes out as a RuntimeError.
    waiting: list[type[SramtileError]] = [SramtileError]
    while waiting:
        kind = waiting.pop()
        tvm_ffi.register_error(f"tvm_sramtile.{kind.__name__}", kind)
        waiting += kind.__subclasses__()


def generate(functions: Sequence[relax.Function], options: Any, constant_names: Any) -> list[Any]:
    """The runtime modules of all the regions of a module.

    Raises:
        CheckFailed: attributes are missing or damaged, or a body is not what its plan says.
    """
    del options, constant_names  # each region carries its own; programs hold the constants
    compiled = {_name(function): compile_function(function) for function in functions}
    return build_modules({name: (region, region.code) for name, region in compiled.items()})


def compile_function(function: relax.Function) -> Compiled:
    """The plan and the program of a region's function: from its attributes, with a look at its body."""
    name = _name(function)
    attributes = RegionAttributes.from_attrs(attributes_of(function), name)
    compiled = compile_region(
        attributes.region, attributes.spec, attributes.options, constant_values(function), attributes.plan
    )
    check_region(name, attributes, function)  # last: its plan has been proven by then
    return compiled


def build_modules(regions: Mapping[str, tuple[Compiled, bytes]]) -> list[Any]:
    """Runtime modules of compiled regions and their programs' bytes, by function name."""
    with tempfile.TemporaryDirectory(prefix="sramtile-") as directory:
        programs = [
            RegionProgram(name, code, _tensor_count(compiled), compiled.step_names)
            for name, (compiled, code) in regions.items()
        ]
        objects = region_objects(programs, Path(directory))
        entries = [
            RegionEntry(
                name=name,
                inputs=tuple(_type(tensor) for tensor in compiled.region.inputs),
                outputs=tuple(_type(tensor) for tensor in compiled.region.outputs),
                images=compiled.region.images,
                counter_count=value_count(len(compiled.region.steps)),
                native=native,
            )
            for (name, (compiled, _)), native in zip(regions.items(), objects, strict=True)
        ]
        return runtime_modules(entries, engine_object())


def constant_values(function: relax.Function) -> dict[str, NDArray[Any]]:
    """The values of a region's constants, by digest."""
    return {digest: constant_value(literal) for digest, literal in literals_in(function).items()}


def _name(function: relax.Function) -> str:
    return str(attributes_of(function)["global_symbol"])


def _tensor_count(compiled: Compiled) -> int:
    return len(compiled.region.inputs) + len(compiled.region.outputs)


def _type(tensor: Tensor) -> TensorType:
    return TensorType(tensor.shape, tensor.dtype)
