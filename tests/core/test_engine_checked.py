"""Checked mode: what reads SRAM that nothing has written is refused, by command and address; the rest runs."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from core.engine_programs import Chip, Conv, conv_program, patched, small_case, small_program
from core.engine_random import (
    RandomCase,
    conv_case,
    copy_case,
    eltwise_case,
    map_case,
    pool_case,
    resize_case,
    weights_case,
)

from tvm_sramtile.engine import run
from tvm_sramtile.engine.reference import interpret
from tvm_sramtile.errors import EngineError, ProgramError
from tvm_sramtile.isa import Command, encode

MAKERS = (map_case, copy_case, weights_case, conv_case, pool_case, resize_case, eltwise_case)
UNWRITTEN = "the command reads this SRAM address, to which nothing has been written"


def refusal(code: bytes) -> str:
    _, arrays = small_case()
    with pytest.raises(EngineError) as caught:
        run(code, arrays, checked=True)
    assert (arrays[4] == 1).all(), "a refused program has touched its output"
    return str(caught.value)


def test_a_program_that_writes_all_that_it_reads_runs() -> None:
    code, arrays = small_case()
    assert run(code, arrays, 1, checked=True) == run(code, arrays, 1)


@pytest.mark.parametrize(
    ("record", "field", "moved_bytes", "message"),
    [
        ("body 1", "input", 7520, "body command 1 (CONV): input = 7520"),
        ("body 1", "weights", 6560, "body command 1 (CONV): weights = 7520"),
        ("body 2", "bias", 16, "body command 2 (CONV): bias = 7520"),
        ("body 2", "accumulators", 1952, "body command 2 (CONV): accumulators = 7520"),
        ("body 3", "sram", 960, "body command 3 (STORE): sram = 7520"),
        ("body 0", "sram", 4, "body command 1 (CONV): input = 0"),
        ("prologue 0", "sram", 4, "body command 1 (CONV): weights = 960"),
    ],
)
def test_an_address_that_is_moved(record: str, field: str, moved_bytes: int, message: str) -> None:
    program = small_program()
    program = replace(program, memories=(program.memories[0] + 4096,))
    part, index = record.split()
    command = getattr(program, part)[int(index)]
    code = patched(encode(program), record, **{field: command[field] + moved_bytes})
    _, arrays = small_case()
    run(code, arrays)  # it breaks no other rule
    assert re.sub(r" = (\d+): .*", r" = \1", refusal(code).removeprefix("engine error 47: ")) == message
    assert refusal(code).endswith(f": {UNWRITTEN}")


def test_lanes_past_the_last_channel_are_undefined_after_a_computation() -> None:
    program = conv_program(Chip(4), Conv(6, 2, 2, 6))
    store = program.body[-1]
    tensor = replace(program.tensors[-1], dims=(8, 2, 2, 1, 1), image_stride=32)
    values = [8 if field.name == "channels" else v for field, v in zip(store.opcode.fields, store.values, strict=True)]
    wide = replace(
        program,
        tensors=(*program.tensors[:-1], tensor),
        body=(*program.body[:-1], replace(store, values=tuple(values))),
    )
    arrays = [np.ones(24, np.float32), np.ones(6 * 6 * 9, np.float32), np.zeros(32, np.float32)]
    run(encode(wide), arrays)
    with pytest.raises(EngineError) as caught:
        run(encode(wide), arrays, checked=True)
    address = store["sram"] + store["block_bytes"] + 2 * 4  # channel 6
    assert str(caught.value) == f"engine error 47: body command 2 (STORE): sram = {address}: {UNWRITTEN}"


def test_damaged_programs_are_refused_where_the_reference_refuses_them() -> None:
    rng = np.random.default_rng(7)
    found = {True: 0, False: 0}
    for index in range(700):
        case = damaged(rng, MAKERS[index % len(MAKERS)](int(rng.integers(10**6))))
        code, arguments = encode(case.program), [argument.copy() for argument in case.arguments]
        try:
            run(code, arguments, case.images)
        except EngineError:
            continue  # it breaks a rule of all programs
        expected = reference_refusal(case)
        try:
            run(code, arguments, case.images, checked=True)
            seen = ""
        except EngineError as error:
            seen = str(error)
        match = re.match(r"engine error 47: (.* command \d+ \(\w+\)): \w+ = (\d+): ", seen)
        assert (match.groups() if match else None) == expected, f"case {index}: {seen}"
        found[expected is not None] += 1
    assert min(found.values()) > 100, "damage that never, or always, shows tests little"


def reference_refusal(case: RandomCase) -> tuple[str, str] | None:
    try:
        with np.errstate(all="ignore"):
            interpret(case.program, [argument.copy() for argument in case.arguments], case.images, checked=True)
    except ProgramError as error:
        match = re.match(r"(.*): reads byte (\d+) of the SRAM, which nothing wrote", str(error))
        if match is None:
            raise
        return match[1], match[2]
    return None


def damaged(rng: np.random.Generator, case: RandomCase) -> RandomCase:
    """One command is gone, or one of its addresses is another; waits are for the timeline, which is not looked at."""
    body = [replace(command, waits=(0, 0, 0)) for command in case.program.body]
    index = int(rng.integers(len(body)))
    command = body[index]
    places = [place for place, field in enumerate(command.opcode.fields) if "SRAM address" in field.meaning]
    if rng.integers(2):
        del body[index]
    else:
        body[index] = moved(command, places[rng.integers(len(places))], 4 * int(rng.integers(-8, 9)))
    memories = (case.program.memories[0] + 64, *case.program.memories[1:])
    return replace(case, program=replace(case.program, body=tuple(body), memories=memories))


def moved(command: Command, place: int, by: int) -> Command:
    values = list(command.values)
    values[place] = max(0, int(values[place]) + by)
    return replace(command, values=tuple(values))
