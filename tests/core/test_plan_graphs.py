"""What the front ends write of a plan as operators of a graph, by the oracle: sums, slices, smaller steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from core import oracle
from core.oracle_steps import evaluate
from core.whole_cases import whole_region
from core.whole_chips import whole_case
from numpy.typing import NDArray

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose, Pool2d, Resize2d
from tvm_sramtile.geometry.resize_axis import AxisTable, AxisTaps
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ints import Range
from tvm_sramtile.ir import Region, Step
from tvm_sramtile.plan import (
    Chunk,
    ConvTerm,
    StepPlan,
    conv_terms,
    plan_region,
    pool_in_two,
    resize_part,
    takes_several,
)

Float = NDArray[np.float32]
CASES = 800


def planned_steps(kind: type) -> Iterator[tuple[Step, StepPlan, AcceleratorSpec]]:
    for seed in range(CASES):
        case, spec, options = whole_case(seed)
        plan = plan_region(case.region, spec, options)
        for step, step_plan in zip(case.region.steps, plan.steps, strict=True):
            if isinstance(step.op, kind):
                yield step, step_plan, spec


def chunks(plan: StepPlan) -> Iterator[Chunk]:
    return (Chunk(part, row, col) for part in plan.channels for row in plan.rows for col in plan.cols)


def part_of(whole: Float, *ranges: Range) -> Float:
    """A part along some leading axes."""
    return whole[tuple(slice(each.start, each.stop) for each in ranges)]


def map_for(op: Any) -> Float:
    return np.random.default_rng(0).standard_normal((1, op.in_channels, op.in_rows, op.in_cols), np.float32)


def part_of_map(whole: Float, channels: Range, rows: Range, cols: Range) -> Float:
    return part_of(whole, Range(0, 1), channels, rows, cols)


@pytest.mark.parametrize("kind", [Conv2d, Conv2dTranspose])
def test_a_chunk_of_a_convolution_is_the_sum_of_its_terms(kind: type) -> None:
    seen: Counter[str] = Counter()
    for step, plan, spec in planned_steps(kind):
        op: Any = step.op
        data, weight = map_for(op), np.random.default_rng(1).standard_normal(op.weight_shape, np.float32)
        whole = convolution(op, data, weight, op.padding, op.groups, getattr(op, "output_padding", (0, 0)))
        count = 0
        for chunk in chunks(plan):
            wanted = part_of_map(whole, chunk.channels, chunk.row.out, chunk.col.out)
            terms = list(conv_terms(op, plan, chunk, spec.unit_kernels))
            total = sum((value_of(op, term, data, weight) for term in terms), np.zeros_like(wanted))
            np.testing.assert_allclose(total, wanted, rtol=1e-4, atol=1e-4)
            seen.update({"nothing": not terms, "added": any(any(term.added) for term in terms)})
            count += len(terms)
        assert count <= 1 or takes_several(step, plan, spec.unit_kernels)
        seen.update({"several": count > 1, "sums": len(plan.in_channels) > 1, "streamed": not plan.passes_resident})
    assert min(seen[what] for what in ("several", "sums", "streamed", "nothing")) >= 3, seen
    assert (seen["added"] >= 3) == (kind is Conv2dTranspose), seen


def value_of(op: Any, term: ConvTerm, data: Float, weight: Float) -> Float:
    read = part_of_map(data, term.channels, term.rows, term.cols)
    order = "IOHW" if isinstance(op, Conv2dTranspose) else "OIHW"
    taps = part_of(weight, *(term.weights[letter] for letter in order))
    if isinstance(op, Conv2d):
        return convolution(op, read, taps, term.pads, term.groups)
    top, left, bottom, right = term.added
    value = convolution(op, read, taps, term.crop, term.groups)
    return np.pad(value, ((0, 0), (0, 0), (top, bottom), (left, right)))


def convolution(
    op: Any,
    data: Float,
    weight: Float,
    padding: tuple[int, int, int, int],
    groups: int,
    output_padding: tuple[int, int] = (0, 0),
) -> Float:
    attributes: dict[str, Any] = {"strides": op.strides, "padding": padding, "dilation": op.dilation, "groups": groups}
    if isinstance(op, Conv2d):
        return oracle.conv2d(data, weight, **attributes)
    return oracle.conv2d_transpose(data, weight, output_padding=output_padding, **attributes)


@pytest.mark.parametrize("largest", [10**6, 60])
def test_a_chunk_of_a_resize_is_cropped_or_taken(largest: int) -> None:
    """``largest``: elements that may be read and yielded at a time."""
    seen: Counter[tuple[bool, bool]] = Counter()
    for step, plan, _ in planned_steps(Resize2d):
        op: Any = step.op
        data, cut = map_for(op), len(plan.rows) * len(plan.cols) > 1
        whole = resized(data, op)
        for chunk in chunks(plan) if cut else ():
            part = resize_part(
                op,
                chunk,
                lambda tile: tile.in_rows * tile.in_cols + tile.out_rows * tile.out_cols <= largest,
                lambda op: not op.cubic_exclude,
            )
            assert not (op.cubic_exclude and part.size)
            value = part_of_map(data, chunk.channels, part.rows, part.cols)
            if part.size is not None:
                sizes = dict(zip(("out_rows", "out_cols"), part.size, strict=True))
                value = resized(value, replace(op, in_rows=len(part.rows), in_cols=len(part.cols), **sizes))
            kept = dict(part.crops)
            value = part_of_map(
                value,
                Range(0, value.shape[1]),
                *(kept.get(k, Range(0, value.shape[2 + i])) for i, k in enumerate("HW")),
            )
            value = value if part.row else taken(value, 2, op.row_taps(chunk.row.out))
            value = value if part.col else taken(value, 3, op.col_taps(chunk.col.out))
            wanted = part_of_map(whole, chunk.channels, chunk.row.out, chunk.col.out)
            np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-4)
            seen[part.row is not None, part.col is not None] += 1
    assert len(seen) == 4, seen
    assert min(seen.values()) >= 3, seen


def resized(data: Float, op: Resize2d) -> Float:
    rows, cols = matrix(op.rows, op.in_rows), matrix(op.cols, op.in_cols)
    return np.einsum("yi,ncij,xj->ncyx", rows, data.astype(np.float64), cols).astype(np.float32)


def matrix(table: AxisTable, size: int) -> NDArray[np.float64]:
    found = np.zeros((len(table.first), size))
    for output, (first, weights) in enumerate(zip(table.first, table.weights, strict=True)):
        found[output, first : first + len(weights)] = weights
    return found


def taken(value: Float, axis: int, taps: AxisTaps) -> Float:
    shape = tuple(-1 if at == axis else 1 for at in range(4))
    pairs = zip(taps.indices, taps.weights, strict=True)
    return sum(value.take(indices, axis) * np.reshape(weights, shape) for indices, weights in pairs)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_pool_is_two_pools_of_one_axis(layout: str) -> None:
    count = 0
    for seed in range(CASES):
        make, case = whole_region(seed)
        for step in case.region.steps:
            if not isinstance(step.op, Pool2d):
                continue
            extents = (step.op.channels, step.op.in_rows, step.op.in_cols, step.images)
            data = make.tensor(make.map_shape(layout, *extents), layout)
            outs = (step.op.channels, step.op.out_rows, step.op.out_cols, step.images)
            output = replace(step.output, shape=make.map_shape(layout, *outs), layout=layout)
            whole = replace(step, data=data, output=output, output_channel=0)
            smaller = pool_in_two(whole)
            assert (smaller is None) == (1 in step.op.kernel)
            if smaller is not None:
                count += 1
                wanted, found = (
                    evaluate(Region("r", (), (output,), steps), make.values)[output.name]
                    for steps in ((whole,), smaller)
                )
                np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert count >= 50
