"""Maps that stay in SRAM between the steps of a region."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core.regions import SPEC
from core.whole_chips import whole_case
from core.zoo import Builder, Lowered, check, lowered

from tvm_sramtile.errors import CheckFailed
from tvm_sramtile.geometry import Conv2d, Elementwise
from tvm_sramtile.ir import Region
from tvm_sramtile.options import Options
from tvm_sramtile.plan import plan_region
from tvm_sramtile.plan.check import check_plan
from tvm_sramtile.plan.explain import explain_step
from tvm_sramtile.plan.plan import ALONE, Around, Stay

SEARCH = Options()


def test_a_map_that_fits_beside_the_rest_is_neither_stored_nor_loaded() -> None:
    build = Builder(constant=True)
    first = build.step(Conv2d(4, 6, 6, 8, (3, 3), padding=(1, 1, 1, 1)), build.map(4, 6, 6))
    last = build.step(Conv2d(8, 6, 6, 4, (1, 1)), first)
    made = Lowered.of(build.case(last), SPEC, SEARCH)
    check(made)
    first_plan, last_plan = made.plan.steps
    assert made.plan.stays == (Stay("y0", 0, 1, 0, 6 * 6 * 8 * 4),)
    assert first_plan.around == Around(("output",), stored=False, taken_bytes=1152)
    assert last_plan.around == Around(("input",), stored=True, taken_bytes=1152)
    assert (first_plan.traffic.output_bytes, last_plan.traffic.input_bytes) == (0, 0)
    assert last_plan.reason == "input map 1,152 B stays in SRAM"
    opcodes = [command.opcode.name for command in (*made.program.prologue, *made.program.body)]
    assert opcodes == ["LOAD", "LOAD_WEIGHTS", "CONV", "LOAD_WEIGHTS", "CONV", "STORE"]
    assert made.program.workspace_bytes == 0
    assert made.case.run(made.program) == made.case.measures(made.plan)


def test_what_the_caller_wants_goes_to_dram_as_well() -> None:
    plan = lowered("stays").plan
    assert [step.around.stored for step in plan.steps] == [False, False, True, True, True]
    assert [step.around.maps for step in plan.steps] == [
        ("output",),
        ("input", "output"),
        ("input",),
        ("other", "output"),
        ("input",),
    ]


def test_a_map_with_a_late_reader_stays_up_to_an_earlier_one() -> None:
    build = Builder(constant=True)
    first = build.step(Conv2d(4, 4, 4, 4, (1, 1)), build.map(4, 4, 4))
    second = build.step(Conv2d(4, 4, 4, 64, (3, 3), padding=(1, 1, 1, 1)), first)
    third = build.step(Conv2d(64, 4, 4, 4, (3, 3), padding=(1, 1, 1, 1)), second)
    last = build.step(Elementwise(4, 4, 4, "add", "map"), third, other=first)
    made = Lowered.of(build.case(last), SPEC.replace(sram_bytes=1100), SEARCH)
    check(made)
    stay = next(one for one in made.plan.stays if one.tensor == "y0")
    assert (stay.first, stay.last) == (0, 1)
    assert made.plan.steps[0].around.stored
    assert made.case.run(made.program) == made.case.measures(made.plan)


@pytest.mark.parametrize(
    "changes", [{"sram_bytes": None, "input_bytes": 9000, "weight_bytes": 9000, "output_bytes": 9000}]
)
def test_nothing_stays_where_outputs_are_made_in_a_memory_of_their_own(changes: dict[str, int | None]) -> None:
    case = lowered("stays").case
    assert plan_region(case.region, SPEC.replace(**changes), SEARCH).stays == ()


def test_the_seed_knows_of_no_map_that_stays() -> None:
    assert plan_region(lowered("stays").case.region, SPEC, Options(strategy="seed")).stays == ()


def test_no_region_moves_more_for_what_stays() -> None:
    kept = 0
    for seed in range(3, 2400, 6):
        case, spec, options = whole_case(seed)
        if len(case.region.steps) == 1 or options.strategy == "seed" or options.objective != "dram_bytes":
            continue
        plan = plan_region(case.region, spec, options)
        kept += len(plan.stays)
        steps = [plan_region(_alone(case.region, at), spec, options) for at in range(len(case.region.steps))]
        # Weights of a step alone in its region may stay over the images of a call; so compare one image.
        if case.region.images == 1:
            assert plan.traffic.total_bytes <= sum(one.traffic.total_bytes for one in steps)
    assert kept > 10


def _alone(region: Region, index: int) -> Region:
    step = region.steps[index]
    inputs = tuple({tensor.name: tensor for tensor in step.inputs if tensor.digest is None}.values())
    return replace(region, inputs=inputs, outputs=(step.output,), steps=(step,))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"offset_bytes": 2}, "map y0, which stays in SRAM, begins at byte 2, which is no place of an element"),
        ({"bytes": 252}, "map y0, which stays in SRAM, has 252 B, must have 256"),
        ({"offset_bytes": 128}, "maps y0 and y1 overlap in SRAM"),
        ({"tensor": "y9"}, "map y9, which stays in SRAM, is made by the steps [], must be made by step 0 alone"),
        (
            {"last": 2},
            "map y0, which stays in SRAM, stays from step 0 to step 2, but the steps that read it are [1, 3]",
        ),
    ],
)
def test_texts(changes: dict[str, int | str], text: str) -> None:
    made = lowered("stays")
    plan = replace(made.plan, stays=(replace(made.plan.stays[0], **changes), *made.plan.stays[1:]))
    with pytest.raises(CheckFailed) as caught:
        check_plan(made.case.region, plan, made.spec)
    assert str(caught.value) == f"plan of region region: {text}"


def test_explained_with_what_stays_beside_it() -> None:
    made = lowered("stays")
    step, plan = made.case.region.steps[2], made.plan.steps[2]
    found = explain_step(step, made.spec, SEARCH, only_step=False, around=plan.around)
    memory, limit, buffers = found.memory
    assert (memory, limit) == ("pool", 700)
    assert dict(buffers)["maps that stay"] == plan.around.taken_bytes == 512
    assert found.chosen.dram_bytes == plan.traffic.total_bytes
    assert found.bound_bytes <= found.chosen.dram_bytes
    assert plan.around != ALONE
