"""From plans to programs: tensors, commands, waits, and the time they take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from core.growth import assert_linear
from core.programs import pack, tensor, weight_tensor
from core.regions import SEED, SPEC, Case, region_case

from tvm_sramtile.compile import Compiled, compile_region
from tvm_sramtile.errors import CheckFailed
from tvm_sramtile.geometry import Conv2d
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Clip, Region
from tvm_sramtile.isa import Command, Layout, Opcode, Place, Program, Queue, Traffic, encode
from tvm_sramtile.isa.table import (
    CONV,
    CONV_FIRST,
    CONV_LAST,
    ELTWISE,
    LOAD,
    LOAD_TABLE,
    LOAD_WEIGHTS,
    POOL,
    RESIZE,
    STORE,
)
from tvm_sramtile.lower import Timeline, command_cycles, lower, timeline
from tvm_sramtile.lower.constants import pack_weights
from tvm_sramtile.options import Options
from tvm_sramtile.plan import Plan, plan_region

DEFAULT = SEED
SAME = Conv2d(4, 8, 8, 4, (3, 3), padding=(1, 1, 1, 1))
TIGHT = SPEC.replace(sram_bytes=1500)  # four chunks of SAME
ROOMY = SPEC.replace(sram_bytes=None, input_bytes=1024, weight_bytes=1 << 16, output_bytes=1024, accumulator_bytes=256)


def compiled(case: Case, spec: AcceleratorSpec, options: Options = DEFAULT) -> Compiled:
    return compile_region(case.region, spec, options, case.constants)


def names(commands: tuple[Command, ...], step: int | None = None) -> str:
    """The opcodes' initials, W for weights."""
    letters = {"LOAD": "L", "LOAD_WEIGHTS": "W", "CONV": "C", "STORE": "S"}
    return "".join(letters[command.opcode.name] for command in commands if step in (None, command.step))


def test_the_same_plan_gives_the_same_bytes() -> None:
    case = region_case(SAME, SAME, bias=True, constant=True, clips=(Clip(0.0, 6.0), None))
    first = compiled(case, TIGHT)
    again = compiled(region_case(SAME, SAME, bias=True, constant=True, clips=(Clip(0.0, 6.0), None)), TIGHT)
    assert first.code == again.code
    region, plan = Region.from_json(case.region.to_json()), Plan.from_json(first.plan.to_json())
    assert encode(lower(region, plan, TIGHT, case.constants)) == first.code
    assert compile_region(region, TIGHT, SEED, case.constants, plan).code == first.code


@pytest.mark.parametrize("limit", [1, 3, 64, None])
def test_the_program_does_not_depend_on_how_a_body_is_written(limit: int | None) -> None:
    case = region_case(SAME, bias=True)
    code = compiled(case, TIGHT).code
    assert compiled(case, TIGHT, SEED.replace(max_unrolled_chunks=limit)).code == code


# Tensors.


def test_constants_are_stored_once() -> None:
    case = region_case(SAME, SAME, SAME, constant=True, bias=True)
    first = case.region.steps[0]
    steps = [first]
    for step in case.region.steps[1:]:  # other names, the same values
        weight = replace(step.weight, digest=first.weight.digest)
        assert step.bias is not None
        assert first.bias is not None
        steps.append(replace(step, weight=weight, bias=replace(step.bias, digest=first.bias.digest)))
    values = dict(case.values)
    for name in ("w1", "w2"):
        values[name] = values["w0"]
    for name in ("b1", "b2"):
        values[name] = values["b0"]
    case = Case(replace(case.region, steps=tuple(steps)), values)
    program = compiled(case, TIGHT).program
    weight_bytes, bias_bytes = values["w0"].nbytes, values["b0"].nbytes
    assert len(program.constants) == weight_bytes + 64  # the bias, up to a multiple of 64
    assert weight_bytes % 64 == 0
    bias_at, weight_at = 0, 64  # in the order of first use
    assert program.constants[bias_at : bias_at + bias_bytes] == values["b0"].tobytes()
    places = {(record.layout, record.offset) for record in program.tensors if record.place is Place.CONSTANT}
    assert places == {(Layout.PACKED, weight_at), (Layout.MAP, bias_at)}
    case.run(program)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (4, 4, 3, 3), (6, 5, 3, 1), (9, 3, 1, 2), (3, 9, 2, 2)])
def test_packed_weights(shape: tuple[int, int, int, int]) -> None:
    value = np.random.default_rng(0).standard_normal(shape, np.float32)
    assert pack_weights(value, 4) == pack(value, 4).tobytes()


@pytest.mark.parametrize("damage", ["absent", "other"])
def test_a_constant_that_is_missing(damage: str) -> None:
    case = region_case(SAME, constant=True)
    plan = plan_region(case.region, TIGHT, SEED)
    digest = str(case.region.steps[0].weight.digest)
    constants = {} if damage == "absent" else {digest: case.values["w0"] + 1}
    with pytest.raises(CheckFailed) as caught:
        lower(case.region, plan, TIGHT, constants)
    text = "constant w0 (4, 4, 3, 3): its value is not among those of the region's function"
    assert str(caught.value) == text


def test_a_program_that_is_only_counted_has_zeros_for_constants() -> None:
    case = region_case(SAME, SAME, constant=True, bias=True)
    counted, real = compile_region(case.region, TIGHT, SEED, None), compiled(case, TIGHT)
    assert not any(counted.program.constants)
    assert counted.predicted == real.predicted
    constants = real.program.constants
    assert replace(counted.program, constants=constants) == real.program


def test_a_plan_beyond_the_memory() -> None:
    case = region_case(SAME)
    plan = plan_region(case.region, SPEC, SEED)
    with pytest.raises(CheckFailed) as caught:
        lower(case.region, plan, SPEC.replace(sram_bytes=2000), {})
    assert str(caught.value) == "step conv0: its buffers take 2624 B of the 2000 B of memory pool"


def test_weights_as_parameters_or_constants_move_the_same_bytes() -> None:
    for images in (1, 3):
        constant = compiled(region_case(SAME, SAME, images=images, bias=True, constant=True), TIGHT)
        parameter = compiled(region_case(SAME, SAME, images=images, bias=True), TIGHT)
        assert constant.predicted == parameter.predicted
        assert constant.program.body == parameter.program.body


# Steps.


def test_a_tensor_between_steps_lies_in_the_workspace() -> None:
    case = region_case(SAME, replace(SAME, kernel=(1, 1), padding=(0, 0, 0, 0)), images=2)
    made = compiled(case, TIGHT)
    between = tensor(Traffic.OUTPUTS, (4, 8, 8), place=Place.WORKSPACE)
    assert [record for record in made.program.tensors if record.place is Place.WORKSPACE] == [
        between,
        replace(between, traffic=Traffic.INPUTS),
    ]
    assert made.program.workspace_bytes == 2 * 4 * 8 * 8 * 4
    assert made.program.prologue == ()
    assert names(made.program.body, 0) == "LWCS" + "LCS" * 3
    assert names(made.program.body, 1) == "LWCS" + "LCS" * (made.plan.steps[1].chunk_count - 1)
    assert case.run(made.program) == case.measures(made.plan)


def test_an_output_of_the_region_that_a_step_reads() -> None:
    case = region_case(SAME, SAME, images=2, outputs=(1, 0))
    made = compiled(case, TIGHT)
    assert made.program.workspace_bytes == 0
    assert {record.place for record in made.program.tensors} == {Place.ARGUMENT}
    assert case.run(made.program) == case.measures(made.plan)


def test_three_steps_that_share_a_workspace() -> None:
    ops = (SAME, Conv2d(4, 8, 8, 6, (3, 3), strides=(2, 1), padding=(1, 0, 1, 0)), Conv2d(6, 4, 6, 2, (1, 1)))
    case = region_case(*ops, images=3, constant=True, bias=True, clips=(Clip(0.0, None),))
    made = compiled(case, SPEC.replace(sram_bytes=2000))
    assert [step.chunk_count for step in made.plan.steps] == [2, 4, 1]
    assert made.program.workspace_bytes == 3 * (4 * 8 * 8 + 6 * 4 * 6) * 4
    assert case.run(made.program) == case.measures(made.plan)


@pytest.mark.parametrize("images", [1, 2, 5])
def test_weights_of_a_lone_step_are_loaded_once_a_call(images: int) -> None:
    case = region_case(SAME, images=images, bias=True)
    made = compiled(case, TIGHT)
    assert names(made.program.prologue) == "LW"
    assert names(made.program.body) == "LCS" * 4
    assert made.predicted.traffic.weight_bytes == (4 * 4 * 9 + 4) * 4
    assert made.predicted.traffic.output_bytes == images * 4 * 8 * 8 * 4
    assert case.run(made.program) == case.measures(made.plan)


# Waits.


def test_one_copy_of_each_buffer() -> None:
    made = compiled(region_case(SAME), TIGHT, SEED.replace(double_buffer=False))
    waits = [command.waits for command in made.program.body]
    assert names(made.program.body) == "LCS" * 4
    assert waits[0::3] == [(0, 0, 0), (0, 1, 0), (0, 2, 0), (0, 3, 0)]  # until the chunk before has been read
    assert waits[1::3] == [(1, 0, 0), (2, 0, 1), (3, 0, 2), (4, 0, 3)]  # until loaded, and the one before stored
    assert waits[2::3] == [(0, 1, 0), (0, 2, 0), (0, 3, 0), (0, 4, 0)]


def test_two_copies_of_each_buffer_let_the_queues_overlap() -> None:
    case = region_case(SAME)
    made, single = compiled(case, ROOMY), compiled(case, ROOMY, SEED.replace(double_buffer=False))
    assert {buffer.name: len(buffer.copies) for buffer in made.plan.steps[0].buffers} == {
        "weights": 1,
        "input": 2,
        "output": 2,
        "accumulators": 1,
    }
    waits = [command.waits for command in made.program.body]
    assert names(made.program.body) == "LCS" * 4
    assert waits[0::3] == [(0, 0, 0), (0, 0, 0), (0, 1, 0), (0, 2, 0)]  # the next chunk is loaded during the CONV
    assert waits[1::3] == [(1, 0, 0), (2, 0, 0), (3, 0, 1), (4, 0, 2)]  # the chunk before is stored during the CONV
    assert waits[2::3] == [(0, 1, 0), (0, 2, 0), (0, 3, 0), (0, 4, 0)]
    one, two = single.predicted.time, made.predicted.time
    assert (one.load_busy_cycles, one.compute_busy_cycles, one.store_busy_cycles) == (
        two.load_busy_cycles,
        two.compute_busy_cycles,
        two.store_busy_cycles,
    )
    assert two.cycles < one.cycles < two.load_busy_cycles + two.compute_busy_cycles + two.store_busy_cycles


def test_the_next_step_waits_for_the_rows_of_the_one_before() -> None:
    made = compiled(region_case(SAME, SAME), TIGHT)
    stores = [c for c in made.program.body if c.opcode is STORE and c.step == 0]
    loads = [c for c in made.program.body if c.opcode is LOAD and c.step == 1]
    assert len(stores) == 4
    assert max(command.waits[Queue.STORE] for command in loads) == 4


# The timeline, by hand.

CHIP = SPEC.replace(dma_bytes_per_cycle=8, dma_setup_cycles=10, mac_array=(4, 4))


def by_hand(body: list[tuple[str, int, tuple[int, int, int]]], prologue: int = 0) -> Program:
    """Commands (L, C or S; how many elements, or output rows; waits), and a prologue of so many loads of 4 elements."""
    record = tensor(Traffic.INPUTS, (64, 1, 1))

    def move(letter: str, channels: int, waits: tuple[int, int, int]) -> Command:
        fields = {"tensor": 0, "channel": 0, "channels": channels, "row": 0, "rows": 1, "col": 0, "cols": 1}
        made = Command.make(LOAD if letter == "L" else STORE, **fields, sram=0, block_bytes=16, row_bytes=16)
        return replace(made, waits=waits)

    commands = [conv(rows=size, waits=w) if letter == "C" else move(letter, size, w) for letter, size, w in body]
    once = tuple(move("L", 4, (0, 0, 0)) for _ in range(prologue))
    chip = Program.chip(CHIP)
    return Program(**chip, argument_count=1, tensors=(record,), prologue=once, body=tuple(commands))


def conv(rows: int = 1, waits: tuple[int, int, int] = (0, 0, 0), **changes: int) -> Command:
    """A CONV of ``rows`` output rows of one pixel, each a cycle unless changed."""
    fields: dict[str, int] = dict.fromkeys((field.name for field in CONV.fields), 1)
    fields |= {"out_rows": rows} | changes
    return replace(Command.make(CONV, flags=CONV_FIRST | CONV_LAST, **fields), waits=waits)


def test_costs() -> None:
    program = by_hand([("L", 4, (0, 0, 0)), ("S", 5, (0, 0, 0)), ("C", 7, (0, 0, 0))])
    assert [command_cycles(program, command) for command in program.body] == [10 + 2, 10 + 3, 7]


@pytest.mark.parametrize(
    ("changes", "cycles"),
    [
        ({}, 1),
        ({"in_channels": 4, "out_channels": 4}, 1),
        ({"in_channels": 5, "out_channels": 9}, 2 * 3),
        ({"in_channels": 5, "out_channels": 9, "unit_rows": 3, "unit_cols": 2, "out_cols": 7}, 2 * 3 * 6 * 7),
        ({"kernel_rows": 2, "kernel_cols": 1, "unit_rows": 3, "unit_cols": 3}, 9),  # a unit spends all its taps
        ({"out_map_rows": 8, "out_map_cols": 8, "out_cols": 3}, 3),  # of a phase only its own outputs
        ({"in_channels": 8, "out_channels": 8, "groups": 2}, 2),  # two groups, each one pass of the array
        ({"in_channels": 16, "out_channels": 16, "groups": 8}, 2 * 4),  # by lane: 2 of a group, 4 passes
        ({"in_channels": 9, "out_channels": 9, "groups": 9}, 3),  # depthwise: 9 lanes in 3 passes
    ],
)
def test_cycles_of_a_convolution(changes: dict[str, int], cycles: int) -> None:
    assert command_cycles(by_hand([]), conv(**changes)) == cycles


def computing(opcode: Opcode, **changes: int) -> Command:
    return Command.make(opcode, **{**dict.fromkeys((field.name for field in opcode.fields), 1), **changes})


def test_cycles_of_other_commands() -> None:
    """Four channels a cycle, position by position, tap by tap."""
    table = replace(tensor(Traffic.WEIGHTS, (64, 3, 1)), layout=Layout.TABLE)
    program = replace(by_hand([]), tensors=(weight_tensor((8, 4, 3, 3)), table))
    box = {"out_channels": 5, "in_channels": 3, "kernel_rows": 2, "kernel_cols": 1}
    for command, cycles in (
        (computing(POOL, channels=9, out_rows=5, out_cols=2, kernel_rows=3, kernel_cols=4), 3 * 10 * 12),
        (computing(RESIZE, channels=4, out_rows=5, out_cols=2, row_taps=3, col_taps=4), 10 * 12),
        (computing(ELTWISE, channels=5, rows=3, cols=7), 2 * 21),
        (computing(LOAD_WEIGHTS, tensor=0, **box), 10 + 5 * 3 * 2 * 4 // 8),
        (computing(LOAD_TABLE, tensor=1, count=5), 10 + 5 * 3),
    ):
        assert command_cycles(program, command) == cycles


@pytest.mark.parametrize(
    ("body", "cycles"),
    [
        ([], 0),
        ([("L", 4, (0, 0, 0)), ("L", 4, (0, 0, 0))], 24),
        ([("L", 4, (0, 0, 0)), ("C", 5, (0, 0, 0)), ("S", 4, (0, 0, 0))], 12),  # all at once
        ([("L", 4, (0, 0, 0)), ("C", 5, (1, 0, 0)), ("S", 4, (0, 1, 0))], 12 + 5 + 12),
        # A second chunk with a buffer of its own: its load runs beside the first CONV.
        ([("L", 4, (0, 0, 0)), ("C", 20, (1, 0, 0)), ("L", 4, (0, 0, 0)), ("C", 20, (2, 0, 0))], 12 + 20 + 20),
        ([("L", 4, (0, 0, 0)), ("C", 20, (1, 0, 0)), ("L", 4, (0, 1, 0)), ("C", 20, (2, 0, 0))], 12 + 20 + 12 + 20),
        # The third CONV waits for the store of the first.
        (
            [
                ("C", 5, (0, 0, 0)),
                ("S", 24, (0, 1, 0)),
                ("C", 5, (0, 0, 0)),
                ("S", 4, (0, 2, 0)),
                ("C", 5, (0, 0, 1)),
                ("S", 4, (0, 3, 0)),
            ],
            5 + 22 + 12 + 12,
        ),
    ],
)
def test_timeline(body: list[tuple[str, int, tuple[int, int, int]]], cycles: int) -> None:
    program = by_hand(body, prologue=2)
    assert timeline(program).cycles == 24 + cycles
    assert timeline(program, images=3).cycles == 24 + 3 * cycles
    assert timeline(program, images=0) == Timeline(24, 24, 0, 0)


def test_busy_cycles() -> None:
    program = by_hand([("L", 4, (0, 0, 0)), ("C", 5, (1, 0, 0)), ("S", 5, (0, 1, 0))], prologue=1)
    assert timeline(program, images=2) == Timeline(12 + 2 * 30, 12 + 24, 10, 26)


def test_lowering_ten_times_as_many_chunks_takes_ten_times_as_long() -> None:
    spec = SPEC.replace(sram_bytes=576 + 3 * 128 + 128)

    def lowering(chunks: int) -> Callable[[], bytes]:
        region = region_case(Conv2d(4, chunks, 8, 4, (3, 3), padding=(1, 1, 1, 1))).region
        plan = plan_region(region, spec, SEED)
        assert plan.chunk_count == chunks
        return lambda: encode(lower(region, plan, spec, {}))

    assert len(lowering(10_000)()) < 4_000_000
    assert_linear(lowering(1000), lowering(10_000), 10)
