"""What the two front ends have in common: data about a network's run, and which generation of TVM is installed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata, util
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from tvm_sramtile.attributes import RegionAttributes
from tvm_sramtile.engine.counters import Measured
from tvm_sramtile.errors import MissingDependency
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.options import Options

Array = NDArray[np.generic]

Generation = Literal["relax", "relay"]

# What only that generation has. TVM 0.15 to 0.19 has a `tvm.relax` too, but not the one served here, whose TIR lives in
# `tvm.tirx`.
_MARKS: dict[Generation, tuple[str, ...]] = {"relax": ("tvm.relax", "tvm.tirx"), "relay": ("tvm.relay",)}
_WANTED: dict[Generation, str] = {
    "relax": "a TVM with today's Relax (apache-tvm 0.26 or newer)",
    "relay": "a TVM with Relay (0.11 to 0.19, or hhb-tvm 3.2.3 from PyPI under Python 3.10)",
}
# Distributions that install a package `tvm`, and the extra that brings them.
_DISTRIBUTIONS: dict[str, Generation] = {"apache-tvm": "relax", "hhb-tvm": "relay"}


def require_tvm(generation: Generation) -> Any:
    """Imports and returns `tvm`, after making sure that it is of the given generation.

    Raises `MissingDependency` where there is no TVM, where it is of the other generation, where two distributions have
    written over each other, and where it does not import.
    """
    installed = [name for name in _DISTRIBUTIONS if _is_installed(name)]
    if len(installed) > 1:
        raise MissingDependency(
            f"{' and '.join(installed)} are both installed, but exclude each other: both install a package 'tvm', and "
            f"each has written over files of the other; make a new virtual environment and {_install(generation)} "
            "there, and nothing of the other extra"
        )
    if util.find_spec("tvm") is None:
        raise MissingDependency(f"tvm is not installed: {_install(generation)}, which brings {_WANTED[generation]}")
    tvm = _import_tvm(generation)
    missing = [name for name in _MARKS[generation] if util.find_spec(name) is None]
    if missing:
        raise MissingDependency(
            f"tvm {getattr(tvm, '__version__', 'of unknown version')} has no {missing[0]}: the {generation} front end "
            f"needs {_WANTED[generation]}; in another virtual environment, {_install(generation)}, since two TVMs "
            "cannot share one"
        )
    return tvm


def _is_installed(distribution: str) -> bool:
    try:
        metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


def _import_tvm(generation: Generation) -> Any:
    try:
        return importlib.import_module("tvm")
    except Exception as error:  # a TVM beside unfitting packages fails in many ways
        raise MissingDependency(
            f"tvm is installed but cannot be imported ({type(error).__name__}: {error}): make a new virtual "
            f"environment and {_install(generation)} there"
        ) from error


def _install(generation: Generation) -> str:
    return f"run pip install 'tvm_sramtile[{generation}]'"


@dataclass(frozen=True, slots=True)
class HostOp:
    """An operator of a partitioned network that stays on the host.

    Attributes:
        op: TVM's name of the operator, e.g. ``nn.conv2d``.
        name: what the front end calls the value, for reports.
        macs: multiply-accumulates of one call; 0 for operators without any.
        reason: why it stays there, in one line.
    """

    op: str
    name: str
    macs: int
    reason: str


@dataclass(frozen=True, slots=True)
class RegionRun:
    """One region in a run of the network: what went in, what came out, what the engine counted."""

    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    measured: Measured


@dataclass(frozen=True, slots=True)
class NetworkRun:
    """A run of a partitioned network: its outputs, and each region by its name."""

    outputs: tuple[Array, ...]
    regions: Mapping[str, RegionRun]


class Frontend(Protocol):
    """What the command line and ``verify`` ask of a front end; ``tvm_sramtile.relax`` and ``.relay`` both have it.

    Modules are ``tvm.IRModule``; inputs of a network are arrays by name.
    """

    def import_onnx(self, proto: Any, shapes: Mapping[str, tuple[int, ...]]) -> Any:
        """An ONNX network with static input shapes as a module, its weights as constants."""
        ...

    def partition_for_sramtile(
        self, mod: Any, spec: AcceleratorSpec | None = None, options: Options | None = None
    ) -> Any:
        """The module with everything the accelerator takes in regions."""
        ...

    def regions(self, mod: Any) -> tuple[RegionAttributes, ...]:
        """The regions of a partitioned module, in the order of execution."""
        ...

    def constants(self, mod: Any) -> Mapping[str, Array]:
        """The values of the constants in the regions of a partitioned module, by digest."""
        ...

    def host_ops(self, mod: Any) -> tuple[HostOp, ...]:
        """What stays on the host, in the order of execution."""
        ...

    def run_host(self, mod: Any, inputs: Mapping[str, Array]) -> tuple[Array, ...]:
        """The outputs of a module that has no regions, under stock TVM."""
        ...

    def run_accelerator(self, mod: Any, inputs: Mapping[str, Array]) -> NetworkRun:
        """Run a partitioned module with the accelerator inside the TVM executable."""
        ...

    def run_regions(
        self, mod: Any, inputs: Mapping[str, tuple[Array, ...]], *, chunked: bool
    ) -> Mapping[str, tuple[Array, ...]]:
        """Run regions' bodies under stock TVM, each on its own inputs: as the op itself, or as the chunked subgraph.

        Args:
            mod: a partitioned module.
            inputs: by region name; only these regions are run.
            chunked: the chunked subgraph in place of the op.
        """
        ...

    def export_library(self, mod: Any, path: str) -> None:
        """Compile a partitioned module to one self-contained library file."""
        ...
