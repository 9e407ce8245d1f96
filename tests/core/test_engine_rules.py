"""Every rule of the engine's validator is broken once, on one small convolution; and calls that make no sense."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core.engine_programs import Array, Chip, Conv, conv, conv_program, patched, small_case, small_program

from tvm_sramtile.engine import run
from tvm_sramtile.engine.native import engine_library
from tvm_sramtile.errors import EngineError
from tvm_sramtile.isa import Place, encode
from tvm_sramtile.isa.code import record_struct
from tvm_sramtile.isa.table import (
    COMMAND,
    CONV_BIAS,
    CONV_CLIP,
    CONV_FIRST,
    CONV_LAST,
    HEADER,
    LOAD_WEIGHTS,
    TENSOR,
)

ROOT = Path(__file__).parents[2]


def test_the_small_program_runs() -> None:
    code, arrays = small_case()
    assert run(code, arrays).calls == 1
    assert (arrays[4] == 6).all()


_CONV = "body command 1 (CONV): "
_LAST = "body command 2 (CONV): "
_LOAD = "body command 0 (LOAD): "
_STORE = "body command 3 (STORE): "
_WEIGHTS = "prologue command 0 (LOAD_WEIGHTS): "
_POSITIVE = "must be positive"

# Where the field stands, the field, its wrong value; code, text of the error.
RULES: list[tuple[str, str, float, int, str]] = [
    ("header", "magic", 1, 6, "header: magic = 1: this is no program of the instruction set"),
    ("header", "version", 9, 7, "header: version = 9: the engine executes another version of the instruction set"),
    ("header", "lanes", 0, 8, "header: lanes = 0: must be from 1 to 1024"),
    ("header", "lanes", 1025, 8, "header: lanes = 1025: must be from 1 to 1024"),
    *(
        ("header", field, 0, 9, f"header: {field} = 0: {_POSITIVE}")
        for field in ("lines", "column_align", "mac_in", "mac_out", "dma_bytes_per_cycle")
    ),
    ("header", "argument_count", 4, 2, "call: tensor_count = 5: differs from the argument_count of the program"),
    ("header", "step_count", 0, 22, "prologue command 0 (LOAD_WEIGHTS): step = 0: there is no such step"),
    (
        "header",
        "prologue_commands",
        2,
        10,
        "header: command_bytes = 592: differs from the bytes that the commands take",
    ),
    ("body 0", "opcode", 0, 13, "body command 0: opcode = 0: there is no such kind"),
    ("header", "command_bytes", 99, 10, "header: command_bytes = 99: differs from the bytes that the commands take"),
    (
        "header",
        "constants_bytes",
        8,
        11,
        "header: constants_bytes = 8: differs from the bytes that follow the commands",
    ),
    ("header", "workspace_bytes", 2**62, 4, f"call: workspace_bytes = {2**62}: the system has no memory for it"),
    (
        "header",
        "memory0_bytes",
        959,
        33,
        "prologue command 0 (LOAD_WEIGHTS): sram = 960: the operand does not lie within one memory",
    ),
    ("tensor 0", "place", 3, 13, "tensor 0: place = 3: there is no such kind"),
    ("tensor 0", "traffic", 4, 13, "tensor 0: traffic = 4: there is no such kind"),
    ("tensor 0", "dtype", 77, 13, "tensor 0: dtype = 77: there is no such kind"),
    ("tensor 0", "layout", 5, 13, "tensor 0: layout = 5: there is no such kind"),
    (
        "tensor 1",
        "image_stride",
        1,
        14,
        "tensor 1: image_stride = 1: must be 0: only of maps each image can have its own",
    ),
    *(("tensor 1", f"dim{axis}", 0, 9, f"tensor 1: dim{axis} = 0: {_POSITIVE}") for axis in range(5)),
    *(
        ("tensor 3", f"dim{axis}", 2, 15, f"tensor 3: dim{axis} = 2: must be 1: the layout has no such dimension")
        for axis in (3, 4)
    ),
    ("tensor 1", "layout", 2, 34, "tensor 1: stride0 = 576: must be 0: the layout has no strides"),
    ("tensor 0", "offset", 5, 17, "tensor 0: offset = 5: there is no such argument"),
    ("tensor 1", "place", 1, 20, "tensor 1: offset = 1: must be a multiple of the element size"),
    ("tensor 0", "place", 1, 18, "tensor 0: offset = 0: the tensor lies outside the constants"),
    ("tensor 0", "place", 2, 19, "tensor 0: offset = 0: the tensor lies outside the workspace"),
    ("body 0", "flags", 1, 21, f"{_LOAD}flags = 1: the command has no such flags"),
    ("prologue 0", "flags", 4, 21, f"{_WEIGHTS}flags = 4: the command has no such flags"),
    ("body 1", "flags", 17, 21, f"{_CONV}flags = 17: the command has no such flags"),
    ("body 1", "step", 1, 22, f"{_CONV}step = 1: there is no such step"),
    (
        "body 1",
        "wait_load",
        2,
        23,
        f"{_CONV}wait_load = 2: so many commands of that queue do not come before it in this part",
    ),
    (
        "body 1",
        "wait_compute",
        1,
        23,
        f"{_CONV}wait_compute = 1: so many commands of that queue do not come before it in this part",
    ),
    (
        "body 3",
        "wait_store",
        1,
        23,
        f"{_STORE}wait_store = 1: so many commands of that queue do not come before it in this part",
    ),
    ("body 0", "tensor", 5, 24, f"{_LOAD}tensor = 5: there is no such tensor"),
    ("prologue 0", "tensor", 99, 24, f"{_WEIGHTS}tensor = 99: there is no such tensor"),
    ("body 0", "tensor", 1, 25, f"{_LOAD}tensor = 1: the layout of the tensor does not suit the command"),
    ("prologue 0", "tensor", 3, 25, f"{_WEIGHTS}tensor = 3: the layout of the tensor does not suit the command"),
    (
        "prologue 2",
        "tensor",
        0,
        26,
        "prologue command 2 (LOAD): tensor = 0: the prologue cannot use a tensor of which each image has its own",
    ),
    *(("body 0", field, 0, 9, f"{_LOAD}{field} = 0: {_POSITIVE}") for field in ("channels", "rows", "cols")),
    ("body 0", "channel", 1, 27, f"{_LOAD}channels = 8: the box ends outside the tensor"),
    ("body 0", "row", 2**32 - 1, 27, f"{_LOAD}rows = 5: the box ends outside the tensor"),
    ("body 3", "col", 1, 27, f"{_STORE}cols = 6: the box ends outside the tensor"),
    (
        "body 3",
        "row_bytes",
        100,
        31,
        f"{_STORE}row_bytes = 100: differs from round_up(cols, column_align)*lanes*elem_bytes",
    ),
    ("body 0", "block_bytes", 476, 32, f"{_LOAD}block_bytes = 476: is less than round_up(rows, lines)*row_bytes"),
    ("body 0", "block_bytes", 482, 20, f"{_LOAD}block_bytes = 482: must be a multiple of the element size"),
    ("body 0", "sram", 2, 20, f"{_LOAD}sram = 2: must be a multiple of the element size"),
    ("body 0", "sram", 2**32 - 4, 33, f"{_LOAD}sram = {2**32 - 4}: the operand does not lie within one memory"),
    ("body 3", "tensor", 3, 30, f"{_STORE}tensor = 3: weights cannot be stored to"),
    *(
        ("prologue 0", field, 0, 9, f"{_WEIGHTS}{field} = 0: {_POSITIVE}")
        for field in ("out_channels", "in_channels", "kernel_rows", "kernel_cols")
    ),
    ("prologue 0", "out_channel", 1, 27, f"{_WEIGHTS}out_channels = 8: the box ends outside the tensor"),
    ("prologue 0", "in_channel", 1, 27, f"{_WEIGHTS}in_channels = 8: the box ends outside the tensor"),
    ("prologue 0", "kernel_row", 1, 27, f"{_WEIGHTS}kernel_rows = 3: the box ends outside the tensor"),
    ("prologue 0", "kernel_col", 1, 27, f"{_WEIGHTS}kernel_cols = 3: the box ends outside the tensor"),
    ("prologue 0", "sram", 1, 20, f"{_WEIGHTS}sram = 1: must be a multiple of the element size"),
    ("prologue 0", "sram", 9000, 33, f"{_WEIGHTS}sram = 9000: the operand does not lie within one memory"),
    *(
        ("body 1", field, 0, 9, f"{_CONV}{field} = 0: {_POSITIVE}")
        for field in (
            *("in_channels", "out_map_rows", "out_map_cols", "out_rows", "out_row_step", "out_cols", "out_col_step"),
            *("out_channels", "groups", "unit_rows", "unit_cols"),
            *("stride_rows", "stride_cols", "dilation_rows", "dilation_cols"),
        )
    ),
    ("body 1", "kernel_rows", 4, 40, f"{_CONV}kernel_rows = 4: is larger than the unit kernel"),
    ("body 1", "unit_cols", 2, 40, f"{_CONV}kernel_cols = 3: is larger than the unit kernel"),
    ("body 1", "out_row", 1, 41, f"{_CONV}out_rows = 5: the outputs end outside the output map"),
    ("body 1", "out_map_rows", 4, 41, f"{_CONV}out_rows = 5: the outputs end outside the output map"),
    ("body 1", "out_col_step", 2**32 - 1, 41, f"{_CONV}out_cols = 6: the outputs end outside the output map"),
    ("body 1", "groups", 3, 35, f"{_CONV}groups = 3: must divide in_channels and out_channels"),
    *(
        ("body 1", field, 200, 13, f"{_CONV}{field} = 200: there is no such kind")
        for field in ("input_dtype", "weight_dtype", "accumulator_dtype", "output_dtype")
    ),
    ("body 1", "in_block_bytes", 476, 32, f"{_CONV}in_block_bytes = 476: is less than round_up(rows, lines)*row_bytes"),
    (
        "body 1",
        "out_block_bytes",
        476,
        32,
        f"{_CONV}out_block_bytes = 476: is less than round_up(rows, lines)*row_bytes",
    ),
    ("body 1", "out_block_bytes", 481, 20, f"{_CONV}out_block_bytes = 481: must be a multiple of the element size"),
    *(
        ("body 2", field, 6, 20, f"{_LAST}{field} = 6: must be a multiple of the element size")
        for field in ("input", "weights", "bias", "accumulators", "output")
    ),
    *(
        ("body 2", field, 2**31, 33, f"{_LAST}{field} = {2**31}: the operand does not lie within one memory")
        for field in ("input", "weights", "bias", "accumulators", "output")
    ),
    ("body 1", "flags", 5, 36, f"{_CONV}flags = 5: BIAS and CLIP are allowed only with LAST"),
    ("body 1", "flags", 9, 36, f"{_CONV}flags = 9: BIAS and CLIP are allowed only with LAST"),
    (
        "body 2",
        "clip_high",
        -1,
        37,
        f"{_LAST}clip_low = 0: both limits must be numbers, and the lower not above the upper",
    ),
    (
        "body 2",
        "clip_low",
        7,
        37,
        f"{_LAST}clip_low = 7: both limits must be numbers, and the lower not above the upper",
    ),
    (
        "body 2",
        "clip_high",
        float("nan"),
        37,
        f"{_LAST}clip_low = 0: both limits must be numbers, and the lower not above the upper",
    ),
    ("body 2", "output", 4, 38, f"{_LAST}output = 4: the operand overlaps another one"),
    ("body 2", "output", 5572, 38, f"{_LAST}accumulators = 5568: the operand overlaps another one"),
    ("body 1", "accumulators", 956, 38, f"{_CONV}accumulators = 956: the operand overlaps another one"),
    ("body 2", "bias", 5568, 38, f"{_LAST}accumulators = 5568: the operand overlaps another one"),
]


@pytest.mark.parametrize(
    ("record", "field", "value", "status", "text"), RULES, ids=[f"{r[0]} {r[1]} {r[2]}" for r in RULES]
)
def test_each_rule_refuses_what_breaks_it(record: str, field: str, value: float, status: int, text: str) -> None:
    code, arrays = small_case()
    arrays[4][:] = np.nan
    with pytest.raises(EngineError) as caught:
        run(patched(code, record, **{field: value}), arrays)
    assert str(caught.value) == f"engine error {status}: {text}"
    assert np.isnan(arrays[4]).all(), "refused before the first command"


def test_every_error_of_the_engine_is_tested() -> None:
    header = (ROOT / "tvm_sramtile/engine/src/engine.h").read_text(encoding="utf-8")
    codes = {int(line.strip()[2:].split(",")[0]) for line in header.splitlines() if line.strip().startswith("X(")}
    elsewhere = {1, 3, 5, 12, 16, 28, 29, 39, 42, 43, 44, 45, 46, 47}
    assert codes == {rule[3] for rule in RULES} | elsewhere


def refusal(code: bytes, arrays: list[Array], images: int = 1) -> str:
    with pytest.raises(EngineError) as caught:
        run(code, arrays, images)
    return str(caught.value)


def test_programs_that_end_early() -> None:
    code, arrays = small_case()
    ends = "the program ends before the end of this record"
    head, record = record_struct(HEADER).size, record_struct(TENSOR).size
    commands = head + 5 * record
    second = commands + record_struct(COMMAND + LOAD_WEIGHTS.fields).size
    for length, where in (
        (0, "header"),
        (head - 1, "header"),
        (head + 5, "tensor 0"),
        (commands - 1, "tensor 4"),
        (commands, "prologue command 0"),
        (commands + 40, "prologue command 0 (LOAD_WEIGHTS)"),
        (second, "prologue command 1"),
    ):
        assert refusal(code[:length], arrays) == f"engine error 5: {where}: program_bytes = {length}: {ends}"
    for length in range(0, len(code), 7):
        refusal(code[:length], arrays)
    many = patched(code, "header", tensor_count=2**32 - 1)
    room = (len(code) - head) // record
    assert raw_call(many, len(many), None, 5, 1) == (5, f"tensor {room}: program_bytes = {len(code)}: {ends}")


def test_bytes_between_commands_and_constants_are_zeros() -> None:
    small = conv_program(Chip(4), Conv(8, 5, 6, 8))
    code, arrays = encode(small), [np.ones(576, np.float32) for _ in range(3)]
    commands = (*small.prologue, *small.body)
    end = record_struct(HEADER).size + 3 * record_struct(TENSOR).size
    end += sum(record_struct(COMMAND + command.opcode.fields).size for command in commands)
    assert len(code) > end
    damaged = code[:end] + b"\x05" + code[end + 1 :]
    text = "engine error 12: header: filling = 5: bytes between commands and constants must be 0"
    assert refusal(damaged, arrays) == text


def test_tensors_that_no_address_reaches() -> None:
    code, arrays = small_case()
    for fields in (
        {"dim0": 2**32 - 1, "stride0": 2**32 - 1},
        dict.fromkeys(("dim0", "dim1", "dim2", "stride0", "stride1", "stride2"), 2**32 - 1),
    ):
        huge = patched(code, "tensor 0", place=2, **fields)
        text = f"tensor 0: dim0 = {2**32 - 1}: the tensor holds 2^63 bytes or more"
        assert refusal(huge, arrays) == f"engine error 16: {text}"
    images = patched(code, "tensor 0", place=2, image_stride=2**32 - 1)
    text = "tensor 0: dim0 = 8: the tensor holds 2^63 bytes or more"
    assert raw_call(images, len(images), None, 5, 2**40) == (16, text)


def test_constants_are_never_stored_to() -> None:
    _, arrays = small_case()
    constant = replace(small_program(), constants=bytes(960))
    records = list(constant.tensors)
    records[4] = replace(records[4], place=Place.CONSTANT, offset=0, image_stride=0)
    assert refusal(encode(replace(constant, tensors=tuple(records))), arrays) == (
        f"engine error 29: {_STORE}tensor = 4: a constant cannot be stored to"
    )


def raw_call(
    code: bytes | None, size: int, pointers: Any, count: int, images: int, space: int = 1024
) -> tuple[int, str]:
    library = ctypes.CDLL(str(engine_library()))
    message = ctypes.create_string_buffer(max(space, 1))
    status = library.sramtile_run(
        code, ctypes.c_uint64(size), pointers, count, ctypes.c_int64(images), None, message, space
    )
    return status, message.value.decode()


def test_calls_that_make_no_sense() -> None:
    code, arrays = small_case()
    pointers = (ctypes.c_void_p * 5)(*(array.ctypes.data for array in arrays))
    assert raw_call(None, 0, pointers, 5, 1) == (1, "header: program = 0: must not be a null pointer")
    assert raw_call(code, len(code), None, 5, 1) == (1, "tensor 0: pointer = 0: must not be a null pointer")
    assert raw_call(code, len(code), pointers, 4, 1)[0] == 2
    assert raw_call(code, len(code), pointers, -1, 1) == (
        2,
        "call: tensor_count = -1: differs from the argument_count of the program",
    )
    assert raw_call(code, len(code), pointers, 5, -1) == (3, "call: images = -1: must not be negative")
    assert raw_call(code, len(code), pointers, 5, -1, space=9) == (3, "call: im")
    assert raw_call(code, len(code), pointers, 5, -1, space=0) == (3, "")
    pointers[4] = None
    assert raw_call(code, len(code), pointers, 5, 1) == (1, "tensor 4: pointer = 0: must not be a null pointer")
    assert raw_call(code, len(code), pointers, 5, 0) == (0, "")


def test_arrays_are_checked_before_they_become_pointers() -> None:
    code, arrays = small_case()

    def message(index: int, array: Any) -> str:
        with pytest.raises(ValueError, match=f"^tensor {index}: ") as caught:
            run(code, [array if place == index else good for place, good in enumerate(arrays)])
        return str(caught.value)

    assert message(0, np.ones(240)) == "tensor 0: the array is float64, the program needs float32"
    assert message(0, np.ones((1, 8, 5, 5), np.float32)) == (
        "tensor 0: the array of shape (1, 8, 5, 5) has 200 elements, "
        "the program needs 8x5x6x1x1 with strides 30, 6, 1, 0, 0 for each of 1 images, 240"
    )
    assert message(1, np.ones(9, np.float32)) == (
        "tensor 1: the array of shape (9,) has 9 elements, "
        "the program needs 1x8x8x3x3 with strides 576, 72, 9, 3, 1, 576"
    )
    assert message(1, np.ones((24, 48), np.float32).T) == "tensor 1: the array of shape (48, 24) is not C-contiguous"
    frozen = np.ones(240, np.float32)
    frozen.flags.writeable = False
    assert message(4, frozen) == "tensor 4: the program writes to it, but the array is read-only"
    assert run(code, [frozen, *arrays[1:]]).calls == 1
    with pytest.raises(ValueError, match=r"^images = -1: must not be negative$"):
        run(code, arrays, -1)


def test_flags_are_those_of_the_table() -> None:
    assert (CONV_FIRST, CONV_LAST, CONV_BIAS, CONV_CLIP) == (1, 2, 4, 8)
    assert conv(Chip(), Conv(1, 1, 1, 1), CONV_FIRST, input=0, weights=0).flags == 1
