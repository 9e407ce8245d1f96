"""What is reported of a region's rows is what is emitted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from conformance.cases import CASES
from conformance.grammar import Case

from tvm_sramtile.attributes import RegionAttributes
from tvm_sramtile.compile import compile_region
from tvm_sramtile.report import network_report

ROWS_ONLY = [
    case for case in CASES if case.name.startswith(("a08", "a09", "a10", "a11", "a12_rows", "a13", "a01", "a02"))
]

Emitted = tuple[list[int], set[tuple[int, int]]]  # rows of what is concatenated; starts and stops of the rows read


def check_rows(case: Case, region: RegionAttributes, emitted: Iterable[Emitted]) -> None:
    """The rows of the chunks, in the plan, the report and what was emitted: written and read."""
    compiled = compile_region(region.region, region.spec, region.options, None, region.plan)
    (step,) = network_report(case.spec, [compiled], ()).steps
    rows: list[Any] = [chunk.row for chunk in step.chunks]
    assert rows == list(region.plan.steps[0].rows)
    assert [row.out.start for row in rows] == [0, *(row.out.stop for row in rows[:-1])]
    size = case.sources[0].shape[2]
    read = {(row.read.start, row.read.stop) for row in rows} - {(0, size), (0, 0)}
    for written, slices in emitted:
        assert [len(row.out) for row in rows] == written
        assert slices - {(0, size)} == read
