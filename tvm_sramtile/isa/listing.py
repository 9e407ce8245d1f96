"""A program as text, one line a command."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tvm_sramtile.isa.code import Command, Program


def listing(program: Program) -> Iterator[str]:
    """Lines for people: the tensors, then each command with its waits and fields."""
    memories = "+".join(map(str, program.memories))
    yield f"; sram {memories} bytes, {program.lanes} lanes, {len(program.constants)} bytes of constants"
    for index, tensor in enumerate(program.tensors):
        dims = "x".join(str(dim) for dim in tensor.dims)
        image = f" image {tensor.image_stride}" if tensor.image_stride else ""
        strides = f" strides {','.join(str(stride) for stride in tensor.strides)}" if any(tensor.strides) else ""
        yield (
            f"; tensor {index}: {tensor.place.name.lower()} {tensor.offset}, {tensor.traffic.name.lower()}, "
            f"{tensor.dtype.name.lower()} {tensor.layout.name} {dims}{strides}{image}"
        )
    for part, commands in (("prologue", program.prologue), ("body", program.body)):
        yield f"{part}:"
        for index, command in enumerate(commands):
            yield f"{index:6d}  {_line(command)}"


def command_fields(command: Command) -> dict[str, Any]:
    """A command by the names of its fields, for JSON: infinities, which it has not, are the texts ``inf``, ``-inf``."""
    names = [field.name for field in command.opcode.fields]
    values = [value if math.isfinite(value) else str(value) for value in command.values]
    head = {"opcode": command.opcode.name, "step": command.step, "waits": command.waits, "flags": command.flags}
    return {**head, **dict(zip(names, values, strict=True))}


def _line(command: Command) -> str:
    waits = ",".join(str(wait) for wait in command.waits)
    fields = " ".join(
        f"{field.name}={value:g}" if field.type == "f32" else f"{field.name}={value}"
        for field, value in zip(command.opcode.fields, command.values, strict=True)
    )
    return f"{command.opcode.name:<12} step={command.step} waits={waits} flags={command.flags} {fields}"
