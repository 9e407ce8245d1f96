"""The accelerator's description: validated, frozen, read from JSON presets or files."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tvm_sramtile.errors import SpecError
from tvm_sramtile.hw.layout import StorageLayout

Memory = Literal["pool", "input", "weight", "output", "accumulator"]

_Positive = Annotated[int, Field(gt=0, strict=True)]
_Small = Annotated[int, Field(gt=0, le=1024, strict=True)]
_Pair = Annotated[tuple[_Small, _Small], Field(strict=False)]

_ADDRESS_LIMIT_BYTES = 2**32  # SRAM addresses are 32 bits wide
_NO_SOURCE = "spec: "  # what errors name when the spec comes from no preset or file
_PRESETS = resources.files("tvm_sramtile.hw") / "presets"


class AcceleratorSpec(BaseModel):
    """An accelerator with a small SRAM.

    SRAM is either one pool (``sram_bytes``) or three buffers (``input_bytes``, ``weight_bytes``, ``output_bytes``).
    Accumulators lie in the pool or in the output buffer, or, with ``accumulator_bytes``, in a buffer of their own.

    Attributes:
        name: what reports call it.
        sram_bytes: size of the one pool.
        input_bytes, weight_bytes, output_bytes: sizes of separate buffers, in place of ``sram_bytes``.
        accumulator_bytes: size of a buffer for accumulators alone.
        lines: SRAM lines, banks that hold successive rows; a chunk's rows are rounded up to it.
        column_align: alignment of columns, in elements.
        channel_align: channels of one block; a map's channels are rounded up to it.
        unit_kernels: the kernel sizes (rows, cols) that one convolution command takes.
        mac_array: multiply-accumulates of a cycle: (input channels, output channels).
        dma_bytes_per_cycle: DRAM bytes moved in a cycle, in each direction.
        dma_setup_cycles: cycles before the first byte of each DMA command.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(min_length=1, strict=True)]
    sram_bytes: _Positive | None = None
    input_bytes: _Positive | None = None
    weight_bytes: _Positive | None = None
    output_bytes: _Positive | None = None
    accumulator_bytes: _Positive | None = None
    lines: _Small = 1
    column_align: _Small = 1
    channel_align: _Small = 16
    unit_kernels: Annotated[tuple[_Pair, ...], Field(min_length=1)] = ((1, 1), (3, 3))
    mac_array: _Pair = (16, 16)
    dma_bytes_per_cycle: Annotated[int, Field(gt=0, le=2**20, strict=True)] = 16
    dma_setup_cycles: Annotated[int, Field(ge=0, le=2**20, strict=True)] = 64

    def __init__(self, /, **values: Any) -> None:
        """Check the keys and values; raises ``SpecError``."""
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise SpecError(f"{_NO_SOURCE}{_describe(error, type(self))}") from None

    @model_validator(mode="after")
    def _one_kind_of_sram(self) -> AcceleratorSpec:
        separate = (self.input_bytes, self.weight_bytes, self.output_bytes)
        pool = self.sram_bytes is not None
        if pool == any(size is not None for size in separate) or (not pool and None in separate):
            raise ValueError("give either sram_bytes (one pool) or all of input_bytes, weight_bytes and output_bytes")
        total_bytes = sum(self.memories.values())
        if total_bytes >= _ADDRESS_LIMIT_BYTES:
            raise ValueError(f"the memories hold {total_bytes} bytes: must be below {_ADDRESS_LIMIT_BYTES}")
        return self

    @classmethod
    def presets(cls) -> tuple[str, ...]:
        """The names of the presets that come with the package, sorted."""
        return tuple(sorted(entry.name.removesuffix(".json") for entry in _PRESETS.iterdir() if ".json" in entry.name))

    @classmethod
    def preset(cls, name: str) -> AcceleratorSpec:
        """The preset called ``name``; raises ``SpecError`` naming the presets there are."""
        if name not in cls.presets():
            near = difflib.get_close_matches(name, cls.presets(), n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise SpecError(f"spec preset {name!r} is unknown{hint}: presets are {', '.join(cls.presets())}")
        return cls.from_json((_PRESETS / f"{name}.json").read_text(encoding="utf-8"), source=f"preset {name}")

    @classmethod
    def from_file(cls, path: str | Path) -> AcceleratorSpec:
        """Read a JSON file; raises ``SpecError`` naming the file, the key, and what is allowed."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise SpecError(f"spec file {path}: cannot be read: {reason}") from None
        return cls.from_json(text, source=str(path))

    @classmethod
    def load(cls, name_or_file: str | Path) -> AcceleratorSpec:
        """A preset by its name, or a JSON file by its path (whatever ends in ``.json`` or holds a path separator)."""
        text = str(name_or_file)
        if text.endswith(".json") or "/" in text or "\\" in text:
            return cls.from_file(text)
        return cls.preset(text)

    @classmethod
    def from_json(cls, text: str, source: str = "spec") -> AcceleratorSpec:
        """Parse JSON text; ``source`` is named in errors."""
        try:
            values = json.loads(text, object_pairs_hook=lambda pairs: _object(pairs, source))
        except json.JSONDecodeError as error:
            raise SpecError(f"{source}: not JSON: {error}") from None
        if not isinstance(values, dict):
            raise SpecError(f"{source}: must be a JSON object of keys and values, is a {type(values).__name__}")
        return cls._checked(values, source)

    def replace(self, **changes: Any) -> AcceleratorSpec:
        """A copy with some keys changed, checked as a whole; ``None`` takes a key back to its default."""
        values = {**self.model_dump(), **changes}
        return self._checked({key: value for key, value in values.items() if value is not None}, f"spec {self.name}")

    def to_json(self) -> str:
        """One-line JSON that ``from_json`` reads back to an equal spec."""
        return self.model_dump_json(exclude_none=True)

    @property
    def layout(self) -> StorageLayout:
        """How feature maps lie in this accelerator's SRAM."""
        return StorageLayout(self.lines, self.column_align, self.channel_align)

    @property
    def memories(self) -> dict[Memory, int]:
        """The SRAM memories and their sizes in bytes, in address order."""
        if self.sram_bytes is not None:
            sizes: dict[Memory, int | None] = {"pool": self.sram_bytes}
        else:
            sizes = {"input": self.input_bytes, "weight": self.weight_bytes, "output": self.output_bytes}
        sizes["accumulator"] = self.accumulator_bytes
        return {memory: size for memory, size in sizes.items() if size is not None}

    @classmethod
    def _checked(cls, values: Mapping[str, Any], source: str) -> AcceleratorSpec:
        try:
            return cls(**values)
        except SpecError as error:
            raise SpecError(f"{source}: {str(error).removeprefix(_NO_SOURCE)}") from None


def _object(pairs: list[tuple[str, Any]], source: str) -> dict[str, Any]:
    """A JSON object whose keys are all different."""
    values = dict(pairs)
    for key in values:
        if sum(name == key for name, _ in pairs) > 1:
            raise SpecError(f"{source}: key {key!r} is given twice")
    return values


def _describe(error: ValidationError, model: type[BaseModel]) -> str:
    """The first fault as one line: the key, the value, what is allowed."""
    fault = error.errors()[0]
    if not fault["loc"]:
        return str(fault["msg"]).removeprefix("Value error, ")
    head, *rest = fault["loc"]
    key = str(head) + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in rest)
    if fault["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key, model.model_fields, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        return f"key {key!r} is unknown{hint}: keys are {', '.join(model.model_fields)}"
    if fault["type"] == "missing":
        return f"key {key!r} is missing"
    message = str(fault["msg"])
    message = (message[0].lower() + message[1:]).replace("tuple", "list").replace(" after validation", "")
    return f"key {key!r} = {fault['input']!r}: {message}"
