"""Rounding and half-open ranges."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_sramtile.ints import Range, ceil_div, cut, round_up

LARGE = st.integers(-(2**70), 2**70)
POSITIVE = st.integers(1, 2**40)


@given(LARGE, POSITIVE)
def test_ceil_div_is_exact(value: int, divisor: int) -> None:
    assert ceil_div(value, divisor) == ceil(Fraction(value, divisor))


@given(LARGE, POSITIVE)
def test_round_up_is_the_least_multiple(value: int, multiple: int) -> None:
    rounded = round_up(value, multiple)
    assert rounded % multiple == 0
    assert value <= rounded < value + multiple


def test_range() -> None:
    assert len(Range(3, 7)) == 4
    assert len(Range(3, 3)) == 0
    assert str(Range(3, 7)) == "3-7"
    assert Range(1, 9) < Range(2, 3) < Range(2, 4)
    with pytest.raises(ValueError, match=r"^range \[4, 3\) ends before it starts$"):
        Range(4, 3)


@given(st.integers(0, 300), st.integers(1, 40))
def test_cut_tiles_the_extent(extent: int, size: int) -> None:
    parts = cut(extent, size)
    assert [position for part in parts for position in range(part.start, part.stop)] == list(range(extent))
    assert all(len(part) == size for part in parts[:-1])
    assert all(0 < len(part) <= size for part in parts)
