"""Reports: what a step and a region are said to be and to cost."""

from __future__ import annotations

import pytest
from core.regions import SEED, SPEC, region_case

from tvm_sramtile.compile import Compiled, compile_region
from tvm_sramtile.geometry import Conv2d
from tvm_sramtile.ints import Range
from tvm_sramtile.plan import Chunk, Span
from tvm_sramtile.report import network_report

text = pytest.importorskip("tvm_sramtile.report.text", reason="tables are rendered by rich: install the extra 'cli'")

SMALL = Conv2d(4, 6, 3, 4, (3, 3), padding=(1, 1, 1, 1))


def compiled(*ops: Conv2d) -> Compiled:
    case = region_case(*ops)
    return compile_region(case.region, SPEC.replace(sram_bytes=2000), SEED, None)


def test_cycles_of_a_region_are_counted_once() -> None:
    made = compiled(SMALL, SMALL)
    report = network_report(SPEC, [made], [("nn.softmax", 0, "why"), ("nn.softmax", 0, "why")])
    assert [step.cycles for step in report.steps] == [made.predicted.time.cycles] * 2
    assert report.cycles == made.predicted.time.cycles
    assert report.dram_bytes == made.plan.traffic.total_bytes
    assert report.sram_peak_bytes == max(step.sram_peak_bytes for step in report.steps)
    assert [(group.op, group.count) for group in report.host_ops] == [("nn.softmax", 2)]


def span(start: int, stop: int) -> Span:
    return Span(Range(start, stop), Range(start, stop + 2), 0, 0)


@pytest.mark.parametrize(
    ("rows", "cols", "channels", "wanted"),
    [
        (1, 1, 1, "1: 0-2<0-4"),
        (4, 1, 1, "4: 0-2<0-4 2-4<2-6 4-6<4-8 6-8<6-10"),
        (5, 1, 1, "5: 0-2<0-4 2-4<2-6 4-6<4-8 .. 8-10<8-12"),
        (1, 2, 1, "2: 0-2<0-4x0-2<0-4 0-2<0-4x2-4<2-6"),
        (1, 1, 2, "2: 0-2<0-4c0-2 0-2<0-4c2-4"),
    ],
)
def test_marks(rows: int, cols: int, channels: int, wanted: str) -> None:
    chunks = tuple(
        Chunk(Range(2 * channel, 2 * channel + 2), span(2 * row, 2 * row + 2), span(2 * col, 2 * col + 2))
        for channel in range(channels)
        for row in range(rows)
        for col in range(cols)
    )
    assert text.marks(chunks) == wanted
