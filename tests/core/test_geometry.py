"""Geometry against an enumeration, row by row: everything on small domains, samples on large ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tvm_sramtile.geometry import Conv2d, Window, conv_extent, conv_window
from tvm_sramtile.ints import Range


def taps_of(out: int, kernel: int, stride: int, dilation: int, pad_before: int) -> list[int]:
    """The positions that an output reads, those in padding too."""
    return [out * stride - pad_before + dilation * tap for tap in range(kernel)]


def extent_of(size: int, kernel: int, stride: int, dilation: int, pad_before: int, pad_after: int) -> int:
    """How many outputs have all their taps within the padded map, counted one by one."""
    out = 0
    while taps_of(out, kernel, stride, dilation, pad_before)[-1] < size + pad_after:
        out += 1
    return out


def test_extents_exhaustively() -> None:
    domain = product(range(1, 8), range(1, 5), range(1, 5), range(1, 4), range(6), range(6))
    for size, kernel, stride, dilation, before, after in domain:
        arguments = (size, kernel, stride, dilation, before, after)
        assert conv_extent(*arguments) == extent_of(*arguments), arguments


def windows_of(
    size: int, kernel: int, stride: int, dilation: int, before: int, outs: int
) -> Iterator[tuple[Range, Window]]:
    """For every range of outputs, the window found by marking the rows that its outputs read, one after the other."""
    reads = [taps_of(out, kernel, stride, dilation, before) for out in range(outs)]
    for start in range(outs):
        rows: set[int] = set()
        for stop in range(start + 1, outs + 1):
            rows.update(position for position in reads[stop - 1] if 0 <= position < size)
            head, tail = reads[start][0], reads[stop - 1][-1] + 1
            if rows:
                first, last = min(rows), max(rows) + 1
                yield Range(start, stop), Window(Range(first, last), first - head, tail - last)
            else:
                yield Range(start, stop), Window(Range(0, 0), tail - head, 0)


@pytest.mark.parametrize("kernel", range(1, 5))
def test_windows_exhaustively(kernel: int) -> None:
    for size, stride, dilation, before in product(range(1, 8), range(1, 5), range(1, 4), range(6)):
        outs = extent_of(size, kernel, stride, dilation, before, 5)
        for out, expected in windows_of(size, kernel, stride, dilation, before, outs):
            window = conv_window(out, size, kernel, stride, dilation, before)
            assert window == expected, (out, size, kernel, stride, dilation, before)
            # The same operator on the window yields just these outputs.
            pads = (window.pad_before, window.pad_after)
            assert min(pads) >= 0
            assert conv_extent(len(window.read), kernel, stride, dilation, *pads) == len(out)


@given(
    size=st.integers(1, 4000),
    kernel=st.integers(1, 31),
    stride=st.integers(1, 40),
    dilation=st.integers(1, 20),
    before=st.integers(0, 900),
    after=st.integers(0, 900),
    ends=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_windows_of_large_maps(
    size: int, kernel: int, stride: int, dilation: int, before: int, after: int, ends: tuple[float, float]
) -> None:
    outs = conv_extent(size, kernel, stride, dilation, before, after)
    assume(outs > 0)
    start, last = sorted(int(end * (outs - 1)) for end in ends)
    out = Range(start, last + 1)
    taps = np.arange(start, last + 1)[:, np.newaxis] * stride - before + dilation * np.arange(kernel)
    read = taps[(taps >= 0) & (taps < size)]
    window = conv_window(out, size, kernel, stride, dilation, before)
    if read.size:
        assert window.read == Range(read.min(), read.max() + 1)
        assert window.pad_before == read.min() - taps.min()
        assert window.pad_after == taps.max() - read.max()
    else:
        assert window == Window(Range(0, 0), int(taps.max() - taps.min()) + 1, 0)
    assert conv_extent(len(window.read), kernel, stride, dilation, window.pad_before, window.pad_after) == len(out)


def test_windows_of_neighbours_cover_what_the_whole_reads() -> None:
    for size, kernel, stride, dilation, before in product((5, 7), (1, 3, 4), (1, 2, 4), (1, 2), (0, 2, 5)):
        outs = conv_extent(size, kernel, stride, dilation, before, 2)
        taps = {row for out in range(outs) for row in taps_of(out, kernel, stride, dilation, before)}
        for height in range(1, outs + 1):
            covered: set[int] = set()
            for start in range(0, outs, height):
                out = Range(start, min(start + height, outs))
                read = conv_window(out, size, kernel, stride, dilation, before).read
                covered |= set(range(read.start, read.stop))
            assert taps & set(range(size)) <= covered


def test_conv2d_keeps_rows_and_columns_apart() -> None:
    op = Conv2d(6, 31, 47, 8, (2, 3), strides=(1, 4), padding=(1, 2, 3, 5), dilation=(5, 7), groups=2)
    assert op.out_rows == extent_of(31, 2, 1, 5, 1, 3) == 30
    assert op.out_cols == extent_of(47, 3, 4, 7, 2, 5) == 10
    assert op.row_window(Range(0, 3)) == conv_window(Range(0, 3), 31, 2, 1, 5, 1) == Window(Range(0, 7), 1, 0)
    assert op.col_window(Range(0, 3)) == conv_window(Range(0, 3), 47, 3, 4, 7, 2) == Window(Range(2, 21), 4, 0)
    assert op.weight_shape == (8, 3, 2, 3)
    assert op.macs == 30 * 10 * 8 * 3 * 2 * 3
    assert (op.direction, op.tested_map) == ("output-to-input", "input")


def test_depthwise() -> None:
    op = Conv2d(12, 5, 5, 24, (3, 3), groups=12)
    assert op.weight_shape == (24, 1, 3, 3)
    assert op.macs == 9 * 24 * 9


def test_a_kernel_larger_than_the_padded_map_leaves_no_output() -> None:
    op = Conv2d(1, 2, 9, 1, (3, 3))
    assert (op.out_rows, op.out_cols, op.macs) == (0, 7, 0)
