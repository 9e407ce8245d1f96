"""The proof of programs: every mutant is caught, or runs right in every order that its queues can take."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from core.regions import SPEC, Case, mutants, region_case

from tvm_sramtile.errors import CheckFailed, ProgramError
from tvm_sramtile.geometry import Conv2d
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Clip
from tvm_sramtile.isa import Command, Program, Queue, decode, encode
from tvm_sramtile.lower import lower
from tvm_sramtile.lower.check import check_program
from tvm_sramtile.options import Options
from tvm_sramtile.plan import Plan, plan_region

CONV = Conv2d(4, 6, 3, 4, (3, 3), padding=(1, 1, 1, 1))
SECOND = Conv2d(4, 6, 3, 6, (3, 3), strides=(2, 1), padding=(2, 1, 1, 1), dilation=(1, 1), groups=2)
ODD = Conv2d(3, 11, 3, 6, (3, 3), strides=(2, 1), padding=(4, 0, 3, 2), dilation=(2, 1), groups=3)
PADDING = Conv2d(1, 1, 2, 1, (1, 1), padding=(2, 0, 1, 0))  # chunks that lie wholly in padding
BUFFERS: dict[str, Any] = {"sram_bytes": None, "input_bytes": 1201, "weight_bytes": 1501, "output_bytes": 401}

RELU = (Clip(0.0, None),)


@dataclass(frozen=True, slots=True)
class Lowered:
    case: Case
    spec: AcceleratorSpec
    plan: Plan
    program: Program

    @classmethod
    def of(cls, case: Case, spec: AcceleratorSpec) -> Lowered:
        plan = plan_region(case.region, spec, Options())
        return cls(case, spec, plan, lower(case.region, plan, spec, case.constants))

    def check(self, program: Program | None = None) -> None:
        check_program(self.case.region, self.plan, program or self.program, self.spec)

    def caught(self, program: Program) -> bool:
        """Whether the proof fails, with one line that names the command or the program's part."""
        try:
            self.check(program)
        except CheckFailed as error:
            pattern = r"((prologue|body) command \d+ \(\w+, step [\w-]+\)|program( of region)?): [^\n]+"
            assert re.fullmatch(pattern, str(error)), str(error)  # noqa: PT017
            return True
        return False


@cache
def lowered(name: str) -> Lowered:
    cases = {
        "split": (region_case(CONV, bias=True, clips=RELU, constant=True), SPEC.replace(sram_bytes=1151)),
        "buffers": (region_case(ODD, images=2, bias=True), SPEC.replace(**BUFFERS, accumulator_bytes=201, lines=2)),
        "padding": (region_case(PADDING), SPEC.replace(sram_bytes=80)),
        "two steps": (region_case(CONV, SECOND, clips=RELU, outputs=(1,)), SPEC.replace(sram_bytes=1100)),
    }
    return Lowered.of(*cases[name])


# All orders that matter. Two commands that nothing orders may run either way round: a program is right when, for each
# such pair, it is right with the one just before the other, and the other just before the one.


def ancestors(commands: Sequence[Command]) -> list[set[int]]:
    """For each command, those that have surely finished when it starts: the closure of queue order and waits."""
    by_queue: dict[int, list[int]] = {0: [], 1: [], 2: []}
    before: list[set[int]] = []
    for index, command in enumerate(commands):
        direct = by_queue[int(command.queue)][-1:]
        for queue, wait in enumerate(command.waits):
            direct = direct + by_queue[queue][:wait]
        before.append(set(direct).union(*(before[other] for other in direct)))
        by_queue[int(command.queue)].append(index)
    return before


def orders(commands: Sequence[Command]) -> Iterator[tuple[Command, ...]]:
    """For each pair that nothing orders, two orders of all commands in which the pair stand together."""
    before = ancestors(commands)
    for late in range(len(commands)):
        for early in range(late):
            if early in before[late]:
                continue
            first = sorted((before[early] | before[late]) - {early, late})
            rest = [index for index in range(len(commands)) if index not in {*first, early, late}]
            for pair in ((early, late), (late, early)):
                yield tuple(commands[index] for index in (*first, *pair, *rest))


def runs_right(name: str, program: Program) -> bool:
    """Whether a program yields and measures what it should in every order that matters."""
    bodies = {tuple(replace(c, waits=(0, 0, 0)) for c in body) for body in (program.body, *orders(program.body))}
    return all(right(name, replace(program, body=body)) for body in bodies)


@cache
def right(name: str, program: Program) -> bool:
    """Whether a program is right when its commands run one after the other."""
    made = lowered(name)
    return made.case.run(program) == made.case.measures(made.plan)


def changed(program: Program) -> Iterator[tuple[str, Program]]:
    """Every mutant of a program's commands, tensors, and figures; not of its opcodes, which are data of the table."""
    for part in ("prologue", "body"):
        for index, command in enumerate(getattr(program, part)):
            for what, mutant in command_mutants(command):
                commands = list(getattr(program, part))
                commands[index] = mutant
                yield f"{command.opcode.name} {what}", replace(program, **{part: tuple(commands)})
        for what, commands in mutants(tuple(range(len(getattr(program, part))))):
            if ":" in what:
                picked = tuple(getattr(program, part)[index] for index in commands)
                yield f"{part} {what.split()[1]}", replace(program, **{part: picked})
    for what, tensors in mutants(program.tensors):
        if not re.match(r"\[\d+\]: exchange", what):
            yield f"tensor {what}", replace(program, tensors=tensors)
    done = {"prologue", "body", "tensors", "constants"}
    for field in (field.name for field in fields(program) if field.name not in done):
        for what, value in mutants(getattr(program, field), field):
            if value == -1:
                continue  # has no bytes
            yield what, replace(program, **{field: value})
    for index in range(len(program.constants)):
        flipped = bytes([program.constants[index] ^ 1])
        yield (
            "constants",
            replace(program, constants=program.constants[:index] + flipped + program.constants[index + 1 :]),
        )


def command_mutants(command: Command) -> Iterator[tuple[str, Command]]:
    for field in ("flags", "step", "waits"):
        for what, value in mutants(getattr(command, field), field):
            if ":" not in what and min(np.atleast_1d(value)) >= 0:
                yield re.sub(r"\d", lambda queue: str(queue[0]), what), replace(command, **{field: value})
    for field, index in ((field, index) for index, field in enumerate(command.opcode.fields)):
        for _, value in mutants(command.values[index]):
            values = (*command.values[:index], value, *command.values[index + 1 :])
            yield field.name, replace(command, values=values)


# What a mutant may change and still be right, and why. That it is right is proven by running it.
HARMLESS = {
    "waits": "a longer wait for what comes before, or a shorter one where another wait implies it",
    "exchange": "neighbours of different queues, or loads of different tensors: order between them was never needed",
    "clip_low": "no CLIP",
    "clip_high": "no CLIP",
    "bias": "no BIAS",
    "input": "the chunk lies wholly in padding",
    "weights": "the chunk lies wholly in padding",
    "in_block_bytes": "the chunk lies wholly in padding",
    "pad_top": "the chunk lies wholly in padding",
    "pad_left": "the chunk lies wholly in padding",
    "twice": "the last tensor once more, which no command names",
    "workspace_bytes": "more of it than the tensors need",
    "constants": "a byte between two constants",
}


def kind(what: str) -> str:
    return re.sub(r"\[\d\]", "", what).split()[-1]


@pytest.mark.parametrize(
    ("name", "chunks", "commands", "tried", "caught"),
    [
        ("split", [2], 8, 1074, 1014),
        ("buffers", [4], 14, 677, 640),
        ("padding", [4], 10, 511, 450),
        ("two steps", [2, 2], 14, 742, 703),
    ],
)
def test_mutants(name: str, chunks: list[int], commands: int, tried: int, caught: int) -> None:
    made = lowered(name)
    assert [len(step.chunks) for step in made.plan.steps] == chunks
    assert len(made.program.prologue) + len(made.program.body) == commands
    made.check()
    assert runs_right(name, made.program)
    counts: Counter[str] = Counter()
    for what, mutant in changed(made.program):
        assert mutant != made.program, what
        if made.caught(mutant):
            counts["caught"] += 1
        else:
            assert kind(what) in HARMLESS, what
            assert runs_right(name, mutant), what
            counts["harmless"] += 1
    assert (counts.total(), counts["caught"]) == (tried, caught)


@pytest.mark.parametrize("name", ["split", "buffers", "two steps"])  # in "padding" all chunks are alike: no fault shows
def test_exactly_the_waits_that_are_needed_are_asked_for(name: str) -> None:
    made = lowered(name)
    counts: Counter[bool] = Counter()
    for index, command in enumerate(made.program.body):
        for waits in {(0, 0, 0), *(mutant for _, mutant in mutants(command.waits) if len(mutant) == 3)}:
            if min(waits) < 0:
                continue
            program = with_command(made, index, waits=waits)
            try:
                made.check(program)
                needed = False
            except CheckFailed as error:
                if "come before it" in str(error):  # waits for what comes later: cannot run at all
                    continue
                needed = True
            assert needed == fails(name, program), (index, waits)
            counts[needed] += 1
    assert min(counts[True], counts[False]) >= 8


def fails(name: str, program: Program) -> bool:
    """Whether a program goes wrong in one of the orders that matter."""
    try:
        return not runs_right(name, program)
    except (ProgramError, AssertionError):  # reads what nothing wrote, or yields something else
        return True


def test_a_program_read_back_from_its_bytes() -> None:
    for name in ("split", "buffers", "padding", "two steps"):
        made = lowered(name)
        made.check(decode(encode(made.program)))


# Texts.


def with_command(made: Lowered, index: int, **changes: Any) -> Program:
    """The program with fields, flags or waits of one command of the body changed."""
    command = made.program.body[index]
    names = [field.name for field in command.opcode.fields]
    values = list(command.values)
    for name in [name for name in changes if name in names]:
        values[names.index(name)] = changes.pop(name)
    body = list(made.program.body)
    body[index] = replace(command, values=tuple(values), **changes)
    return replace(made.program, body=tuple(body))


def fault(made: Lowered, program: Program) -> str:
    with pytest.raises(CheckFailed) as caught:
        made.check(program)
    return str(caught.value)


BODY = ["LOAD", "CONV", "STORE"] * 4  # of the case "buffers", which the texts are about


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (1, "load command 0, which writes the SRAM bytes 0-192 that it reads"),
        (2, "compute command 0, which writes the SRAM bytes 2708-2900 that it reads"),
        (6, "compute command 0, which reads the SRAM bytes 0-192 that it overwrites"),
        (9, "compute command 1, which reads the SRAM bytes 384-768 that it overwrites"),
    ],
)
def test_texts_about_waits(index: int, text: str) -> None:
    made = lowered("buffers")
    assert [command.opcode.name for command in made.program.body] == BODY
    where = f"body command {index} ({BODY[index]}, step conv0): may run before "
    assert fault(made, with_command(made, index, waits=(0, 0, 0))) == where + text


def test_a_store_must_have_read_what_is_overwritten() -> None:
    made = lowered("buffers")
    assert made.program.body[7].waits == (3, 0, 1)
    text = "may run before store command 0, which reads the SRAM bytes 2708-2900 that it overwrites"
    assert fault(made, with_command(made, 7, waits=(3, 0, 0))) == f"body command 7 (CONV, step conv0): {text}"


def test_a_step_must_wait_for_what_the_step_before_stores() -> None:
    made = lowered("two steps")
    body = tuple(
        replace(command, waits=(*command.waits[:2], 0)) if command.queue is Queue.LOAD else command
        for command in made.program.body
    )
    index = next(i for i, command in enumerate(body) if command.opcode.name == "LOAD" and command.step == 1)
    text = "may run before store command 0, which writes the rows of y0 0-3 that it reads"
    assert fault(made, replace(made.program, body=body)) == f"body command {index} (LOAD, step conv1): {text}"


@pytest.mark.parametrize(
    ("index", "changes", "text"),
    [
        (0, {"waits": (0, 1, 0)}, "waits for 1 compute commands, but only 0 come before it"),
        (3, {"waits": (2, 0, 0)}, "waits for 2 load commands, but only 1 come before it"),
        (0, {"step": 1}, "there is no step 1"),
        (0, {"flags": 1}, "flags are 1, a LOAD has none"),
        (0, {"tensor": 9}, "there is no tensor 9"),
        (0, {"tensor": 3}, "tensor 3: traffic is 2, of data x it is 0"),
        (0, {"row": 9}, "rows 9-12 are not within the tensor's 11"),
        (0, {"channels": 2}, "moves 2 of 3 channels"),
        (0, {"row_bytes": 16}, "row_bytes is 16, must be 48"),
        (0, {"block_bytes": 100}, "sram: 100 B from block to block, must be 192 or more, in whole elements"),
        (0, {"sram": 1}, "sram: address 1 is no multiple of the element size, 4"),
        (0, {"sram": 1200}, "sram: bytes 1200-1392 do not lie within one memory of (1201, 1501, 401, 201)"),
        (1, {"flags": 5}, "flags are 5, must be 7: each CONV makes the whole sum of step conv0"),
        (1, {"stride_rows": 1}, "stride_rows is 1, of step conv0 it is 2"),
        (1, {"output": 1204}, "result in SRAM bytes 1204-1396 overlaps the operand in 1204-1492"),
        (1, {"weights": 1208}, "reads SRAM bytes 1208-1496 as weight of w0, but they hold no one operand"),
        (1, {"in_rows": 0}, "input has 0 rows and 3 columns"),
        (2, {"row": 2}, "stores rows 2-4, stored are those up to 0, the plan's next are [(0, 2)]"),
        (2, {"cols": 2, "row_bytes": 32}, "stores 2 of 3 columns of y0"),
        (
            2,
            {"sram": 2900},
            "reads the SRAM bytes 2900-3092, but nothing wrote those from 2900",
        ),
    ],
)
def test_texts(index: int, changes: dict[str, Any], text: str) -> None:
    made = lowered("buffers")
    where = f"body command {index} ({BODY[index]}, step {'1' if 'step' in changes else 'conv0'}): "
    assert fault(made, with_command(made, index, **changes)) == where + text


def test_texts_about_what_a_store_needs() -> None:
    made = lowered("buffers")
    where = "body command 5 (STORE, step conv0): stores rows 2-4"
    text = f"{where}, whose first tap is at (0, 0), but the CONV's at (-1, 0)"
    assert fault(made, with_command(made, 4, pad_top=made.program.body[4]["pad_top"] + 1)) == text
    moved = with_command(made, 3, row=made.program.body[3]["row"] + 1)
    text = f"{where}, made of rows and columns (1, 8, 0, 3) of the data, they need (0, 7, 0, 3)"
    assert fault(made, moved) == text


def without(program: Program, *indices: int) -> Program:
    body = tuple(command for index, command in enumerate(program.body) if index not in indices)
    return replace(program, body=body)


def test_texts_about_the_whole() -> None:
    made = lowered("buffers")
    where = "program of region: "
    text = "step conv0 has 3 CONVs and 3 STOREs of 6 rows, its plan 4 chunks"
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
    made = lowered("buffers")
    assert made.case.region.images == 2
    command, last = made.program.prologue[0], made.program.body[-1]
    late = replace(command, waits=(0, 4, 0), values=(*command.values[:-1], command.values[-1] + 4))
    body = (*made.program.body[:-1], late, last)
    text = "program of region: body overwrites weight w0, which the next image needs"
    plan = replace(made.plan, steps=(replace(made.plan.steps[0]),))
    traffic = plan.steps[0].traffic
    more = replace(traffic, weight_bytes=traffic.weight_bytes + 2 * made.case.values["w0"].nbytes)
    plan = replace(plan, steps=(replace(plan.steps[0], traffic=more),))
    with pytest.raises(CheckFailed) as caught:
        check_program(made.case.region, plan, replace(made.program, body=body), made.spec)
    assert str(caught.value) == text


def test_data_of_one_image_is_not_loaded_in_the_prologue() -> None:
    made = lowered("buffers")
    program = replace(made.program, prologue=(*made.program.prologue, made.program.body[0]))
    text = "prologue command 2 (LOAD, step conv0): loads x of one image in the prologue"
    assert fault(made, program) == text
    program = replace(made.program, prologue=(*made.program.prologue, made.program.body[2]))
    text = "prologue command 2 (STORE, step conv0): depends on the image, of which the prologue knows nothing"
    assert fault(made, program) == text


def test_constants_are_those_of_the_region() -> None:
    made = lowered("split")
    flipped = replace(made.program, constants=bytes([made.program.constants[0] ^ 1]) + made.program.constants[1:])
    text = "prologue command 0 (LOAD_WEIGHTS, step conv0): tensor 1: its bytes are not the value of constant w0"
    assert fault(made, flipped) == text
    check_program(made.case.region, made.plan, flipped, made.spec, values=False)
    short = replace(made.program, constants=made.program.constants[:100])
    with pytest.raises(CheckFailed):
        check_program(made.case.region, made.plan, short, made.spec, values=False)


def test_ten_thousand_chunks_take_a_moment() -> None:
    made = Lowered.of(
        region_case(Conv2d(4, 10_000, 8, 4, (3, 3), padding=(1, 1, 1, 1))),
        SPEC.replace(sram_bytes=576 + 3 * 128 + 128),
    )
    assert len(made.program.body) == 30_000
    start = time.process_time()
    made.check()
    assert time.process_time() - start < 2  # takes about 0.7 s
