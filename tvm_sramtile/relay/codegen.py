"""The BYOC back end ``sramtile`` of Relay: what TVM calls for each region of a module that is built."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import relay

from tvm_sramtile.attributes import CODEGEN, RegionAttributes
from tvm_sramtile.compile import Compiled, compile_region
from tvm_sramtile.engine.counters import value_count
from tvm_sramtile.engine.native import ENGINE_SOURCES, engine_object
from tvm_sramtile.engine.stubs import RegionProgram, region_object
from tvm_sramtile.ir import Tensor
from tvm_sramtile.relay.access import constant_value
from tvm_sramtile.relay.body import check_function
from tvm_sramtile.relay.functions import constant_nodes, read_attributes
from tvm_sramtile.relay.module import RegionEntry, TensorType, region_module


@dataclass(frozen=True, slots=True)
class CompiledRegion:
    """A region ready to be linked: how it is called, the program that runs then, and the names of its steps."""

    entry: RegionEntry
    program: bytes
    steps: tuple[str, ...]


RegionCompiler = Callable[[relay.Function], CompiledRegion]


def compile_function(function: relay.Function) -> CompiledRegion:
    """The program of a region function, from its attributes; its body is checked first.

    Raises:
        CheckFailed: attributes, body or plan are damaged.
    """
    name = str(function.attrs["global_symbol"])
    attributes = read_attributes(name, function)
    region = attributes.region
    counter_count = value_count(len(region.steps))
    entry = RegionEntry(name, region.images, _types(region.inputs), _types(region.outputs), counter_count)
    made = compiled(name, function, attributes)
    return CompiledRegion(entry, made.code, made.step_names)


def compiled(name: str, function: relay.Function, attributes: RegionAttributes) -> Compiled:
    """Region, plan and program of a region function whose attributes have been read."""
    check_function(name, function, attributes)
    return compile_region(
        attributes.region, attributes.spec, attributes.options, constants_of(function), attributes.plan
    )


def constants_of(function: relay.Function) -> dict[str, Any]:
    """The constants of a function's body by their digests."""
    return {digest: constant_value(node) for digest, node in constant_nodes(function).items()}


def _types(tensors: tuple[Tensor, ...]) -> tuple[TensorType, ...]:
    return tuple(TensorType(tensor.shape, tensor.dtype) for tensor in tensors)


def register(region_compiler: RegionCompiler = compile_function, sources: Path = ENGINE_SOURCES) -> None:
    """Register the back end in this process; a second call replaces the first.

    Args:
        region_compiler: from a region function to its program.
        sources: the engine's C sources.
    """

    def generate(function: relay.Function) -> Any:
        return build_region(region_compiler(function), sources)

    tvm.register_func(f"relay.ext.{CODEGEN}", generate, override=True)
    tvm.register_func(f"relay.ext.{CODEGEN}.constant_updater", _no_constants, override=True)


def build_region(region: CompiledRegion, sources: Path = ENGINE_SOURCES) -> Any:
    """The module that Relay's build expects for a region: entry, program and engine as static libraries."""
    entry = region.entry
    tensor_count = len(entry.inputs) + len(entry.outputs)
    with tempfile.TemporaryDirectory(prefix="sramtile-") as directory:
        program = RegionProgram(entry.name, region.program, tensor_count, region.steps)
        native = region_object(program, Path(directory), sources)
        return region_module(entry, native, engine_object(sources))


def _no_constants(function: relay.Function, symbol: str) -> dict[str, Any]:
    """The program holds a region's constants, packed; without this, TVM would store them a second time."""
    del function, symbol
    return {}
