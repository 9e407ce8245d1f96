"""The proof of programs: every mutant is caught, or runs right in every order that its queues can take."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from functools import cache

import numpy as np
import pytest
from core.growth import assert_linear
from core.regions import SPEC, mutants, region_case
from core.zoo import ZOO, Lowered, check, lowered, with_command

from tvm_sramtile.errors import CheckFailed, ProgramError
from tvm_sramtile.geometry import Conv2d
from tvm_sramtile.isa import Command, Program, decode, encode
from tvm_sramtile.plan.check import check_plan


def is_caught(made: Lowered, program: Program) -> bool:
    """Whether the proof fails, with one line that names the command or the program's part."""
    try:
        check(made, program)
    except CheckFailed as error:
        pattern = r"((prologue|body) command \d+ \(\w+, step [\w-]+\)|program( of region)?): [^\n]+"
        assert re.fullmatch(pattern, str(error)), str(error)  # noqa: PT017
        return True
    return False


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
    "input": "the chunk lies wholly in padding, or no tap reads it",
    "in_block_bytes": "likewise",
    "in_channels": "likewise",
    "in_rows": "likewise",
    "in_cols": "likewise",
    "pad_top": "likewise",
    "pad_left": "likewise",
    "weights": "likewise",
    "kernel_rows": "no taps, since there are no columns of taps",
    "kernel_cols": "no taps, since there are no rows of taps",
    "kernel_row_step": "one row of taps",
    "kernel_col_step": "one column of taps",
    "dilation_rows": "one row of taps, or none",
    "dilation_cols": "one column of taps, or none",
    "out_row_step": "one row is computed",
    "out_col_step": "one column is computed",
    "stride_rows": "one row is computed, or no tap reads anything",
    "stride_cols": "one column is computed, or no tap reads anything",
    "partner": "the function has no partner, or a value",
    "partner_block_bytes": "likewise",
    "value0": "the function does not look at it",
    "value1": "likewise",
    "strides": "of an axis of one position, or of a vector, which has one axis",
    "twice": "the last tensor once more, which no command names",
    "workspace_bytes": "more of it than the tensors need",
    "constants": "a byte between two constants",
}
BY_ORDER = ("waits", "exchange")  # what changes the orders in which the queues may run


def kind(what: str) -> str:
    return re.sub(r"\[\d\]", "", what).split()[-1].lstrip(".")


@pytest.mark.parametrize(
    ("name", "opcodes", "tried", "caught"),
    [
        ("rows", "LW LCSLCS", 1221, 1145),
        ("groups", "LW LCSLCSLCSLCS", 859, 801),
        ("padding", "W CSCSLCSCS", 665, 552),
        ("two_steps", " LWCSLCSLWCSLCS", 992, 935),
        ("sums", " LLWCWCLWCWCSLWCWCLWCWCS", 1826, 1643),
        ("turns", " WLCWLCSWLCWLCS", 799, 707),
        ("rolled", "W LCSKLCS", 521, 491),
        ("shelves", " LLLLLWWCESCESKLCESCESKLCESCESLLLWCESKLCESKLCES", 2248, 2006),
        ("channels", " LWCSLCSLWCSLCSLWCSLCSLWCSLCS", 1383, 1223),
        ("phases", "LWWW LCCCCCSLCCCCCSCCS", 1616, 1265),
        ("pool", "L LPEESLPEES", 644, 587),
        ("resize", " LTTRSLTRSLTTRSLTRS", 941, 820),
        ("pointwise", " LLEESLLEESLLES", 1110, 994),
        ("joined", " LESLPSLESLES", 780, 715),
        ("stays", " LWCLWCWCWCWCWCWCWCESCESCESCESWCESCESCESCESLESLESPS", 3022, 2648),
    ],
)
def test_mutants(name: str, opcodes: str, tried: int, caught: int) -> None:
    made = lowered(name)
    assert " ".join(map(initials, (made.program.prologue, made.program.body))) == opcodes
    check_plan(made.case.region, made.plan, made.spec)
    check(made)
    assert runs_right(name, made.program)
    counts: Counter[str] = Counter()
    for what, mutant in changed(made.program):
        assert mutant != made.program, what
        if is_caught(made, mutant):
            counts["caught"] += 1
        else:
            assert kind(what) in HARMLESS, what
            assert runs_right(name, mutant) if kind(what) in BY_ORDER else right(name, mutant), what
            counts["harmless"] += 1
    assert (counts.total(), counts["caught"]) == (tried, caught)


def initials(commands: Sequence[Command]) -> str:
    """The opcodes' initials, W for weights, T for tables, K for copies."""
    others = {"LOAD_WEIGHTS": "W", "LOAD_TABLE": "T", "COPY": "K"}
    return "".join(others.get(command.opcode.name, command.opcode.name[0]) for command in commands)


def test_a_mutant_of_each_harmless_kind_exists() -> None:
    found = set()
    for name in ZOO:
        made = lowered(name)
        found |= {kind(what) for what, mutant in changed(made.program) if not is_caught(made, mutant)}
    assert found == set(HARMLESS)


# Commands that lack a wait may still yield what they should: stale values can be the right ones.
UNSEEN = {"phases": 2, "padding": 4, "shelves": 2}


@pytest.mark.parametrize("name", ZOO)
def test_exactly_the_waits_that_are_needed_are_asked_for(name: str) -> None:
    made = lowered(name)
    counts: Counter[tuple[bool, bool]] = Counter()
    for index, command in enumerate(made.program.body):
        for waits in {(0, 0, 0), *(mutant for _, mutant in mutants(command.waits) if len(mutant) == 3)}:
            if min(waits) < 0:
                continue
            program = with_command(made, index, waits=waits)
            try:
                check(made, program)
                needed = False
            except CheckFailed as error:
                if "come before it" in str(error):  # waits for what comes later: cannot run at all
                    continue
                needed = True
            counts[needed, fails(name, program)] += 1
    assert counts[False, True] == 0
    assert counts[True, False] == UNSEEN.get(name, 0)
    assert min(counts[True, True], counts[False, False]) >= 8


def fails(name: str, program: Program) -> bool:
    """Whether a program goes wrong in one of the orders that matter."""
    try:
        return not runs_right(name, program)
    except (ProgramError, AssertionError):  # reads what nothing wrote, or yields something else
        return True


def test_a_program_read_back_from_its_bytes() -> None:
    for name in ZOO:
        made = lowered(name)
        check(made, decode(encode(made.program)))


def test_the_proof_of_ten_times_as_many_chunks_takes_ten_times_as_long() -> None:
    def made(chunks: int) -> Lowered:
        op = Conv2d(4, chunks, 8, 4, (3, 3), padding=(1, 1, 1, 1))
        return Lowered.of(region_case(op), SPEC.replace(sram_bytes=576 + 3 * 128 + 128))

    small, large = made(1000), made(10_000)
    assert len(large.program.body) == 30_000
    assert_linear(lambda: check(small), lambda: check(large), 10)
