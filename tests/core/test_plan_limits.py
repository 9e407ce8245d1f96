"""Cuts beyond rows, kernels of no unit, other capacities, and what does not fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from core.planning import A19, heights, planned, region, widths
from core.regions import SEED, SPEC

from tvm_sramtile.errors import DoesNotFit, UnsupportedOp
from tvm_sramtile.geometry import Conv2d
from tvm_sramtile.ir import Step
from tvm_sramtile.plan import Charge, SpecCapacity, Term, Tile, plan_region
from tvm_sramtile.plan.cut import kernel_passes
from tvm_sramtile.plan.seed import seed_cut


@dataclass(frozen=True, slots=True)
class ByRows:
    """Somebody else's rule: at most so many output rows, in groups of ``row_multiple``."""

    most: int
    row_multiple: int = 1
    row_minimum: int = 1
    channel_multiple: int = 4
    unit_kernels: None = None
    name: str = "by-rows"

    def charge(self, step: Step, tile: Tile) -> Charge:
        terms = SpecCapacity(SPEC).charge(step, tile).terms
        return Charge(tuple(replace(term, bytes=tile.out_rows) for term in terms[:1]), {"pool": self.most})


@pytest.mark.parametrize(
    ("capacity", "wanted"),
    [
        (ByRows(30), [30]),
        (ByRows(29), [15, 15]),
        (ByRows(29, row_multiple=4), [16, 14]),
        (ByRows(9, row_multiple=4), [8, 8, 8, 6]),
        (ByRows(11, row_minimum=11), [11, 11, 8]),
        (ByRows(13, row_multiple=4, row_minimum=10), [12, 12, 6]),
        (ByRows(64, row_multiple=7), [30]),
    ],
)
def test_another_capacity(capacity: ByRows, wanted: list[int]) -> None:
    step = region(Conv2d(1, 30, 1, 1, (1, 1))).steps[0]
    cut = seed_cut(step, capacity, kernel_passes(step, ((1, 1),), "best"))
    assert [len(span.out) for span in cut.rows] == wanted


def test_another_capacity_that_nothing_fits() -> None:
    step = region(Conv2d(1, 30, 1, 1, (1, 1))).steps[0]
    with pytest.raises(DoesNotFit) as caught:
        seed_cut(step, ByRows(9, row_multiple=4, row_minimum=10), kernel_passes(step, ((1, 1),), "best"))
    assert str(caught.value) == (
        "conv2d conv0 (1x1x30x1): not even 12 rows, 1 column and 1 channel of output fit by-rows: "
        "weights 12 B in pool, 3 B more than its 9 B. What would help: a limit of pool of at least 12 B"
    )


def test_a_term_in_a_memory_without_a_limit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^term 'input' is in memory 'bank 1': limits are of \['bank 0'\]$"):
        Charge((Term("input", "bank 1", 1),), {"bank 0": 1})


# Beyond rows, in this order: columns, output channels, input channels, the passes of a kernel one after the other.

WIDE = Conv2d(12, 2, 9, 10, (3, 3), padding=(1, 1, 1, 1))


@pytest.mark.parametrize(
    ("spec", "rows", "cols", "channels", "in_channels", "resident"),
    [
        ({}, [2], [9], [10], [12], True),
        ({"input_bytes": 863}, [1, 1], [5, 4], [10], [12], True),
        ({"input_bytes": 2 * 4 * 3 * 16}, [1, 1], [2, 2, 2, 2, 1], [10], [12], True),
        ({"output_bytes": 2 * 3 * 16}, [1, 1], [2, 2, 2, 2, 1], [10], [12], True),
        ({"output_bytes": 2 * 16}, [1, 1], [1] * 9, [8, 2], [12], True),
        ({"weight_bytes": 12 * 12 * 9 * 4 - 1}, [2], [9], [8, 2], [12], True),
        ({"weight_bytes": 4 * 8 * 9 * 4}, [2], [9], [4, 4, 2], [8, 4], True),
        ({"weight_bytes": 4 * 4 * 9 * 4}, [2], [9], [4, 4, 2], [4, 4, 4], True),
        ({"weight_bytes": 4 * 4 * 9 * 4 - 1, "unit_kernels": ((3, 2),)}, [2], [9], [4, 4, 2], [4, 4, 4], False),
    ],
)
def test_beyond_rows(
    spec: dict[str, Any],
    rows: list[int],
    cols: list[int],
    channels: list[int],
    in_channels: list[int],
    resident: bool,
) -> None:
    large: dict[str, Any] = {
        "sram_bytes": None,
        **dict.fromkeys(("input_bytes", "weight_bytes", "output_bytes"), 1 << 20),
    }
    plan = planned(WIDE, SPEC.replace(**{**large, **spec}))
    assert (heights(plan), widths(plan)) == (rows, cols)
    assert [len(part) for part in plan.channels] == channels
    assert [len(part) for part in plan.in_channels] == in_channels
    assert plan.passes_resident == resident


@pytest.mark.parametrize(
    ("weight_bytes", "channels"),
    [
        (12 * 1 * 9 * 4, [12]),
        (12 * 1 * 9 * 4 - 1, [6, 6]),  # whole groups that end with a block, as far as there are any
        (4 * 9 * 4, [3, 3, 3, 3]),
    ],
)
def test_channels_of_groups(weight_bytes: int, channels: list[int]) -> None:
    op = Conv2d(4, 4, 4, 12, (3, 3), groups=4)
    spec = SPEC.replace(sram_bytes=None, input_bytes=1 << 20, weight_bytes=weight_bytes, output_bytes=1 << 20)
    assert [len(part) for part in planned(op, spec).channels] == channels


@pytest.mark.parametrize(
    ("kernel", "units", "split", "parts", "spent"),
    [
        ((3, 3), ((1, 1), (3, 3)), "seed", [(3, 3)], 9),
        ((5, 5), ((1, 1), (3, 3)), "seed", [(3, 2), (3, 3), (2, 2), (2, 3)], 36),
        ((5, 5), ((1, 1), (3, 3)), "best", None, 25),
        ((4, 1), ((3, 3),), "seed", [(3, 1), (1, 1)], 18),
        ((2, 2), ((1, 1),), "seed", [(1, 1)] * 4, 4),
    ],
)
def test_kernels_of_no_unit(
    kernel: tuple[int, int], units: Any, split: Any, parts: list[tuple[int, int]] | None, spent: int
) -> None:
    op = Conv2d(4, 8, 8, 4, kernel)
    plan = planned(op, SPEC.replace(unit_kernels=units), SEED.replace(kernel_split=split))
    if parts is not None:
        assert [(len(one.rows), len(one.cols)) for one in plan.passes] == parts
    assert sum(one.unit[0] * one.unit[1] for one in plan.passes) == spent


def test_sub_kernels_that_lie_far_apart_load_their_own_parts_of_the_input() -> None:
    """A window of 37x37 positions does not fit, one of a sub-kernel does: only one unit of work is ever needed."""
    op = Conv2d(4, 30, 30, 4, (3, 3), padding=(18,) * 4, dilation=(18, 18))
    spec = SPEC.replace(unit_kernels=((1, 1),))
    assert not planned(op, spec.replace(sram_bytes=16384)).input_per_pass
    step = planned(op, spec.replace(sram_bytes=64 + 16 + 16))
    assert step.input_per_pass
    assert (step.chunk_count, len(step.passes)) == (900, 9)
    in_map = 12 + 30 + 12  # rows of three shifted maps that lie in the map, and columns
    assert step.traffic.input_bytes == 4 * 4 * in_map * in_map
    with pytest.raises(DoesNotFit):
        planned(op, spec.replace(sram_bytes=95))


# What does not fit: the whole text.


def test_a_unit_that_does_not_fit_one_pool() -> None:
    with pytest.raises(DoesNotFit) as caught:
        planned(A19, SPEC.replace(sram_bytes=500))
    assert str(caught.value) == (
        "conv2d conv0 (1x4x8x8): not even 1 row, 1 column and 4 channels of output fit test: weights 576 + input 144 + "
        "output 16 = 736 B in pool, 236 B more than its 500 B. What would help: sram_bytes of at least 736"
    )
    assert planned(A19, SPEC.replace(sram_bytes=736)).chunk_count == 64


def test_a_unit_that_does_not_fit_two_of_the_memories() -> None:
    spec = SPEC.replace(sram_bytes=None, input_bytes=100, weight_bytes=4096, output_bytes=15)
    with pytest.raises(DoesNotFit) as caught:
        planned(A19, spec, bias=True)
    assert str(caught.value) == (
        "conv2d conv0 (1x4x8x8): not even 1 row, 1 column and 4 channels of output fit test: input 144 B in input, "
        "44 B more than its 100 B; output 16 B in output, 1 B more than its 15 B. "
        "What would help: input_bytes of at least 144, or output_bytes of at least 16"
    )


def test_weights_that_do_not_fit() -> None:
    spec = SPEC.replace(sram_bytes=None, input_bytes=1024, weight_bytes=575, output_bytes=1024)
    with pytest.raises(DoesNotFit) as caught:
        planned(A19, spec)
    assert str(caught.value) == (
        "conv2d conv0 (1x4x8x8): not even 1 row, 1 column and 4 channels of output fit test: weights 576 B in weight, "
        "1 B more than its 575 B. What would help: weight_bytes of at least 576"
    )


def test_an_op_of_another_type() -> None:
    made = region(A19)
    step = made.steps[0]
    other = replace(made, steps=(replace(step, data=replace(step.data, dtype="float16")),))
    with pytest.raises(UnsupportedOp) as caught:
        plan_region(other, SPEC, SEED)
    assert str(caught.value) == "conv2d conv0: dtype float16 of x: the accelerator takes float32"
