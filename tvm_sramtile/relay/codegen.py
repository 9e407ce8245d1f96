"""The BYOC back end ``sramtile`` of Relay: what TVM calls for each region of a module that is built."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import relay

from tvm_sramtile.engine.native import ENGINE_SOURCES, engine_object, region_object
from tvm_sramtile.relay.module import RegionEntry, region_module

COMPILER = "sramtile"
"""The value of a region function's ``Compiler`` attribute."""


@dataclass(frozen=True, slots=True)
class CompiledRegion:
    """A region ready to be linked: how it is called, and the program that runs then."""

    entry: RegionEntry
    program: bytes


RegionCompiler = Callable[[relay.Function], CompiledRegion]


def register(compile_region: RegionCompiler, sources: Path = ENGINE_SOURCES) -> None:
    """Register the back end in this process; a second call replaces the first.

    Args:
        compile_region: from a region function to its program.
        sources: the engine's C sources.
    """

    def generate(function: relay.Function) -> Any:
        return build_region(compile_region(function), sources)

    tvm.register_func(f"relay.ext.{COMPILER}", generate, override=True)
    tvm.register_func(f"relay.ext.{COMPILER}.constant_updater", _no_constants, override=True)


def build_region(region: CompiledRegion, sources: Path = ENGINE_SOURCES) -> Any:
    """The module that Relay's build expects for a region: entry, program and engine as static libraries."""
    entry = region.entry
    tensor_count = len(entry.inputs) + len(entry.outputs)
    with tempfile.TemporaryDirectory(prefix="sramtile-") as directory:
        native = region_object(entry.name, region.program, tensor_count, Path(directory), sources)
        return region_module(entry, native, engine_object(sources))


def _no_constants(function: relay.Function, symbol: str) -> dict[str, Any]:
    """The program holds a region's constants, packed; without this, TVM would store them a second time."""
    del function, symbol
    return {}
