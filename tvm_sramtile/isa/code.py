"""Programs as typed data, and their bytes: encode and decode, both from the table."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tvm_sramtile.errors import ProgramError
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ints import round_up
from tvm_sramtile.isa.table import (
    COMMAND,
    CONSTANTS_ALIGN_BYTES,
    HEADER,
    MAGIC,
    MEMORIES,
    MEMORY_ALIGN_BYTES,
    OPCODES,
    TENSOR,
    TENSOR_AXES,
    VERSION,
    Dtype,
    Field,
    Layout,
    Opcode,
    Place,
    Queue,
    Traffic,
)

_MEMORY_FIELDS = tuple(f"memory{index}_bytes" for index in range(MEMORIES))
_STRUCT_CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i32": "i", "f32": "f"}


Axes = tuple[int, int, int, int, int]


@cache
def record_struct(fields: tuple[Field, ...]) -> struct.Struct:
    """The byte layout of a record: its fields in order, little-endian, without gaps."""
    return struct.Struct("<" + "".join(_STRUCT_CODES[field.type] for field in fields))


# By code: an opcode's hash is one of all its texts.
_PLACES = {code: {field.name: place for place, field in enumerate(opcode.fields)} for code, opcode in OPCODES.items()}
_COMMAND_STRUCTS = {code: record_struct(COMMAND + opcode.fields) for code, opcode in OPCODES.items()}


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """A DRAM tensor that commands refer to by its index; see the table for the meaning of the fields."""

    place: Place
    traffic: Traffic
    dtype: Dtype
    layout: Layout
    dims: Axes
    strides: Axes
    image_stride: int
    offset: int


@dataclass(frozen=True, slots=True)
class Command:
    """One command. ``values`` are in the order of the opcode's fields; ``command["row"]`` reads one by its name.

    Attributes:
        waits: how many commands of the (load, compute, store) queue must have finished before it starts.
    """

    opcode: Opcode
    values: tuple[int | float, ...]
    flags: int = 0
    step: int = 0
    waits: tuple[int, int, int] = (0, 0, 0)

    @classmethod
    def make(cls, opcode: Opcode, *, flags: int = 0, step: int = 0, **fields: int | float) -> Command:
        """A command from its fields by name; all must be given."""
        return cls(opcode, tuple(fields[field.name] for field in opcode.fields), flags, step)

    @property
    def queue(self) -> Queue:
        """The queue that executes it."""
        return self.opcode.queue

    def __getitem__(self, name: str) -> int:
        return int(self.values[_PLACES[self.opcode.code][name]])

    def real(self, name: str) -> float:
        """A floating-point field."""
        return float(self.values[_PLACES[self.opcode.code][name]])


@dataclass(frozen=True, slots=True)
class Program:
    """What the accelerator executes: parameters of the chip, DRAM tensors, commands, constants."""

    memories: tuple[int, ...]
    lanes: int
    lines: int
    column_align: int
    mac_array: tuple[int, int]
    dma_bytes_per_cycle: int
    dma_setup_cycles: int
    argument_count: int
    tensors: tuple[TensorRecord, ...]
    prologue: tuple[Command, ...]
    body: tuple[Command, ...]
    steps: int = 1
    constants: bytes = b""
    workspace_bytes: int = 0

    @staticmethod
    def chip(spec: AcceleratorSpec) -> dict[str, Any]:
        """The fields that the spec fixes, by name."""
        return {
            "memories": tuple(spec.memories.values()),
            "lanes": spec.channel_align,
            "lines": spec.lines,
            "column_align": spec.column_align,
            "mac_array": spec.mac_array,
            "dma_bytes_per_cycle": spec.dma_bytes_per_cycle,
            "dma_setup_cycles": spec.dma_setup_cycles,
        }


def memory_starts(sizes: Iterable[int]) -> tuple[int, ...]:
    """The SRAM address of each memory's first byte, and of the end, from the memories' sizes in bytes."""
    starts = [0]
    for size in sizes:
        starts.append(round_up(starts[-1] + size, MEMORY_ALIGN_BYTES))
    return tuple(starts)


def encode(program: Program) -> bytes:
    """The program's bytes; raises ``ProgramError`` when a value does not fit its field."""
    if len(program.memories) > MEMORIES:
        raise ProgramError(f"header: {len(program.memories)} memories, at most {MEMORIES} are possible")
    code = b"".join(_encode_commands("prologue", program.prologue)) + b"".join(_encode_commands("body", program.body))
    head = {
        "magic": MAGIC,
        "version": VERSION,
        **dict.fromkeys(_MEMORY_FIELDS, 0),
        **dict(zip(_MEMORY_FIELDS, program.memories, strict=False)),
        "lanes": program.lanes,
        "lines": program.lines,
        "column_align": program.column_align,
        "mac_in": program.mac_array[0],
        "mac_out": program.mac_array[1],
        "dma_bytes_per_cycle": program.dma_bytes_per_cycle,
        "dma_setup_cycles": program.dma_setup_cycles,
        "argument_count": program.argument_count,
        "tensor_count": len(program.tensors),
        "step_count": program.steps,
        "prologue_commands": len(program.prologue),
        "body_commands": len(program.body),
        "command_bytes": len(code),
        "constants_bytes": len(program.constants),
        "workspace_bytes": program.workspace_bytes,
    }
    text = _pack("header", record_struct(HEADER), [head[field.name] for field in HEADER])
    for index, tensor in enumerate(program.tensors):
        kinds = (tensor.place, tensor.traffic, tensor.dtype, tensor.layout)
        axes = (*tensor.dims, *tensor.strides, tensor.image_stride)
        text += _pack(f"tensor {index}", record_struct(TENSOR), [*kinds, *axes, tensor.offset])
    text += code
    return text + bytes(round_up(len(text), CONSTANTS_ALIGN_BYTES) - len(text)) + program.constants


def _encode_commands(part: str, commands: Iterable[Command]) -> Iterable[bytes]:
    for index, command in enumerate(commands):
        opcode = command.opcode
        head = (opcode.code, command.flags, command.step, *command.waits)
        yield _pack(f"{part} command {index} ({opcode.name})", _COMMAND_STRUCTS[opcode.code], (*head, *command.values))


def _pack(what: str, layout: struct.Struct, values: Iterable[int | float]) -> bytes:
    try:
        return layout.pack(*values)
    except (struct.error, OverflowError) as error:
        raise ProgramError(f"{what}: a value does not fit its field: {error}") from None


def decode(code: bytes) -> Program:
    """Read a program back; raises ``ProgramError`` when its bytes do not follow the table.

    Checks the form only (sizes, opcodes, kinds); the engine's validator checks the meaning.
    """
    head, at = _unpack("header", record_struct(HEADER), code, 0)
    fields = {field.name: int(value) for field, value in zip(HEADER, head, strict=True)}
    if fields["magic"] != MAGIC or fields["version"] != VERSION:
        raise ProgramError(f"header: not a program of version {VERSION} of the instruction set")
    tensors = []
    for index in range(fields["tensor_count"]):
        values, at = _unpack(f"tensor {index}", record_struct(TENSOR), code, at)
        tensors.append(_tensor(index, [int(value) for value in values]))
    start = at
    prologue, at = _decode_commands("prologue", code, at, fields["prologue_commands"])
    body, at = _decode_commands("body", code, at, fields["body_commands"])
    if at - start != fields["command_bytes"]:
        raise ProgramError(f"header: command_bytes = {fields['command_bytes']}, but the commands take {at - start}")
    start, at = at, round_up(at, CONSTANTS_ALIGN_BYTES)
    if any(code[start:at]):
        raise ProgramError(f"header: bytes {start}-{at}, between the commands and the constants, are not all zero")
    if len(code) - at != fields["constants_bytes"]:
        raise ProgramError(f"header: constants_bytes = {fields['constants_bytes']}, but {len(code) - at} bytes follow")
    return Program(
        memories=_memories([fields[name] for name in _MEMORY_FIELDS]),
        **{name: fields[name] for name in ("lanes", "lines", "column_align")},
        mac_array=(fields["mac_in"], fields["mac_out"]),
        **{name: fields[name] for name in ("dma_bytes_per_cycle", "dma_setup_cycles", "argument_count")},
        tensors=tuple(tensors),
        prologue=prologue,
        body=body,
        steps=fields["step_count"],
        constants=code[at:],
        workspace_bytes=fields["workspace_bytes"],
    )


def _memories(sizes: Sequence[int]) -> tuple[int, ...]:
    used = [index for index, size in enumerate(sizes) if size]
    if not used:
        raise ProgramError("header: no memory")
    if used[-1] >= len(used):
        raise ProgramError(f"header: memory {used[-1]} follows a memory of 0 bytes")
    return tuple(sizes[: len(used)])


def _tensor(index: int, values: list[int]) -> TensorRecord:
    place, traffic, dtype, layout, *axes, image_stride, offset = values
    try:
        kinds = (Place(place), Traffic(traffic), Dtype(dtype), Layout(layout))
    except ValueError as error:
        raise ProgramError(f"tensor {index}: {error}") from None
    dims, strides = _axes(axes[:TENSOR_AXES]), _axes(axes[TENSOR_AXES:])
    return TensorRecord(*kinds, dims, strides, image_stride, offset)


def _axes(values: Sequence[int]) -> Axes:
    first, second, third, fourth, fifth = values
    return (first, second, third, fourth, fifth)


def _decode_commands(part: str, code: bytes, at: int, count: int) -> tuple[tuple[Command, ...], int]:
    commands = []
    for index in range(count):
        what = f"{part} command {index}"
        opcode = OPCODES.get(code[at]) if at < len(code) else None
        if opcode is None:
            raise ProgramError(f"{what}: no opcode at byte {at}")
        values, at = _unpack(what, _COMMAND_STRUCTS[opcode.code], code, at)
        _, flags, step, *waits = (int(value) for value in values[: len(COMMAND)])
        commands.append(Command(opcode, values[len(COMMAND) :], flags, step, (waits[0], waits[1], waits[2])))
    return tuple(commands), at


def _unpack(what: str, layout: struct.Struct, code: bytes, at: int) -> tuple[tuple[int | float, ...], int]:
    if at + layout.size > len(code):
        raise ProgramError(f"{what}: the program ends at byte {len(code)}, before the {layout.size} bytes from {at}")
    return layout.unpack_from(code, at), at + layout.size
