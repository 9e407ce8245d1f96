"""What the proof of programs says of a fault: its whole text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from core.zoo import Lowered, check, lowered, with_command

from tvm_sramtile.errors import CheckFailed
from tvm_sramtile.isa import Command, Program, Queue
from tvm_sramtile.lower.check import check_program


def fault(made: Lowered, program: Program) -> str:
    with pytest.raises(CheckFailed) as caught:
        check(made, program)
    return str(caught.value)


BODY = ["LOAD", "CONV", "STORE"] * 4  # of the case "groups", which the texts are about


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (1, "load command 0, which writes the SRAM bytes 0-384 that it reads"),
        (2, "compute command 0, which writes the SRAM bytes 2708-2900 that it reads"),
        (6, "compute command 0, which reads the SRAM bytes 0-384 that it overwrites"),
        (9, "compute command 1, which reads the SRAM bytes 384-768 that it overwrites"),
    ],
)
def test_texts_about_waits(index: int, text: str) -> None:
    made = lowered("groups")
    assert [command.opcode.name for command in made.program.body] == BODY
    where = f"body command {index} ({BODY[index]}, step conv0): may run before "
    assert fault(made, with_command(made, index, waits=(0, 0, 0))) == where + text


def test_a_store_must_have_read_what_is_overwritten() -> None:
    made = lowered("groups")
    assert made.program.body[7].waits == (3, 0, 1)
    text = "may run before store command 0, which reads the SRAM bytes 2708-2900 that it overwrites"
    assert fault(made, with_command(made, 7, waits=(3, 0, 0))) == f"body command 7 (CONV, step conv0): {text}"


def test_a_step_must_wait_for_what_the_step_before_stores() -> None:
    made = lowered("two_steps")
    body = tuple(
        replace(command, waits=(*command.waits[:2], 0)) if command.queue is Queue.LOAD else command
        for command in made.program.body
    )
    index = next(i for i, command in enumerate(body) if command.opcode.name == "LOAD" and command.step == 1)
    text = "may run before store command 0, which writes a part of y0 that it reads"
    assert fault(made, replace(made.program, body=body)) == f"body command {index} (LOAD, step conv1): {text}"


@pytest.mark.parametrize(
    ("index", "changes", "text"),
    [
        (0, {"waits": (0, 1, 0)}, "waits for 1 compute commands, but only 0 come before it"),
        (3, {"waits": (2, 0, 0)}, "waits for 2 load commands, but only 1 come before it"),
        (0, {"step": 1}, "there is no step 1"),
        (0, {"flags": 1}, "flags are 1, a LOAD has none"),
        (0, {"tensor": 9}, "there is no tensor 9"),
        (0, {"tensor": 3}, "tensor 3 is counted as OUTPUTS: no such tensor of step conv0 belongs here"),
        (0, {"row": 9}, "rows 9-12 are not within the tensor's 11"),
        (0, {"channels": 4}, "channels 0-4 are not within the tensor's 3"),
        (0, {"row_bytes": 16}, "row_bytes is 16, must be 48"),
        (0, {"block_bytes": 100}, "sram: 100 B from block to block, must be 192 or more, in whole elements"),
        (0, {"sram": 1}, "sram: address 1 is no multiple of the element size, 4"),
        (0, {"sram": 1200}, "sram: bytes 1200-1344 do not lie within one memory of (1201, 1501, 401, 201)"),
        (1, {"flags": 5}, "flags are 5: an epilogue before the last addition"),
        (1, {"flags": 3}, "flags are 3: the epilogue of step conv0 is 4"),
        (1, {"flags": 6}, "reads the SRAM bytes 3112-3304, but nothing wrote those from 3112"),
        (4, {"flags": 6}, "adds to the sums in SRAM bytes 3112-3304, where these outputs have not begun"),
        (1, {"stride_rows": 1}, "rows: no output of this conv2d reads so: stride 1, dilation 2"),
        (1, {"out_rows": 3}, "output rows 0 and 2 more, 1 apart, are not within the map's 2"),
        (1, {"groups": 1}, "reads the SRAM bytes 1204-2068, but nothing wrote those from 1556"),
        (1, {"unit_rows": 4}, "(4, 3) is no unit kernel: units are [(1, 1), (3, 3)]"),
        (1, {"unit_cols": 2}, "a kernel of (3, 3) on a unit of (3, 2)"),
        (1, {"weight_dtype": 1}, "weight_dtype is 1, must be 0"),
        (1, {"output": 1204}, "result in SRAM bytes 1204-1396 overlaps the operand in 1204-1492"),
        (1, {"weights": 1208}, "reads SRAM bytes 1208-1496 as weights, but they hold no one operand"),
        (
            2,
            {"row": 2},
            "stores channels, rows and columns ((0, 6), (2, 4), (0, 3)), the plan's next chunk is ((0, 6), (0, 2), "
            "(0, 3))",
        ),
        (2, {"block_bytes": 192}, "reads the SRAM bytes 2708-3092, but nothing wrote those from 2900"),
        (
            2,
            {"sram": 2900},
            "reads the SRAM bytes 2900-3092, but nothing wrote those from 2900",
        ),
    ],
)
def test_texts(index: int, changes: dict[str, Any], text: str) -> None:
    made = lowered("groups")
    where = f"body command {index} ({BODY[index]}, step {'1' if 'step' in changes else 'conv0'}): "
    assert fault(made, with_command(made, index, **changes)) == where + text


CHUNK = "stores channels 0-6, rows 2-4, columns 0-3"


def test_texts_about_what_a_store_needs() -> None:
    made = lowered("groups")
    where = f"body command 5 (STORE, step conv0): {CHUNK}, "
    pad = made.program.body[4]["pad_top"]
    assert fault(made, with_command(made, 4, pad_top=pad + 2)) == where + "made for the output from (1, 0) on"
    moved = with_command(made, 3, row=made.program.body[3]["row"] + 2)
    assert fault(made, moved) == where + "made for the output from (3, 0) on"
    text = "with the tap (channel, row, column) (0, 0, 0) 0 times, must be 1"
    assert fault(made, with_command(made, 4, in_rows=0)) == where + text


@pytest.mark.parametrize(
    ("name", "opcode", "changes", "text"),
    [
        ("sums", "LOAD_WEIGHTS", {"kernel_row": 2}, "kernel rows 2 to 3 are not within the tensor's 3"),
        ("sums", "LOAD_WEIGHTS", {"out_channel": 1}, "out_channels 1-4 are not within the tensor's 3"),
        ("sums", "LOAD_WEIGHTS", {"in_channel": 1}, "channels 0 and 1 of packed weights do not begin a block"),
        ("sums", "STORE", {"sram": 480}, "reads the SRAM bytes 480-528, but nothing wrote those from 480"),
        ("pool", "POOL", {"pooling": 1}, "pooling is 1, of step step0 average_valid"),
        ("pool", "POOL", {"kernel_rows": 2}, "kernel_rows is 2, of step step0 it is 3"),
        ("pool", "POOL", {"pad_top": 2}, "no output of step step0 has a window that begins there"),
        ("pool", "ELTWISE", {"function": 2}, "function is 2, must be 9 (prelu)"),
        ("pool", "ELTWISE", {"partner_kind": 1}, "partner_kind is 1, must be 2 (vector)"),
        ("resize", "RESIZE", {"in_row": 1}, "the data begins at (0, 0), not (1, 0)"),
        ("resize", "LOAD_TABLE", {"count": 3}, "count 0-3 are not within the tensor's 2"),
        ("pointwise", "ELTWISE", {"output": 4}, "result in SRAM bytes 4-132 overlaps the operand in 0-128"),
        ("joined", "ELTWISE", {"value0": 1}, "value0 is 1, must be 0.5"),
        ("joined", "LOAD", {"step": 3}, "there is no step 3"),
    ],
)
def test_texts_by_opcode(name: str, opcode: str, changes: dict[str, Any], text: str) -> None:
    made = lowered(name)
    index = next(at for at, command in enumerate(made.program.body) if command.opcode.name == opcode)
    found = fault(made, with_command(made, index, **changes))
    assert found.split(": ", 1)[1] == text
    assert found.startswith(f"body command {index} ({opcode}, step ")


def without(program: Program, *indices: int) -> Program:
    body = tuple(command for index, command in enumerate(program.body) if index not in indices)
    return replace(program, body=body)


def test_texts_about_the_whole() -> None:
    made = lowered("groups")
    where = "program of region: "
    text = "step conv0 stores 3 chunks, its plan 4"
    assert fault(made, without(made.program, 9, 10, 11)) == where + text
    first = made.program.body[0]
    twice = replace(made.program, body=(first, *(shifted(c) for c in made.program.body)))
    text = "step conv0 moves 1656 B of INPUTS, its plan 1440"
    assert fault(made, twice) == where + text
    resident = replace(made.plan.steps[0], buffers=made.plan.steps[0].buffers[:-1])
    with pytest.raises(CheckFailed) as caught:
        check_program(made.case.region, replace(made.plan, steps=(resident,)), made.program, made.spec)
    assert str(caught.value) == where + "it uses 192 B of memory accumulator, its plan 0"
    assert fault(made, replace(made.program, lanes=8)) == where + "lanes is 8, of test 4"
    assert fault(made, replace(made.program, steps=2)) == "program: it has 2 steps, the region 1"


def shifted(command: Command) -> Command:
    """The command in a program with one more load in front."""
    load, compute, store = command.waits
    return replace(command, waits=(load + bool(load), compute, store))


def test_what_the_prologue_loads_must_last() -> None:
    made = lowered("groups")
    assert made.case.region.images == 2
    command, last = made.program.prologue[1], made.program.body[-1]
    late = replace(command, waits=(0, 4, 0), values=(*command.values[:-1], command.values[-1] + 4))
    body = (*made.program.body[:-1], late, last)
    text = "program of region: body overwrites SRAM bytes 1204-1492 of the prologue, which the next image needs"
    plan = replace(made.plan, steps=(replace(made.plan.steps[0]),))
    traffic = plan.steps[0].traffic
    more = replace(traffic, weight_bytes=traffic.weight_bytes + 2 * made.case.values["w0"].nbytes)
    plan = replace(plan, steps=(replace(plan.steps[0], traffic=more),))
    with pytest.raises(CheckFailed) as caught:
        check_program(made.case.region, plan, replace(made.program, body=body), made.spec)
    assert str(caught.value) == text


def test_data_of_one_image_is_not_loaded_in_the_prologue() -> None:
    made = lowered("groups")
    program = replace(made.program, prologue=(*made.program.prologue, made.program.body[0]))
    text = "prologue command 2 (LOAD, step conv0): loads x of one image in the prologue"
    assert fault(made, program) == text
    program = replace(made.program, prologue=(*made.program.prologue, made.program.body[2]))
    text = "prologue command 2 (STORE, step conv0): depends on the image, of which the prologue knows nothing"
    assert fault(made, program) == text


def test_constants_are_those_of_the_region() -> None:
    made = lowered("rows")
    constants, at = made.program.constants, made.program.tensors[0].offset
    flipped = replace(made.program, constants=constants[:at] + bytes([constants[at] ^ 1]) + constants[at + 1 :])
    text = "prologue command 0 (LOAD, step conv0): tensor 0: its bytes are not the value of constant b0"
    assert fault(made, flipped) == text
    check_program(made.case.region, made.plan, flipped, made.spec, values=False)
    short = replace(made.program, constants=made.program.constants[:100])
    with pytest.raises(CheckFailed):
        check_program(made.case.region, made.plan, short, made.spec, values=False)
