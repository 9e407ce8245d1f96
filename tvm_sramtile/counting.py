"""The counters of a built network: read, reset, and what its calls do besides counting.

A library that holds regions has these functions, on both generations of TVM. What a call of a region measures is merged
into the region's counters when it ends; threads may call, read and reset at any time.

* ``sramtile__regions(out)`` copies into a uint8 tensor, as far as it is long, the length of a text (8 bytes) and the
  text: one JSON object a region, each followed by NUL, with its name and those of its steps.
* ``<region>__counters(out)`` copies the counters into an int64 tensor, ``<region>__reset()`` zeroes them.
* ``<region>__mode(mode)`` sets the mode (``isa.table.Mode``) of the calls that start from now on.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_sramtile.engine.counters import CommandCounters, Measured, value_count
from tvm_sramtile.errors import ModelError, OptionError
from tvm_sramtile.isa.table import Mode

REGIONS = "sramtile__regions"
_LENGTH_BYTES = 8
_MODES = {mode.name.lower().replace("_", "-"): mode for mode in Mode}


def counters_name(region: str) -> str:
    """Name of the function that copies a region's counters."""
    return f"{region}__counters"


def reset_name(region: str) -> str:
    """Name of the function that zeroes a region's counters."""
    return f"{region}__reset"


def mode_name(region: str) -> str:
    """Name of the function that sets the mode of a region's calls."""
    return f"{region}__mode"


@dataclass(frozen=True, slots=True)
class StepCounters:
    """One step of a region: what its commands of each kind measured, by the opcode's name."""

    name: str
    commands: Mapping[str, CommandCounters]


@dataclass(frozen=True, slots=True)
class RegionCounters:
    """One region: the sums over its calls, and each of its steps."""

    name: str
    measured: Measured
    steps: tuple[StepCounters, ...]


@dataclass(frozen=True, slots=True)
class Counters:
    """What the regions of a network have measured since they were loaded or reset, by region."""

    regions: Mapping[str, RegionCounters]

    def __str__(self) -> str:
        """A line for each region and, below it, for each kind of command in each step."""
        return "\n".join(line for region in self.regions.values() for line in _lines(region))

    def to_json(self) -> str:
        """``{"regions": [{"name", the fields of Measured, "steps": [{"name", "commands": {OPCODE: {...}}}]}]}``."""
        regions = []
        for region in self.regions.values():
            totals = {key: value for key, value in asdict(region.measured).items() if key != "steps"}
            steps = [asdict(step) for step in region.steps]
            regions.append({"name": region.name, **totals, "steps": steps})
        return json.dumps({"regions": regions}, indent=2)


def _lines(region: RegionCounters) -> Iterator[str]:
    total = region.measured
    yield (
        f"{region.name}: {total.calls:,} calls, {total.cycles:,} cycles, {total.dram_bytes:,} B of DRAM traffic, "
        f"{total.macs:,} MACs, SRAM peak {total.sram_peak_bytes:,} B"
    )
    for step in region.steps:
        for kind, counted in step.commands.items():
            yield (
                f"    {step.name} {kind}: {counted.commands:,} commands, {counted.busy_cycles:,} cycles, "
                f"{counted.dram_bytes:,} B, {counted.macs:,} MACs"
            )


def counters(module: Any) -> Counters:
    """What the regions of a built network have measured.

    Args:
        module: a library that was exported and loaded (``tvm.runtime.load_module``); of Relax also what ``tvm.compile``
            returned, or a ``VirtualMachine``.

    Raises:
        ModelError: there are no compiled regions in it.
    """
    library = _library(module)
    return Counters({name: _region(library, name, steps) for name, steps in _regions(library).items()})


def reset_counters(module: Any) -> None:
    """Set the counters of all regions to zero; for the argument and the error see ``counters``."""
    library = _library(module)
    for name in _regions(library):
        library(reset_name(name))()


def set_mode(module: Any, mode: str) -> None:
    """What the calls of all regions do that start from now on, in any thread.

    Args:
        module: see ``counters``.
        mode: ``"run"``: execute and count, as at the start; ``"count-only"``: count the same without any arithmetic, so
            that outputs are left as they are; ``"checked"``: refuse programs that read SRAM which nothing has written.

    Raises:
        OptionError: there is no such mode.
        ModelError: there are no compiled regions in the module.
    """
    if mode not in _MODES:
        raise OptionError(f"mode {mode!r}: must be one of {', '.join(_MODES)}")
    library = _library(module)
    for name in _regions(library):
        library(mode_name(name))(int(_MODES[mode]))


_Library = Callable[[str], Callable[..., Any]]  # from a function's name to the function


def _library(module: Any) -> _Library:
    if hasattr(module, "jit"):  # what tvm.compile of Relax returned
        module = module.jit()
    loaded = getattr(module, "module", module)

    def function(name: str) -> Callable[..., Any]:
        found: Callable[..., Any] = loaded.get_function(name, query_imports=True)
        return found

    return function


def _regions(library: _Library) -> dict[str, tuple[str, ...]]:
    """The steps of each region."""
    try:
        tell = library(REGIONS)
    except AttributeError:
        raise ModelError(
            f"the module has no function {REGIONS}: it must be a network with regions of sramtile that was compiled "
            "and, in Relay, exported and loaded"
        ) from None
    length = int.from_bytes(_filled(tell, _LENGTH_BYTES, "uint8").tobytes(), "little")
    text = _filled(tell, _LENGTH_BYTES + length, "uint8").tobytes()[_LENGTH_BYTES:]
    told = [json.loads(part) for part in text.split(b"\0") if part]
    return {region["name"]: tuple(region["steps"]) for region in told}


def _region(library: _Library, name: str, steps: tuple[str, ...]) -> RegionCounters:
    values = _filled(library(counters_name(name)), value_count(len(steps)), "int64").tolist()
    measured = Measured.of(values)
    return RegionCounters(name, measured, tuple(map(StepCounters, steps, measured.steps)))


def _filled(function: Callable[..., Any], size: int, dtype: str) -> NDArray[Any]:
    """What a function writes into a vector."""
    tvm = importlib.import_module("tvm")
    make = tvm.runtime.tensor if hasattr(tvm.runtime, "tensor") else tvm.nd.array
    out = make(np.zeros(size, dtype))
    function(out)
    filled: NDArray[Any] = out.numpy()
    return filled
