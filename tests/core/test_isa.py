"""The instruction set: round trips, damage, the checked-in header, the listing."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from core.programs import SPEC, ConvCase
from hypothesis import given, settings
from hypothesis import strategies as st
from readme import ROOT

from tvm_sramtile.errors import ProgramError
from tvm_sramtile.geometry import Conv2d
from tvm_sramtile.isa import (
    OPCODES,
    Command,
    Dtype,
    Layout,
    Opcode,
    Place,
    Program,
    Queue,
    TensorRecord,
    Traffic,
    decode,
    encode,
)
from tvm_sramtile.isa.code import record_struct
from tvm_sramtile.isa.header import c_header
from tvm_sramtile.isa.listing import listing
from tvm_sramtile.isa.table import COMMAND, CONSTANTS_ALIGN_BYTES, CONV, COUNTERS, HEADER, LOAD, STORE, TENSOR

VALUES = {
    "u8": st.integers(0, 2**8 - 1),
    "u16": st.integers(0, 2**16 - 1),
    "u32": st.integers(0, 2**32 - 1),
    "u64": st.integers(0, 2**64 - 1),
    "i32": st.integers(-(2**31), 2**31 - 1),
    "f32": st.floats(width=32, allow_nan=False),
}
U32 = VALUES["u32"]


@st.composite
def commands(draw: st.DrawFn) -> Command:
    opcode = draw(st.sampled_from(list(OPCODES.values())))
    values = tuple(draw(VALUES[field.type]) for field in opcode.fields)
    return Command(opcode, values, draw(VALUES["u8"]), draw(VALUES["u16"]), draw(st.tuples(U32, U32, U32)))


TENSORS = st.builds(
    TensorRecord,
    st.sampled_from(Place),
    st.sampled_from(Traffic),
    st.sampled_from(Dtype),
    st.sampled_from(Layout),
    st.tuples(*[U32] * 5),
    st.tuples(*[U32] * 5),
    U32,
    VALUES["u64"],
)
PROGRAMS = st.builds(
    Program,
    memories=st.lists(st.integers(1, 2**32 - 1), min_size=1, max_size=4).map(tuple),
    lanes=U32,
    lines=U32,
    column_align=U32,
    mac_array=st.tuples(U32, U32),
    dma_bytes_per_cycle=U32,
    dma_setup_cycles=U32,
    argument_count=U32,
    tensors=st.lists(TENSORS, max_size=3).map(tuple),
    prologue=st.lists(commands(), max_size=2).map(tuple),
    body=st.lists(commands(), max_size=4).map(tuple),
    steps=U32,
    constants=st.binary(max_size=100),
    workspace_bytes=VALUES["u64"],
)


@given(PROGRAMS)
def test_round_trip(program: Program) -> None:
    code = encode(program)
    assert decode(code) == program
    assert encode(decode(code)) == code
    at = len(code) - len(program.constants)
    assert at % CONSTANTS_ALIGN_BYTES == 0
    assert code[at:] == program.constants


def small() -> Program:
    """Two chunks of a 1x1 convolution, with constants."""
    op = Conv2d(2, 3, 2, 1, (1, 1))
    data = np.zeros((1, 2, 3, 2), np.float32)
    weight = np.array([1, 2], np.float32).reshape(op.weight_shape)
    bias = np.array([0.5], np.float32)
    return ConvCase(op, data, weight, bias, clip=(0.0, 6.0), chunk_rows=2, packed=True, spec=SPEC).program()


@settings(max_examples=300)
@given(st.data())
def test_damaged_bytes_are_refused_or_are_another_program(data: st.DataObject) -> None:
    code = bytearray(encode(small()))
    for _ in range(data.draw(st.integers(1, 3))):
        code[data.draw(st.integers(0, len(code) - 1))] = data.draw(st.integers(0, 255))
    text = bytes(code[: data.draw(st.integers(0, len(code)))] if data.draw(st.booleans()) else code)
    try:
        program = decode(text)
    except ProgramError:
        return
    reals = [value for command in (*program.prologue, *program.body) for value in command.values]
    if not any(np.isnan(reals)):  # the bits of a NaN are not kept
        assert encode(program) == text


HEADER_BYTES = record_struct(HEADER).size
TENSOR_BYTES = record_struct(TENSOR).size


def place_in(fields: tuple[object, ...], name: str) -> tuple[int, str]:
    """Where a field lies in its record, and its struct code."""
    at = 0
    for field in fields:
        code = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i32": "i", "f32": "f"}[field.type]  # type: ignore[attr-defined]
        if field.name == name:  # type: ignore[attr-defined]
            return at, "<" + code
        at += struct.calcsize("<" + code)
    raise KeyError(name)


def poked(name: str, value: int, record: str = "header") -> bytes:
    """The small program's bytes with one field of the header, of tensor 1 or of the first command replaced."""
    code = bytearray(encode(small()))
    fields, start = {
        "header": (HEADER, 0),
        "tensor": (TENSOR, HEADER_BYTES + TENSOR_BYTES),
        "command": (COMMAND, HEADER_BYTES + 4 * TENSOR_BYTES),
    }[record]
    at, text = place_in(fields, name)
    struct.pack_into(text, code, start + at, value)
    return bytes(code)


COMMANDS_START = HEADER_BYTES + 4 * TENSOR_BYTES
COMMANDS_BYTES = sum(record_struct(COMMAND + c.opcode.fields).size for c in (*small().prologue, *small().body))
COMMANDS_END = COMMANDS_START + COMMANDS_BYTES
LOAD_BYTES = record_struct(COMMAND + LOAD.fields).size

# One command more, so that there are bytes between the commands and the constants.
LONGER = encode(replace(small(), body=(*small().body, small().body[-1])))
LONGER_END = COMMANDS_END + LOAD_BYTES
LONGER_START = len(LONGER) - len(small().constants)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (b"", f"header: the program ends at byte 0, before the {HEADER_BYTES} bytes from 0"),
        (poked("magic", 1), "header: not a program of version 1 of the instruction set"),
        (poked("version", 2), "header: not a program of version 1 of the instruction set"),
        (
            poked("command_bytes", 7),
            f"header: command_bytes = 7, but the commands take {COMMANDS_BYTES}",
        ),
        (poked("constants_bytes", 9), "header: constants_bytes = 9, but 8 bytes follow"),
        (
            encode(small()) + b"\0",
            "header: constants_bytes = 8, but 9 bytes follow",
        ),
        (poked("memory2_bytes", 4), "header: memory 2 follows a memory of 0 bytes"),
        (poked("memory0_bytes", 0), "header: no memory"),
        (poked("place", 3, "tensor"), "tensor 1: 3 is not a valid Place"),
        (poked("traffic", 4, "tensor"), "tensor 1: 4 is not a valid Traffic"),
        (poked("dtype", 9, "tensor"), "tensor 1: 9 is not a valid Dtype"),
        (poked("layout", 4, "tensor"), "tensor 1: 4 is not a valid Layout"),
        (poked("opcode", 0, "command"), f"prologue command 0: no opcode at byte {COMMANDS_START}"),
        (poked("opcode", 99, "command"), f"prologue command 0: no opcode at byte {COMMANDS_START}"),
        (
            encode(small())[: HEADER_BYTES + 5],
            f"tensor 0: the program ends at byte {HEADER_BYTES + 5}, before the {TENSOR_BYTES} bytes "
            f"from {HEADER_BYTES}",
        ),
        (
            encode(small())[: COMMANDS_END - 1],
            f"body command 5: the program ends at byte {COMMANDS_END - 1}, before the {LOAD_BYTES} bytes "
            f"from {COMMANDS_END - LOAD_BYTES}",
        ),
        (
            encode(small())[: COMMANDS_END - LOAD_BYTES],
            f"body command 5: no opcode at byte {COMMANDS_END - LOAD_BYTES}",
        ),
        (
            LONGER[: LONGER_START - 1] + b"\1" + LONGER[LONGER_START:],
            f"header: bytes {LONGER_END}-{LONGER_START}, between the commands and the constants, are not all zero",
        ),
    ],
)
def test_damage_by_its_whole_text(code: bytes, text: str) -> None:
    with pytest.raises(ProgramError) as caught:
        decode(code)
    assert str(caught.value) == text


def test_values_that_do_not_fit_their_fields() -> None:
    program = small()
    load = program.body[0]
    for changed, what in (
        (replace(program, lanes=2**32), "header"),
        (replace(program, tensors=(replace(program.tensors[0], offset=-1),)), "tensor 0"),
        (replace(program, prologue=(replace(load, step=2**16),)), "prologue command 0 (LOAD)"),
        (replace(program, body=(load, replace(load, values=(-1, *load.values[1:])))), "body command 1 (LOAD)"),
    ):
        with pytest.raises(ProgramError) as caught:
            encode(changed)
        assert str(caught.value).startswith(f"{what}: a value does not fit its field: ")
    values = [1e39 if field.type == "f32" else 0 for field in CONV.fields]
    with pytest.raises(ProgramError) as caught:
        encode(replace(program, body=(Command(CONV, tuple(values)),)))
    text = "body command 0 (CONV): a value does not fit its field: float too large to pack with f format"
    assert str(caught.value) == text
    with pytest.raises(ProgramError) as caught:
        encode(replace(program, memories=(1, 2, 3, 4, 5)))
    assert str(caught.value) == "header: 5 memories, at most 4 are possible"


def test_commands_by_field_name() -> None:
    command = small().body[1]
    assert command.queue is Queue.COMPUTE
    assert (command["out_map_rows"], command["in_channels"], command.real("clip_high")) == (2, 2, 6.0)
    with pytest.raises(KeyError):
        Command.make(LOAD, tensor=0)


def names_of(opcode: Opcode) -> list[str]:
    return [field.name for field in (*COMMAND, *opcode.fields)]


def test_the_table_is_consistent() -> None:
    for code, opcode in OPCODES.items():
        assert opcode.code == code
        assert len(set(names_of(opcode))) == len(names_of(opcode))
        assert opcode.meaning
        assert opcode.preconditions
        assert opcode.cycles
    assert len({opcode.name for opcode in OPCODES.values()}) == len(OPCODES)
    assert len(set(COUNTERS)) == len(COUNTERS)
    assert LOAD.fields == STORE.fields


def test_the_checked_in_header_is_current() -> None:
    path = ROOT / "tvm_sramtile" / "engine" / "src" / "isa.h"
    made = "python -m tvm_sramtile.isa.header > tvm_sramtile/engine/src/isa.h"
    assert path.read_text(encoding="utf-8") == c_header(), f"stale: run {made}"


def test_listing() -> None:
    program = small()
    program = replace(program, body=(*program.body[:2], replace(program.body[2], step=3, waits=(1, 2, 0))))
    golden = Path(__file__).parent / "golden" / "listing.txt"
    assert list(listing(program)) == golden.read_text(encoding="utf-8").splitlines()
