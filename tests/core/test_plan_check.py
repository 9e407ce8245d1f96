"""The proof of plans: every mutant of a plan is caught, or is another right plan."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from core.growth import assert_linear
from core.regions import SEED, SPEC, mutants, region_case
from core.zoo import ZOO, Lowered, lowered

from tvm_sramtile.compile import compile_region
from tvm_sramtile.errors import CheckFailed
from tvm_sramtile.geometry import Conv2d, Elementwise
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ints import Range
from tvm_sramtile.ir import Region
from tvm_sramtile.plan import Buffer, KernelPass, Plan, plan_region
from tvm_sramtile.plan.check import check_plan

TAP = Range(0, 1)

# What a mutant may change and still be a right plan, and why. That it is right is proven by compiling and running it.
HARMLESS = {
    "once_per_call": "with one image, or nothing to load, they are loaded once either way",
    "passes_resident": "there is one pass with taps, or none",
    "input_per_pass": "there is one pass, which reads what the chunk does, and no chunk reads what another did",
    "order: exchange": "one axis alone is cut: the order of the loops is the same",
    "rolled": "there is one chunk of rows",
    "stays: exchange": "in another order they lie where they lay",
    "passes: exchange": "the sums come in another order",
    "buffers: exchange": "buffers in another order lie at other addresses",
    "copies: drop": "one copy fewer is no double buffering",
    "copies: put twice": "one copy more, where it fits",
}


def kind(what: str) -> str:
    """The last field of a mutant's path, and what was done to it."""
    field = re.sub(r"\[\d+\]", "", what).rsplit(".", 1)[-1]
    return re.sub(r" \d+", "", field)


def is_caught(made: Lowered, plan: Plan) -> bool:
    """Whether a plan is caught, with one line that names the region or the step."""
    try:
        check_plan(made.case.region, plan, made.spec)
    except CheckFailed as error:
        assert re.fullmatch(r"plan of (region \w+|step \w+): [^\n]+", str(error))  # noqa: PT017
        return True
    return False


def is_right(made: Lowered, plan: Plan) -> bool:
    """Whether a plan compiles, runs, and measures what it says."""
    compiled = compile_region(made.case.region, made.spec, SEED, made.case.constants, plan)
    return made.case.run(compiled.program) == made.case.measures(plan)


@pytest.mark.parametrize(
    ("name", "chunks", "tried", "caught"),
    [
        ("rows", [2], 157, 150),
        ("groups", [4], 200, 189),
        ("padding", [4], 168, 163),
        ("two_steps", [2, 2], 291, 281),
        ("sums", [2], 196, 189),
        ("turns", [2], 167, 164),
        ("rolled", [2], 145, 139),
        ("shelves", [9], 192, 187),
        ("channels", [8], 170, 164),
        ("phases", [3], 250, 242),
        ("pool", [2], 126, 121),
        ("resize", [4], 146, 141),
        ("pointwise", [2, 1], 232, 224),
        ("joined", [1, 1, 2], 307, 301),
        ("stays", [1, 1, 8, 2, 1], 704, 681),
    ],
)
def test_mutants(name: str, chunks: list[int], tried: int, caught: int) -> None:
    made = lowered(name)
    assert [step.chunk_count for step in made.plan.steps] == chunks
    assert not is_caught(made, made.plan)
    assert is_right(made, made.plan)
    counts: Counter[str] = Counter()
    for what, mutant in mutants(made.plan):
        assert mutant != made.plan
        if is_caught(made, mutant):
            counts["caught"] += 1
        else:
            assert kind(what) in HARMLESS, what
            assert is_right(made, mutant), what
            counts["harmless"] += 1
    assert (counts.total(), counts["caught"]) == (tried, caught)


def test_a_mutant_of_each_harmless_kind_exists() -> None:
    found = set()
    for name in ZOO:
        made = lowered(name)
        found |= {kind(what) for what, mutant in mutants(made.plan) if not is_caught(made, mutant)}
    assert found == set(HARMLESS)


def fault(region: Region, plan: Plan, spec: AcceleratorSpec) -> str:
    with pytest.raises(CheckFailed) as caught:
        check_plan(region, plan, spec)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "changes", "text"),
    [
        ("rows", {"step": "conv1"}, "plan of region region: it has the steps ['conv1'], the region ['conv0']"),
        (
            "rows",
            {"tested_map": "output"},
            "direction and tested map are ('output-to-input', 'output'), of a conv2d ('output-to-input', 'input')",
        ),
        ("rows", {"rows": ()}, "output positions that the row chunks cover is 0, must be 6"),
        ("rows", {"channels": (Range(0, 2), Range(2, 4))}, "channels 2-4 do not start with a block of 4"),
        ("rows", {"channels": (Range(0, 5),)}, "output channels that the channel chunks cover is 5, must be 4"),
        ("rows", {"passes": ()}, "phases (0, 0): tap (0, 0) is in 0 passes, must be in one"),
        ("rows", {"footprint_bytes": 1}, "footprint_bytes is 1, must be 288"),
        ("rows", {"space_bytes": 1}, "space_bytes is 1, must be 271"),
        ("rows", {"buffers": ()}, "buffers are [], needed are ['weights', 'bias', 'input', 'output']"),
        ("groups", {"once_per_call": False}, "traffic.weight_bytes is 240, must be 480"),
        (
            "channels",
            {"channels": (Range(0, 4), Range(4, 8), Range(8, 12))},
            "channel chunk 1: 4-8 are neither whole groups of 6 nor within one",
        ),
        (
            "sums",
            {"passes": (KernelPass(0, 0, Range(0, 3), Range(0, 2), (3, 2)),)},
            "pass 0: (3, 2) is no unit kernel: units are [(2, 2)]",
        ),
        (
            "sums",
            {"passes": (KernelPass(0, 0, Range(0, 3), Range(0, 2), (2, 2)),)},
            "pass 0: 3x2 taps on a unit of 2x2",
        ),
        (
            "sums",
            {"passes": tuple(KernelPass(0, 0, Range(at, at + 1), Range(0, 2), (2, 2)) for at in range(3))},
            "phases (0, 0): 12 taps of units are spent, the seed's split takes 8",
        ),
        ("phases", {"passes": (KernelPass(0, 2, TAP, TAP, (3, 3)),)}, "pass 0: no output has the phases (0, 2)"),
        ("pool", {"passes": (KernelPass(0, 0, TAP, TAP, (1, 1)),)}, "1 passes of an operator without a kernel"),
        (
            "pool",
            {"in_channels": (Range(0, 4), Range(4, 5))},
            "2 parts of a sum, but the operator sums over no channels",
        ),
        (
            "pointwise",
            {"once_per_call": True},
            "once_per_call, but the region has other steps, which need the same SRAM",
        ),
        ("channels", {"once_per_call": True}, "once_per_call, but weights or vectors take each other's place"),
    ],
)
def test_texts(name: str, changes: dict[str, Any], text: str) -> None:
    made = lowered(name)
    steps = (replace(made.plan.steps[0], **changes), *made.plan.steps[1:])
    if not text.startswith("plan"):
        text = f"plan of step {made.plan.steps[0].step}: {text}"
    assert fault(made.case.region, replace(made.plan, steps=steps), made.spec) == text


@pytest.mark.parametrize(
    ("axis", "index", "changes", "text"),
    [
        (
            "rows",
            1,
            {"out": Range(3, 4)},
            "row chunk 1: output positions 3-4 do not start at 2, where those before end",
        ),
        ("rows", 1, {"out": Range(2, 2)}, "row chunk 1: no output positions"),
        ("rows", 3, {"out": Range(6, 8)}, "output positions that the row chunks cover is 8, must be 7"),
        ("rows", 1, {"read": Range(1, 7)}, "row chunk 1, output 2-4: read.start is 1, must be 0"),
        ("rows", 1, {"read": Range(0, 8)}, "row chunk 1, output 2-4: read.stop is 8, must be 7"),
        ("rows", 0, {"before": 3}, "row chunk 0, output 0-2: before is 3, must be 4"),
        ("rows", 3, {"after": 9}, "row chunk 3, output 6-7: after is 9, must be 2"),
        ("cols", 0, {"after": 1}, "col chunk 0, output 0-3: after is 1, must be 2"),
    ],
)
def test_texts_about_chunks(axis: str, index: int, changes: dict[str, Any], text: str) -> None:
    made = lowered("groups")
    step = made.plan.steps[0]
    spans = list(getattr(step, axis))
    spans[index] = replace(spans[index], **changes)
    plan = replace(made.plan, steps=(replace(step, **{axis: tuple(spans)}),))
    assert fault(made.case.region, plan, made.spec) == f"plan of step conv0: {text}"


CONV = Conv2d(4, 8, 8, 4, (3, 3), padding=(1, 1, 1, 1))


def test_a_cut_finer_than_needed() -> None:
    region, spec = region_case(CONV, images=2, bias=True).region, SPEC.replace(sram_bytes=1500)
    assert plan_region(region, spec, SEED).chunk_count == 4
    fine = plan_region(region, spec.replace(sram_bytes=1104), SEED.replace(double_buffer=False))
    assert fine.chunk_count == 8
    text = "plan of step conv0: cut into chunks of 1 output rows, but 2 rows fit"
    assert fault(region, fine, spec) == text
    columns = plan_region(region, spec.replace(sram_bytes=900), SEED.replace(double_buffer=False))
    assert len(columns.steps[0].cols) > 1
    assert fault(region, columns, spec) == "plan of step conv0: cut into chunks of 4 output columns, but 8 columns fit"


def test_a_memory_that_is_too_small() -> None:
    region = region_case(CONV).region
    plan = plan_region(region, SPEC, SEED)
    text = "plan of step conv0: buffers take 2624 B of memory pool, which has 2623 B"
    assert fault(region, plan, SPEC.replace(sram_bytes=2623)) == text
    buffers = tuple(Buffer(b.name, "output", b.copies) for b in plan.steps[0].buffers)
    moved = replace(plan, steps=(replace(plan.steps[0], buffers=buffers),))
    assert fault(region, moved, SPEC) == "plan of step conv0: memory of buffer weights is output, must be pool"


@pytest.mark.parametrize(
    ("tensor", "changes", "text"),
    [
        (
            "output",
            {"shape": (1, 4, 8, 7)},
            "channels, rows and columns of the output are (4, 8, 7), must be (4, 8, 8)",
        ),
        ("output", {"shape": (1, 3, 8, 8)}, "channels 0-4 of the output, which has 3"),
        ("output", {"shape": (2, 4, 8, 8)}, "images of the output are 2, must be 1"),
        ("data", {"layout": "NHWC"}, "channels, rows and columns of the data are (8, 4, 8), must be (4, 8, 8)"),
        ("data", {"layout": "NCHH"}, "layout 'NCHH' of x (1, 4, 8, 8): must name each axis once, of NCHW"),
        (
            "weight",
            {"shape": (4, 4, 3, 1)},
            "outputs, inputs, rows and columns of the weights are (4, 4, 3, 1), must be (4, 4, 3, 3)",
        ),
        ("bias", {"shape": (5,)}, "vector b0 has 5 elements, must have 4"),
    ],
)
def test_a_region_whose_shapes_disagree(tensor: str, changes: dict[str, Any], text: str) -> None:
    region = region_case(CONV, bias=True).region
    plan = plan_region(region, SPEC, SEED)
    step = region.steps[0]
    changed = replace(step, **{tensor: replace(getattr(step, tensor), **changes)})
    assert fault(replace(region, steps=(changed,)), plan, SPEC) == f"plan of step conv0: {text}"


def test_a_partner_that_is_not_there() -> None:
    made = lowered("pointwise")
    step = replace(made.case.region.steps[0], op=Elementwise(5, 4, 2, "subtract"))
    region = replace(made.case.region, steps=(step, *made.case.region.steps[1:]))
    text = f"plan of step step0: partner 'none', but the other operand is {step.other and step.other.name}"
    assert fault(region, made.plan, made.spec) == text


@pytest.mark.parametrize("cols", [8, 500])
def test_the_proof_of_ten_times_as_many_chunks_takes_ten_times_as_long(cols: int) -> None:
    spec = SPEC.replace(sram_bytes=576 + 3 * min(cols * 16, 48) * 3 + min(cols, 8) * 16)

    def proof(rows: int) -> Callable[[], None]:
        region = region_case(Conv2d(4, rows, cols, 4, (3, 3), padding=(1, 1, 1, 1))).region
        plan = plan_region(region, spec, SEED)
        assert plan.chunk_count >= rows
        return lambda: check_plan(region, plan, spec)

    assert_linear(proof(1000), proof(10_000), 10)
