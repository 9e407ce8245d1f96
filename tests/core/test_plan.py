"""The seed's strategy: how many chunks, what fits, what does not, and plans as JSON."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from core.planning import A19, A19_BYTES, heights, planned, region, widths
from core.regions import SEED, SPEC
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tvm_sramtile.errors import CheckFailed, DoesNotFit
from tvm_sramtile.geometry import Conv2d
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ints import Range
from tvm_sramtile.ir import Region
from tvm_sramtile.plan import Buffer, Plan, plan_region

# The count of chunks by the text of the method: formulas (1) and (2) and a loop.


def footprint(rows: int, cols: int, channels: int, spec: AcceleratorSpec) -> int:
    """Formula (1), float32."""
    lines, align = spec.lines, spec.channel_align
    return (rows + lines - 1) // lines * lines * cols * ((channels + align - 1) // align) * align * 4


def rows_read(op: Conv2d, start: int, stop: int) -> int:
    """Formula (2): from the first row that is read to the last, within the map."""
    rows = [
        row * op.strides[0] + tap * op.dilation[0] - op.padding[0]
        for row in range(start, stop)
        for tap in range(op.kernel[0])
    ]
    rows = [row for row in rows if 0 <= row < op.in_rows]
    return max(rows) - min(rows) + 1 if rows else 0


def seed_count(op: Conv2d, spec: AcceleratorSpec) -> int | None:
    """Chunks in one pool without bias, cutting finer until all fit; None where one row does not."""
    weights = footprint(1, 1, op.out_channels, spec) // 4 // spec.lines * 4
    weights *= op.in_channels // op.groups * op.kernel[0] * op.kernel[1]
    for parts in range(1, op.out_rows + 1):
        height = -(-op.out_rows // parts)
        starts = range(0, op.out_rows, height)
        most = max(rows_read(op, start, min(start + height, op.out_rows)) for start in starts)
        cols = region_cols(op)
        need = footprint(most, cols, op.in_channels, spec) + footprint(height, op.out_cols, op.out_channels, spec)
        if weights + need <= (spec.sram_bytes or 0):
            return len(starts)
    return None


def region_cols(op: Conv2d) -> int:
    turned = replace(
        op,
        in_rows=op.in_cols,
        kernel=op.kernel[::-1],
        strides=op.strides[::-1],
        dilation=op.dilation[::-1],
        padding=(op.padding[1], 0, op.padding[3], 0),
    )
    return rows_read(turned, 0, op.out_cols)


@st.composite
def ops(draw: st.DrawFn) -> Conv2d:
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    kernel = draw(st.sampled_from([(1, 1), (3, 3)]))
    op = Conv2d(
        groups * draw(st.integers(1, 6)),
        draw(st.integers(1, 24)),
        draw(st.integers(1, 9)),
        groups * draw(st.integers(1, 6)),
        kernel,
        draw(st.tuples(st.integers(1, 4), st.integers(1, 4))),
        draw(st.tuples(*[st.integers(0, 5)] * 4)),
        draw(st.tuples(st.integers(1, 4), st.integers(1, 3))),
        groups,
    )
    assume(op.out_rows > 0 and op.out_cols > 0)
    return op


@settings(max_examples=300, derandomize=True, deadline=None)
@given(ops(), st.integers(1, 3), st.integers(300, 12000))
def test_the_count_of_chunks_is_that_of_the_formulas(op: Conv2d, lines: int, sram_bytes: int) -> None:
    spec = SPEC.replace(lines=lines, sram_bytes=sram_bytes)
    count = seed_count(op, spec)
    try:
        plan = planned(op, spec)
    except DoesNotFit:
        assert count is None
        return
    beyond_rows = len(plan.cols) > 1 or len(plan.channels) > 1 or len(plan.in_channels) > 1
    assert beyond_rows == (count is None)
    if not beyond_rows:
        assert len(plan.rows) == count
        assert len({*heights(plan)[:-1]}) <= 1
        assert heights(plan)[-1] <= heights(plan)[0]


@settings(max_examples=200, derandomize=True, deadline=None)
@given(ops(), st.sampled_from(["pool", "buffers"]), st.booleans(), st.integers(300, 9000), st.integers(1, 3))
def test_double_buffering_changes_no_chunk(op: Conv2d, kind: str, own: bool, size: int, lines: int) -> None:
    spec = SPEC.replace(sram_bytes=size, lines=lines)
    if kind == "buffers":
        spec = spec.replace(sram_bytes=None, input_bytes=size, weight_bytes=2 * size, output_bytes=size)
    spec = spec.replace(accumulator_bytes=size) if own else spec
    try:
        single = planned(op, spec)
    except DoesNotFit:
        with pytest.raises(DoesNotFit):
            planned(op, spec, SEED)
        return
    double = planned(op, spec, SEED)
    assert (double.rows, double.cols, double.channels) == (single.rows, single.cols, single.channels)
    assert double.traffic == single.traffic
    assert all(len(buffer.copies) == 1 for buffer in single.buffers)
    if not single.is_split:
        assert double == single
    for memory, limit in spec.memories.items():
        assert double.used_bytes(memory) <= limit


def test_double_buffers_are_taken_where_they_fit_the_input_first() -> None:
    op = Conv2d(4, 16, 8, 4, (1, 1))  # a row is 128 B in and 128 B out; weights are 64 B
    two_rows = 64 + 2 * 128 + 2 * 128

    def copies(sram_bytes: int) -> dict[str, tuple[int, ...]]:
        plan = planned(op, SPEC.replace(sram_bytes=sram_bytes), SEED)
        assert heights(plan) == [2] * 8
        return {buffer.name: buffer.copies for buffer in plan.buffers}

    assert copies(two_rows) == {"weights": (64,), "input": (256,), "output": (256,)}
    assert copies(two_rows + 255) == copies(two_rows)
    # With more the chunks would be larger, unless the height that fits next is far off.
    tall = Conv2d(4, 2, 8, 4, (1, 1))
    spec = SPEC.replace(sram_bytes=64 + 2 * 256 - 1)
    plan = planned(tall, spec, SEED)
    assert heights(plan) == [1, 1]
    assert plan.buffers == (
        Buffer("weights", "pool", (64,)),
        Buffer("input", "pool", (128, 128)),
        Buffer("output", "pool", (128,)),
    )


def test_a_second_copy_has_as_many_blocks_as_the_chunks_that_use_it() -> None:
    op = Conv2d(4, 5, 8, 4, (3, 3), padding=(1, 1, 1, 1))
    spec = SPEC.replace(sram_bytes=None, input_bytes=128 * 9, weight_bytes=4096, output_bytes=128 * 4)
    plan = planned(op, spec, SEED)
    assert [(len(span.read), len(span.out)) for span in plan.rows] == [(4, 3), (3, 2)]
    # Blocks have the rows of the largest chunk, whatever chunk they hold.
    assert plan.buffers[1:] == (Buffer("input", "input", (4 * 128, 4 * 128)), Buffer("output", "output", (3 * 128,)))
    op = Conv2d(4, 2, 8, 6, (1, 1))  # 4 channels and a rest of 2, in chunks of their own
    plan = planned(op, SPEC.replace(sram_bytes=64 + 16 + 16 + 16), SEED)
    assert plan.channels == (Range(0, 4), Range(4, 6))
    assert plan.buffers[-1] == Buffer("output", "pool", (16,))


# Case A19: fits exactly, and with a byte less does not.


@pytest.mark.parametrize("sram_bytes", [1 << 20, A19_BYTES + 1, A19_BYTES])
def test_what_fits_is_one_chunk(sram_bytes: int) -> None:
    plan = planned(A19, SPEC.replace(sram_bytes=sram_bytes), SEED)
    assert heights(plan) == [8]
    assert not plan.is_split
    assert plan.used_bytes("pool") == A19_BYTES
    assert plan.reason == f"input map 1,024 B fits {sram_bytes - A19_BYTES + 1024:,} B"


def test_a_byte_less_than_the_footprint_is_a_split() -> None:
    plan = planned(A19, SPEC.replace(sram_bytes=A19_BYTES - 1))
    assert heights(plan) == [4, 4]
    assert plan.reason == "input map 1,024 B > 1,023 B left for it"
    assert (plan.direction, plan.tested_map) == ("output-to-input", "input")
    assert (plan.footprint_bytes, plan.space_bytes, plan.chunk_footprint_bytes) == (1024, 1023, 5 * 128)


def test_a_map_that_fits_beside_an_output_that_does_not() -> None:
    spec = SPEC.replace(sram_bytes=None, input_bytes=1024, weight_bytes=576, output_bytes=1023)
    plan = planned(A19, spec)
    assert heights(plan) == [4, 4]
    assert plan.reason == "input map 1,024 B fits, but not what lies beside it"


def test_a_bias_counts_as_one_row_of_lines() -> None:
    spec = SPEC.replace(lines=4, sram_bytes=A19_BYTES + 4 * 4 * 4)
    assert heights(planned(A19, spec, bias=True)) == [8]
    assert len(planned(A19, spec.replace(sram_bytes=A19_BYTES + 63), bias=True).rows) > 1


@pytest.mark.parametrize("tight", ["input", "output"])
def test_each_of_separate_memories_can_be_the_one_that_overflows(tight: str) -> None:
    sizes: dict[str, int | None] = {"sram_bytes": None, "input_bytes": 1024, "weight_bytes": 576, "output_bytes": 1024}
    assert heights(planned(A19, SPEC.replace(**sizes))) == [8]
    plan = planned(A19, SPEC.replace(**{**sizes, f"{tight}_bytes": 1023}))
    assert heights(plan) == [4, 4]
    assert {buffer.name: buffer.memory for buffer in plan.buffers} == {
        "weights": "weight",
        "input": "input",
        "output": "output",
    }


def test_accumulators_in_a_memory_of_their_own() -> None:
    spec = SPEC.replace(sram_bytes=A19_BYTES, accumulator_bytes=1024)
    plan = planned(A19, spec)
    assert plan.buffers[-1] == Buffer("accumulators", "accumulator", (1024,))
    assert heights(plan) == [8]
    assert heights(planned(A19, spec.replace(accumulator_bytes=1023))) == [4, 4]
    assert heights(planned(A19, spec.replace(accumulator_bytes=128))) == [1] * 8


def test_lines_make_rows_count_in_groups() -> None:
    # Weights are 576 B, a row 128 B: 5 rows in and 3 out fit, but not when rows come in groups of 4.
    spec = SPEC.replace(sram_bytes=576 + 8 * 128)
    assert heights(planned(A19, spec)) == [3, 3, 2]
    plan = planned(A19, spec.replace(lines=4))
    assert heights(plan) == [2, 2, 2, 2]
    assert plan.chunk_footprint_bytes == 4 * 128
    narrow = planned(A19, spec.replace(lines=4, sram_bytes=576 + 8 * 128 - 1))  # one row out takes as much as two
    assert heights(narrow) == [1] * 8
    assert widths(narrow) == [4, 4]


# Cases of public bug reports, at the level of plans; SRAM figures with one lane and no double buffering.

ONE_LANE = SPEC.replace(channel_align=1)


def test_a08_pads_that_differ() -> None:
    def pads(rows: int, padding: tuple[int, int, int, int]) -> list[tuple[int, int]]:
        op = Conv2d(8, rows, 17, 8, (3, 3), strides=(2, 2), padding=padding)
        chunks = planned(op, ONE_LANE.replace(sram_bytes=6144)).rows
        return [(chunk.before, chunk.after) for chunk in chunks]

    assert pads(17, (0, 0, 1, 1)) == [(0, 0)] * 4  # no window reaches the row below
    assert pads(18, (0, 0, 1, 1)) == [(0, 0)] * 4 + [(0, 1)]
    assert pads(17, (1, 1, 0, 0)) == [(1, 0)] + [(0, 0)] * 3


@pytest.mark.parametrize("kernel", [(3, 3), (1, 1)])
def test_a09_stride_two_at_odd_edges(kernel: tuple[int, int]) -> None:
    op = Conv2d(3, 33, 33, 8, kernel, strides=(2, 2), padding=(kernel[0] // 2,) * 4)
    plan = planned(op, ONE_LANE.replace(sram_bytes=4096))
    assert heights(plan) == ([2] * 8 + [1] if kernel == (3, 3) else [3, 3, 3, 3, 3, 2])
    last = plan.rows[-1]
    assert last.read == (Range(31, 33) if kernel == (3, 3) else Range(30, 33))
    assert last.after == kernel[0] // 2


@pytest.mark.parametrize("dilation", range(12, 19))
def test_a10_dilation_wider_than_the_map(dilation: int) -> None:
    op = Conv2d(16, 16, 44, 16, (3, 3), padding=(dilation,) * 4, dilation=(dilation, dilation))
    plan = planned(op, ONE_LANE.replace(sram_bytes=65536))
    assert plan.is_split
    for chunk in plan.rows:
        read = {row + tap * dilation - dilation for row in chunk_rows(chunk.out) for tap in range(3)} & {*range(16)}
        assert chunk.read == Range(min(read), max(read) + 1)
        assert chunk.before + len(chunk.read) + chunk.after == len(chunk.out) + 2 * dilation


def chunk_rows(rows: Range) -> range:
    return range(rows.start, rows.stop)


def test_a11_an_uneven_last_chunk() -> None:
    op = Conv2d(1, 256, 256, 10, (3, 3))
    assert heights(planned(op, ONE_LANE.replace(sram_bytes=524288))) == [43] * 5 + [39]
    op = Conv2d(64, 208, 208, 128, (3, 3), strides=(2, 2), padding=(1, 1, 1, 1))
    assert heights(planned(op, ONE_LANE.replace(sram_bytes=2 * 524288))) == [4] * 26


def test_a13_one_plan_for_all_who_ask() -> None:
    op = Conv2d(16, 65, 32, 16, (3, 3), padding=(1, 1, 1, 1))
    spec = ONE_LANE.replace(sram_bytes=120352)
    made = region(op)
    plan = plan_region(made, spec, SEED)
    assert plan == plan_region(made, spec, SEED.replace(max_unrolled_chunks=1))
    assert plan == plan_region(Region.from_json(made.to_json()), AcceleratorSpec.from_json(spec.to_json()), SEED)
    assert Plan.from_json(plan.to_json()) == plan


# Plans as JSON.


def test_json_round_trip() -> None:
    op = Conv2d(3, 33, 33, 8, (3, 3), strides=(2, 2), padding=(1, 1, 1, 1))
    plan = plan_region(region(op, images=2, bias=True), SPEC.replace(sram_bytes=4096), SEED)
    assert Plan.from_json(plan.to_json()) == plan
    assert Plan.from_json(plan.to_json()).to_json() == plan.to_json()


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (
            lambda text: "",
            "plan attribute is damaged at its root: Invalid JSON: EOF while parsing a value at line 1 column 0",
        ),
        (
            lambda text: text[:-1],
            "plan attribute is damaged at its root: Invalid JSON: EOF while parsing an object at line",
        ),
        (
            lambda text: text.replace('"before":1', '"before":"one"', 1),
            "plan attribute is damaged at steps.0.rows.0.before",
        ),
        (lambda text: text.replace('"region"', '"regions"', 1), "plan attribute is damaged at region: Field required"),
        (lambda text: re.sub(r'"stop":4', '"stop":-4', text, count=1), "plan attribute is damaged at steps.0"),
        (lambda text: json.dumps([json.loads(text)]), "plan attribute is damaged at its root"),
    ],
)
def test_damaged_json(damage: Any, text: str) -> None:
    plan = plan_region(region(A19), SPEC.replace(sram_bytes=A19_BYTES - 1), SEED)
    with pytest.raises(CheckFailed) as caught:
        Plan.from_json(damage(plan.to_json()))
    assert str(caught.value).startswith(text)
    assert "\n" not in str(caught.value)
