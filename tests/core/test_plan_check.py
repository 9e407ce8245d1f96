"""The proof of plans: every mutant of a plan is caught, or is another right plan."""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from core.regions import SPEC, Case, mutants, region_case

from tvm_sramtile.compile import compile_region
from tvm_sramtile.errors import CheckFailed
from tvm_sramtile.geometry import Conv2d
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ints import Range
from tvm_sramtile.options import Options
from tvm_sramtile.plan import Buffer, Plan, StepPlan, plan_region
from tvm_sramtile.plan.check import check_plan

CONV = Conv2d(4, 8, 8, 4, (3, 3), padding=(1, 1, 1, 1))
STRIDED = Conv2d(3, 11, 5, 6, (3, 3), strides=(3, 2), padding=(4, 0, 5, 2), dilation=(2, 1), groups=3)
SECOND = Conv2d(4, 8, 8, 6, (3, 3), strides=(3, 2), padding=(4, 0, 5, 2), dilation=(2, 1))
PADDING = Conv2d(1, 2, 3, 1, (1, 1), padding=(3, 0, 2, 1))  # chunks that lie wholly in padding
BUFFERS: dict[str, Any] = {"sram_bytes": None, "input_bytes": 4000, "weight_bytes": 1500, "output_bytes": 200}

CASES: dict[str, tuple[Case, AcceleratorSpec]] = {
    "one chunk": (region_case(CONV), SPEC),
    "split": (region_case(CONV, images=2, bias=True), SPEC.replace(sram_bytes=1500)),
    "buffers": (region_case(STRIDED, bias=True), SPEC.replace(**BUFFERS, accumulator_bytes=400, lines=2)),
    "padding": (region_case(PADDING), SPEC.replace(sram_bytes=128)),
    "two steps": (
        region_case(CONV, SECOND),
        SPEC.replace(sram_bytes=2400),
    ),
}

# What a mutant may change and still be a right plan, and why. That it is right is proven by compiling and running it.
HARMLESS = {
    "weights_resident": "with one image the weights are loaded once either way",
    "buffers: exchange": "buffers in another order lie at other addresses",
    "copies: drop": "one copy fewer is no double buffering",
    "copies: put twice": "one copy more, where it fits",
}


def kind(what: str) -> str:
    """The last field of a mutant's path, and what was done to it."""
    field = re.sub(r"\[\d+\]", "", what).rsplit(".", 1)[-1]
    return re.sub(r" \d+", "", field)


def judged(case: Case, spec: AcceleratorSpec, plan: Plan) -> bool:
    """Whether a plan is caught; one that is not must compile, run and measure what it says."""
    try:
        check_plan(case.region, plan, spec)
    except CheckFailed as error:
        return bool(re.fullmatch(r"plan of (region \w+|step conv\d): [^\n]+", str(error)))
    compiled = compile_region(case.region, spec, Options(), case.constants, plan)
    assert case.run(compiled.program) == case.measures(plan)
    return False


@pytest.mark.parametrize(
    ("name", "chunks", "tried", "caught"),
    [
        ("one chunk", [1], 68, 65),
        ("split", [4], 122, 119),
        ("buffers", [3], 121, 114),
        ("padding", [7], 148, 145),
        ("two steps", [2, 3], 182, 176),
    ],
)
def test_mutants(name: str, chunks: list[int], tried: int, caught: int) -> None:
    case, spec = CASES[name]
    plan = plan_region(case.region, spec, Options())
    assert [len(step.chunks) for step in plan.steps] == chunks
    assert not judged(case, spec, plan)
    counts: Counter[str] = Counter()
    for what, mutant in mutants(plan):
        assert mutant != plan
        if judged(case, spec, mutant):
            counts["caught"] += 1
        else:
            assert kind(what) in HARMLESS, what
            counts["harmless"] += 1
    assert (counts.total(), counts["caught"]) == (tried, caught)


def test_a_mutant_of_each_harmless_kind_exists() -> None:
    found = set()
    for case, spec in CASES.values():
        plan = plan_region(case.region, spec, Options())
        found |= {kind(what) for what, mutant in mutants(plan) if not judged(case, spec, mutant)}
    assert found == set(HARMLESS)


@pytest.fixture
def split() -> tuple[Case, AcceleratorSpec, StepPlan]:
    case, spec = CASES["split"]
    return case, spec, plan_region(case.region, spec, Options()).steps[0]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"step": "conv1"}, "plan of region region: it has the steps ['conv1'], the region ['conv0']"),
        (
            {"tested_map": "output"},
            "direction and tested map are ('output-to-input', 'output'), of a conv2d ('output-to-input', 'input')",
        ),
        ({"chunks": ()}, "output rows that the chunks cover is 0, must be 8"),
        ({"in_cols": Range(0, 7)}, "in_cols is (0, 7), must be (0, 8)"),
        ({"pad_left": 2}, "pad_left is 2, must be 1"),
        ({"footprint_bytes": 1}, "footprint_bytes is 1, must be 1024"),
        ({"space_bytes": 1}, "space_bytes is 1, must be 0"),
        ({"buffers": ()}, "buffers are [], needed are ['weights', 'bias', 'input', 'output']"),
    ],
)
def test_texts(split: tuple[Case, AcceleratorSpec, StepPlan], changes: dict[str, Any], text: str) -> None:
    case, spec, plan = split
    with pytest.raises(CheckFailed) as caught:
        check_plan(case.region, Plan("region", "seed", (replace(plan, **changes),)), spec)
    assert str(caught.value) == (text if text.startswith("plan") else f"plan of step conv0: {text}")


@pytest.mark.parametrize(
    ("index", "changes", "text"),
    [
        (1, {"out_rows": Range(3, 4)}, "chunk 1: output rows 3-4 do not start at 2, where those before end"),
        (1, {"out_rows": Range(2, 2)}, "chunk 1: no output rows"),
        (3, {"out_rows": Range(6, 7)}, "output rows that the chunks cover is 7, must be 8"),
        (1, {"in_rows": Range(2, 5)}, "chunk 1, output rows 2-4: in_rows.start is 2, must be 1"),
        (1, {"in_rows": Range(1, 6)}, "chunk 1, output rows 2-4: in_rows.stop is 6, must be 5"),
        (0, {"pad_top": 0}, "chunk 0, output rows 0-2: pad_top is 0, must be 1"),
        (3, {"pad_bottom": 2}, "chunk 3, output rows 6-8: pad_bottom is 2, must be 1"),
    ],
)
def test_texts_about_chunks(
    split: tuple[Case, AcceleratorSpec, StepPlan], index: int, changes: dict[str, Any], text: str
) -> None:
    case, spec, plan = split
    chunks = list(plan.chunks)
    chunks[index] = replace(chunks[index], **changes)
    with pytest.raises(CheckFailed) as caught:
        check_plan(case.region, Plan("region", "seed", (replace(plan, chunks=tuple(chunks)),)), spec)
    assert str(caught.value) == f"plan of step conv0: {text}"


def test_a_cut_finer_than_needed() -> None:
    case, spec = CASES["split"]
    fine = plan_region(case.region, spec.replace(sram_bytes=1104), Options(double_buffer=False))
    assert len(fine.steps[0].chunks) == 8
    with pytest.raises(CheckFailed) as caught:
        check_plan(case.region, fine, spec)
    assert str(caught.value) == "plan of step conv0: cut into chunks of 1 output rows, but 2 rows fit"


def test_a_memory_that_is_too_small() -> None:
    case, spec = CASES["one chunk"]
    plan = plan_region(case.region, spec, Options())
    with pytest.raises(CheckFailed) as caught:
        check_plan(case.region, plan, spec.replace(sram_bytes=2623))
    assert str(caught.value) == "plan of step conv0: buffers take 2624 B of memory pool, which has 2623 B"
    buffers = tuple(Buffer(b.name, "output", b.copies) for b in plan.steps[0].buffers)
    with pytest.raises(CheckFailed) as caught:
        check_plan(case.region, replace(plan, steps=(replace(plan.steps[0], buffers=buffers),)), spec)
    assert str(caught.value) == "plan of step conv0: memory of buffer weights is output, must be pool"


def test_resident_weights_of_more_than_one_step() -> None:
    case, spec = CASES["two steps"]
    plan = plan_region(case.region, spec, Options())
    steps = (replace(plan.steps[0], weights_resident=True), plan.steps[1])
    with pytest.raises(CheckFailed) as caught:
        check_plan(case.region, replace(plan, steps=steps), spec)
    text = "weights_resident, but the region has other steps, which need the same SRAM"
    assert str(caught.value) == f"plan of step conv0: {text}"


def test_a_region_whose_shapes_disagree() -> None:
    case, spec = CASES["one chunk"]
    plan = plan_region(case.region, spec, Options())
    step = case.region.steps[0]
    region = replace(case.region, steps=(replace(step, output=replace(step.output, shape=(1, 4, 8, 7))),))
    with pytest.raises(CheckFailed) as caught:
        check_plan(region, plan, spec)
    text = "shape of the output is (1, 4, 8, 7), must be (1, 4, 8, 8)"
    assert str(caught.value) == f"plan of step conv0: {text}"


def test_ten_thousand_chunks_take_a_moment() -> None:
    region = region_case(Conv2d(4, 10_000, 8, 4, (3, 3), padding=(1, 1, 1, 1))).region
    spec = SPEC.replace(sram_bytes=576 + 3 * 128 + 128)
    plan = plan_region(region, spec, Options())
    assert len(plan.steps[0].chunks) == 10_000
    start = time.process_time()
    check_plan(region, plan, spec)
    assert time.process_time() - start < 1
