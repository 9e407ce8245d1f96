"""What the user gave: network, spec, options and front end, read and checked, the cheap things first."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm_sramtile import models
from tvm_sramtile.errors import MissingDependency, OptionError
from tvm_sramtile.frontend import Frontend, Generation, require_tvm
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.options import Options

_MOST_POINTS = 1000  # of a sweep


@dataclass(frozen=True, slots=True)
class Job:
    """A network read and ready, and what to compile it for."""

    model: models.PreparedModel
    spec: AcceleratorSpec
    options: Options
    frontend: Frontend

    def imported(self) -> Any:
        """The network as a module of TVM."""
        return self.frontend.import_onnx(self.model.proto, self.model.input_shapes)

    def partitioned(self) -> Any:
        """The network with its regions."""
        return self.frontend.partition_for_sramtile(self.imported(), self.spec, self.options)


def read_job(model: Path, spec: str, overrides: Sequence[str], frontend: str | None, shape: Sequence[str]) -> Job:
    """Read everything that the user gave, the cheap things first."""
    chip, options = _configure(AcceleratorSpec.load(spec), overrides)
    shapes = dict(_shape(text) for text in shape)
    if frontend is not None and frontend not in ("relax", "relay"):
        raise OptionError(f"option --frontend {frontend!r}: must be relax or relay")
    prepared = models.prepare(model, shapes)
    module: Any = importlib.import_module(f"tvm_sramtile.{_generation(frontend)}")
    return Job(prepared, chip, options, module)


def _configure(spec: AcceleratorSpec, overrides: Sequence[str]) -> tuple[AcceleratorSpec, Options]:
    spec_keys, option_keys = set(AcceleratorSpec.model_fields), set(Options.__dataclass_fields__)
    for_spec: dict[str, Any] = {}
    for_options: dict[str, Any] = {}
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals:
            raise OptionError(f"option --set {text!r}: must be KEY=VALUE, e.g. sram_bytes=131072")
        if key not in spec_keys | option_keys:
            known = ", ".join([*AcceleratorSpec.model_fields, *Options.__dataclass_fields__])
            raise OptionError(f"option --set: key {key!r} is unknown: keys are {known}")
        (for_options if key in option_keys else for_spec)[key] = _value(value)
    return spec.replace(**for_spec), Options(**for_options)


def read_sweep(text: str, spec: AcceleratorSpec) -> tuple[str, tuple[AcceleratorSpec, ...]]:
    """The key of ``KEY=START:STOP:xFACTOR`` or ``KEY=START:STOP:+STEP``, and the spec with each of its values.

    Sizes may end with K or M, for KiB and MiB; STOP is taken if it is reached.
    """
    wanted = "must be KEY=START:STOP:xFACTOR or KEY=START:STOP:+STEP, e.g. sram_bytes=64K:1M:x2"
    found = re.fullmatch(r"(\w+)=(\d+)([KM]?):(\d+)([KM]?):([x+])(\d+)([KM]?)", text)
    if not found:
        raise OptionError(f"option --sweep {text!r}: {wanted}")
    key, start, stop, by, step = found[1], _size(found[2], found[3]), _size(found[4], found[5]), found[6], found[7]
    if not isinstance(getattr(spec, key, None), int):
        keys = [name for name in AcceleratorSpec.model_fields if isinstance(getattr(spec, name), int)]
        raise OptionError(f"option --sweep: key {key!r} is no number of {spec.name}: keys are {', '.join(keys)}")
    add = _size(step, found[8])
    values = [start]
    while (after := values[-1] * add if by == "x" else values[-1] + add) <= stop and len(values) <= _MOST_POINTS:
        if after <= values[-1]:
            raise OptionError(f"option --sweep {text!r}: {by}{step} makes no progress: {wanted}")
        values.append(after)
    if start > stop or len(values) > _MOST_POINTS:
        raise OptionError(f"option --sweep {text!r}: must have 1 to {_MOST_POINTS} values from START to STOP")
    return key, tuple(spec.replace(**{key: value}) for value in values)


def _size(digits: str, suffix: str) -> int:
    return int(digits) * {"": 1, "K": 1024, "M": 1024**2}[suffix]


def _value(text: str) -> Any:
    """JSON where it is JSON, else the text itself: names need no quotes."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, dims = text.rpartition("=")
    try:
        extents = tuple(int(dim) for dim in dims.split(","))
    except ValueError:
        extents = ()
    if not name or not extents or min(extents) < 1:
        raise OptionError(f"option --shape {text!r}: must be NAME=EXTENTS, e.g. x=1,3,320,320")
    return name, extents


def _generation(name: str | None) -> Generation:
    """The front end asked for, or the one whose TVM is installed; raises ``MissingDependency`` where there is none."""
    if name == "relay" or (name is None and not _has("relax") and _has("relay")):
        require_tvm("relay")
        return "relay"
    require_tvm("relax")
    return "relax"


def _has(generation: Generation) -> bool:
    try:
        require_tvm(generation)
    except MissingDependency:
        return False
    return True
