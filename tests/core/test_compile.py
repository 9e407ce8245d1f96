"""Random regions through planner, lowering, proofs, reference and engine: one answer, and every figure predicted."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from core.regions import SPEC, Case, region_case
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tvm_sramtile.compile import Compiled, compile_region
from tvm_sramtile.engine.binding import run
from tvm_sramtile.errors import CheckFailed, DoesNotFit, UnsupportedOp
from tvm_sramtile.geometry import Conv2d
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ints import Range
from tvm_sramtile.ir import Clip, Region
from tvm_sramtile.isa import decode
from tvm_sramtile.options import Options
from tvm_sramtile.plan import SpecCapacity, plan_region
from tvm_sramtile.plan.seed import chunks_of, largest_tile

UNITS = ((1, 1), (3, 3), (2, 3), (3, 1), (5, 5))
CLIPS = (None, Clip(0.0, None), Clip(None, 0.5), Clip(-0.25, 0.75), Clip(None, None))


@st.composite
def conv(draw: st.DrawFn, channels: int, rows: int, cols: int) -> Conv2d:
    """Any convolution of a map: pads larger than the kernel, dilation beyond the map, strides beyond the kernel."""
    groups = draw(st.sampled_from([g for g in range(1, channels + 1) if channels % g == 0]))
    outs = groups * draw(st.integers(1, max(1, 18 // groups)))
    pair = st.tuples(st.integers(1, 4), st.integers(1, 4))
    pads = st.tuples(*[st.integers(0, draw(st.sampled_from([0, 1, 2, 7])))] * 4)
    op = Conv2d(channels, rows, cols, outs, draw(st.sampled_from(UNITS)), draw(pair), draw(pads), draw(pair), groups)
    assume(op.out_rows > 0 and op.out_cols > 0)
    return op


@st.composite
def cases(draw: st.DrawFn) -> Case:
    ops = [draw(conv(draw(st.integers(1, 20)), draw(st.integers(1, 14)), draw(st.integers(1, 7))))]
    while len(ops) < 3 and draw(st.integers(0, 3)) == 0:
        ops.append(draw(conv(ops[-1].out_channels, ops[-1].out_rows, ops[-1].out_cols)))
    return region_case(
        *ops,
        images=draw(st.sampled_from([1, 1, 2, 3])),
        constant=draw(st.booleans()),
        bias=draw(st.booleans()),
        clips=[draw(st.sampled_from(CLIPS)) for _ in ops],
        outputs=draw(st.sampled_from([(-1,), tuple(range(len(ops)))])),
        seed=draw(st.integers(0, 1000)),
    )


@st.composite
def specs(draw: st.DrawFn, region: Region) -> AcceleratorSpec:
    """A chip on which the region fits, mostly only in pieces."""
    spec = SPEC.replace(
        unit_kernels=UNITS,
        lines=draw(st.integers(1, 4)),
        column_align=draw(st.sampled_from([1, 1, 2, 8])),
        channel_align=draw(st.sampled_from([1, 2, 4, 8, 16])),
        mac_array=draw(st.sampled_from([(1, 1), (4, 4), (3, 16)])),
        dma_bytes_per_cycle=draw(st.sampled_from([1, 16, 7])),
        dma_setup_cycles=draw(st.sampled_from([0, 64])),
    )
    large = 1 << 24
    if draw(st.booleans()):
        spec = spec.replace(sram_bytes=None, input_bytes=large, weight_bytes=large, output_bytes=large)
    if draw(st.booleans()):
        spec = spec.replace(accumulator_bytes=large)
    capacity = SpecCapacity(spec)
    row = [capacity.charge(step, largest_tile(step, chunks_of(step, 1))) for step in region.steps]
    whole = [capacity.charge(step, largest_tile(step, chunks_of(step, step.op.out_rows))) for step in region.steps]
    sizes = {}
    for memory in spec.memories:
        least = max(charge.used_bytes(memory) for charge in row)
        most = max(charge.used_bytes(memory) for charge in whole)
        size = least + (most - least) * draw(st.integers(0, 100)) // 100 + draw(st.integers(0, 9))
        sizes["sram_bytes" if memory == "pool" else f"{memory}_bytes"] = max(1, size)
    return spec.replace(**sizes)


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

    @settings(max_examples=500, derandomize=True, deadline=None, database=None)
    @given(st.data(), cases(), st.booleans())
    def check(data: st.DataObject, case: Case, double: bool) -> None:
        spec = data.draw(specs(case.region))
        compiled = compile_region(case.region, spec, Options(double_buffer=double), case.constants)
        assert case.run(compiled.program) == case.measures(compiled.plan)
        on_engine(case, compiled)
        assert compile_region(case.region, spec, Options(), case.constants, compiled.plan).code == compiled.code
        note(seen, case.region, compiled)

    check()
    wanted = {"split", "more than 4 chunks", "two steps", "three steps", "double", "in padding", "no columns", "whole"}
    assert {kind for kind, count in seen.items() if count >= 5} >= wanted, seen


def note(seen: Counter[str], region: Region, compiled: Compiled) -> None:
    """Count what kinds of cases there were."""
    steps = compiled.plan.steps
    chunks = [chunk for step in steps for chunk in step.chunks]
    seen["split" if any(step.is_split for step in steps) else "whole"] += 1
    seen["more than 4 chunks"] += max(len(step.chunks) for step in steps) > 4
    seen["two steps"] += len(steps) == 2
    seen["three steps"] += len(steps) == 3
    seen["double"] += any(len(buffer.copies) > 1 for step in steps for buffer in step.buffers)
    seen["in padding"] += any(chunk.in_rows == Range(0, 0) for chunk in chunks)
    seen["no columns"] += any(step.in_cols == Range(0, 0) for step in steps)


def test_a_program_read_back_from_its_bytes_runs_alike() -> None:
    case = region_case(
        Conv2d(5, 12, 6, 7, (3, 3), strides=(2, 1), padding=(1, 2, 0, 1)), images=2, bias=True, clips=(Clip(0.1, 0.7),)
    )
    compiled = compile_region(case.region, SPEC.replace(sram_bytes=5000), Options(), case.constants)
    assert compiled.plan.steps[0].is_split
    assert case.run(decode(compiled.code)) == case.measures(compiled.plan)
    on_engine(case, compiled)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_stays_where_it_belongs(value: float) -> None:
    op = Conv2d(3, 9, 5, 4, (3, 3), strides=(2, 1), padding=(2, 1, 2, 1), dilation=(2, 1))
    case = region_case(op)
    case.values["x"][0, 1, 4, 2] = value
    compiled = compile_region(case.region, SPEC.replace(sram_bytes=1300), Options(), {})
    assert len(compiled.plan.steps[0].chunks) > 1
    arguments = case.arguments()
    run(compiled.code, arguments)
    case.compare(arguments)
    assert 0 < np.isfinite(arguments[-1]).sum() < arguments[-1].size


# What the door refuses.


def test_a_plan_of_another_spec() -> None:
    case = region_case(Conv2d(4, 8, 8, 4, (3, 3), padding=(1, 1, 1, 1)))
    plan = plan_region(case.region, SPEC, Options())
    with pytest.raises(CheckFailed) as caught:
        compile_region(case.region, SPEC.replace(sram_bytes=2000), Options(), {}, plan)
    assert str(caught.value) == "plan of step conv0: buffers take 2624 B of memory pool, which has 2000 B"


def test_what_has_no_unit_or_no_room() -> None:
    case = region_case(Conv2d(4, 8, 8, 4, (5, 5)))
    with pytest.raises(UnsupportedOp):
        compile_region(case.region, SPEC, Options(), {})
    with pytest.raises(DoesNotFit):
        compile_region(case.region, SPEC.replace(unit_kernels=UNITS, sram_bytes=999), Options(), {})


def test_a_wrong_constant() -> None:
    case = region_case(Conv2d(4, 8, 8, 4, (3, 3)), constant=True)
    digest = str(case.region.steps[0].weight.digest)
    with pytest.raises(CheckFailed) as caught:
        compile_region(case.region, SPEC, Options(), {digest: case.values["w0"] * 2})
    text = "constant w0 (4, 4, 3, 3): its value is not among those of the region's function"
    assert str(caught.value) == text


def test_predictions_are_affine_in_the_images() -> None:
    op = Conv2d(4, 8, 8, 4, (3, 3), padding=(1, 1, 1, 1))

    def cycles(images: int) -> int:
        case = region_case(op, images=images)
        return compile_region(case.region, SPEC.replace(sram_bytes=1500), Options(), {}).predicted.time.cycles

    assert cycles(3) - cycles(2) == cycles(2) - cycles(1) > 0
