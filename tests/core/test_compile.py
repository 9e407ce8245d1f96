"""Random regions through planner, lowering, proofs, reference and engine: one answer, and every figure predicted."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from core.regions import SEED, SPEC, Case, region_case
from core.whole_chips import whole_case

from tvm_sramtile.compile import Compiled, compile_region
from tvm_sramtile.engine.binding import run
from tvm_sramtile.errors import CheckFailed, DoesNotFit, UnsupportedOp
from tvm_sramtile.geometry import Conv2d
from tvm_sramtile.ir import Clip, Region
from tvm_sramtile.isa import decode
from tvm_sramtile.plan import Plan, plan_region


def on_engine(case: Case, compiled: Compiled) -> None:
    """Run in the engine: right values, and every figure that is predicted measured."""
    arguments = case.arguments()
    measured = run(compiled.code, arguments, case.region.images)
    case.compare(arguments)
    predicted, time = compiled.predicted, compiled.predicted.time
    kinds = (measured.input_bytes, measured.weight_bytes, measured.output_bytes, measured.partial_sum_bytes)
    traffic = predicted.traffic
    assert kinds == (traffic.input_bytes, traffic.weight_bytes, traffic.output_bytes, traffic.partial_sum_bytes)
    assert measured.sram_peak_bytes == predicted.sram_peak_bytes
    busy = (measured.load_busy_cycles, measured.compute_busy_cycles, measured.store_busy_cycles)
    assert (measured.cycles, *busy) == (
        time.cycles,
        time.load_busy_cycles,
        time.compute_busy_cycles,
        time.store_busy_cycles,
    )
    assert measured.macs == case.measures(compiled.plan).macs
    assert (measured.calls, measured.images) == (1, case.region.images)


def test_random_regions() -> None:
    seen: Counter[str] = Counter()
    for seed in range(300):
        case, spec, options = whole_case(seed)
        compiled = compile_region(case.region, spec, options, case.constants)
        assert case.run(compiled.program) == case.measures(compiled.plan), f"seed {seed}"
        on_engine(case, compiled)
        again = compile_region(case.region, spec, options, case.constants, Plan.from_json(compiled.plan.to_json()))
        assert again.code == compiled.code
        note(seen, case.region, compiled)
    wanted = {"whole", "split", "more than 4 chunks", "steps", "double", "in padding", "columns", "channels", "sums"}
    assert {kind for kind, count in seen.items() if count >= 10} >= wanted, seen


def note(seen: Counter[str], region: Region, compiled: Compiled) -> None:
    """Count what kinds of cases there were."""
    steps = compiled.plan.steps
    seen["split" if any(step.is_split for step in steps) else "whole"] += 1
    seen["more than 4 chunks"] += max(step.chunk_count for step in steps) > 4
    seen["steps"] += len(steps) > 1
    seen["double"] += any(len(buffer.copies) > 1 for step in steps for buffer in step.buffers)
    seen["in padding"] += any(not len(span.read) for step in steps for span in (*step.rows, *step.cols))
    seen["columns"] += any(len(step.cols) > 1 for step in steps)
    seen["channels"] += any(len(step.channels) > 1 for step in steps)
    seen["sums"] += any(len(step.in_channels) > 1 for step in steps)


def test_a_program_read_back_from_its_bytes_runs_alike() -> None:
    case = region_case(
        Conv2d(5, 12, 6, 7, (3, 3), strides=(2, 1), padding=(1, 2, 0, 1)), images=2, bias=True, clips=(Clip(0.1, 0.7),)
    )
    compiled = compile_region(case.region, SPEC.replace(sram_bytes=5000), SEED, case.constants)
    assert compiled.plan.steps[0].is_split
    assert case.run(decode(compiled.code)) == case.measures(compiled.plan)
    on_engine(case, compiled)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_stays_where_it_belongs(value: float) -> None:
    op = Conv2d(3, 9, 5, 4, (3, 3), strides=(2, 1), padding=(2, 1, 2, 1), dilation=(2, 1))
    case = region_case(op)
    case.values["x"][0, 1, 4, 2] = value
    compiled = compile_region(case.region, SPEC.replace(sram_bytes=1300), SEED, {})
    assert compiled.plan.chunk_count > 1
    arguments = case.arguments()
    run(compiled.code, arguments)
    case.compare(arguments)
    assert 0 < np.isfinite(arguments[-1]).sum() < arguments[-1].size


# What the door refuses.


def test_a_plan_of_another_spec() -> None:
    case = region_case(Conv2d(4, 8, 8, 4, (3, 3), padding=(1, 1, 1, 1)))
    plan = plan_region(case.region, SPEC, SEED)
    with pytest.raises(CheckFailed) as caught:
        compile_region(case.region, SPEC.replace(sram_bytes=2000), SEED, {}, plan)
    assert str(caught.value) == "plan of step conv0: buffers take 2624 B of memory pool, which has 2000 B"


def test_what_has_no_unit_or_no_room() -> None:
    case = region_case(Conv2d(4, 8, 8, 4, (5, 5)))
    step = case.region.steps[0]
    other = replace(case.region, steps=(replace(step, data=replace(step.data, dtype="int64")),))
    with pytest.raises(UnsupportedOp):
        compile_region(other, SPEC, SEED, {})
    with pytest.raises(DoesNotFit):
        compile_region(case.region, SPEC.replace(sram_bytes=99), SEED, {})


def test_a_wrong_constant() -> None:
    case = region_case(Conv2d(4, 8, 8, 4, (3, 3)), constant=True)
    digest = str(case.region.steps[0].weight.digest)
    with pytest.raises(CheckFailed) as caught:
        compile_region(case.region, SPEC, SEED, {digest: case.values["w0"] * 2})
    text = "constant w0 (4, 4, 3, 3): its value is not among those of the region's function"
    assert str(caught.value) == text


def test_predictions_are_affine_in_the_images() -> None:
    op = Conv2d(4, 8, 8, 4, (3, 3), padding=(1, 1, 1, 1))

    def cycles(images: int) -> int:
        case = region_case(op, images=images)
        return compile_region(case.region, SPEC.replace(sram_bytes=1500), SEED, {}).predicted.time.cycles

    assert cycles(3) - cycles(2) == cycles(2) - cycles(1) > 0
