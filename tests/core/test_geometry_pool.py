"""Pooling and elementwise geometry: what outputs read, by enumeration."""

from __future__ import annotations

from itertools import product

import numpy as np
from core import oracle

from tvm_sramtile.geometry import Elementwise, Pool2d, Window
from tvm_sramtile.ints import Range


def test_windows_exhaustively() -> None:
    """Also of windows that start beyond the map, as rounding up makes them."""
    for size, kernel, stride, dilation, pad in product((1, 3, 6), (1, 2, 3), (1, 2, 4), (1, 2), (0, 1, 4)):
        outs = (size + 2 * pad) // stride + 1
        op = Pool2d(2, size, 1, outs, 1, (kernel, 1), (stride, 1), (pad, 0), (dilation, 1), "max")
        columns = Pool2d(2, 1, size, 1, outs, (1, kernel), (1, stride), (0, pad), (1, dilation), "max")
        for start in range(outs):
            for stop in range(start + 1, outs + 1):
                taps = [o * stride - pad + t * dilation for o in range(start, stop) for t in range(kernel)]
                read = [tap for tap in taps if 0 <= tap < size]
                expected = Window(Range(0, 0), max(taps) - min(taps) + 1, 0)
                if read:
                    inside = Range(min(read), max(read) + 1)
                    expected = Window(inside, inside.start - min(taps), max(taps) + 1 - inside.stop)
                assert op.row_window(Range(start, stop)) == expected
                assert columns.col_window(Range(start, stop)) == expected


def test_rows_and_columns_are_kept_apart() -> None:
    op = Pool2d(5, 31, 47, 30, 10, (2, 3), (1, 4), (1, 2), (5, 7), "average_all")
    assert op.row_window(Range(0, 3)) == Window(Range(0, 7), 1, 0)
    assert op.col_window(Range(0, 3)) == Window(Range(2, 21), 4, 0)
    assert (op.in_channels, op.out_channels, op.macs) == (5, 5, 0)
    assert op.in_channel_range(Range(2, 4)) == Range(2, 4)
    assert (op.direction, op.tested_map) == ("output-to-input", "input")


def test_elementwise() -> None:
    op = Elementwise(5, 7, 9, "add", "map")
    assert op.row_window(Range(2, 4)) == Window(Range(2, 4), 0, 0)
    assert op.col_window(Range(0, 9)) == Window(Range(0, 9), 0, 0)
    assert (op.in_rows, op.in_cols, op.in_channels) == (op.out_rows, op.out_cols, op.out_channels) == (7, 9, 5)
    assert op.in_channel_range(Range(2, 4)) == Range(2, 4)
    assert (op.direction, op.tested_map, op.macs) == ("any", "input", 0)


def test_the_oracle_of_pooling_by_hand() -> None:
    data = np.arange(1, 10, dtype=np.float32).reshape(1, 1, 3, 3)
    corner = {"strides": (2, 2), "padding": (1, 1)}
    assert oracle.pool2d(data, "max", (2, 2), (2, 2), **corner)[0, 0].tolist() == [[1, 3], [7, 9]]
    assert oracle.pool2d(data, "average_all", (2, 2), (2, 2), **corner)[0, 0].tolist() == [[0.25, 1.25], [2.75, 7]]
    assert oracle.pool2d(data, "average_valid", (2, 2), (2, 2), **corner)[0, 0].tolist() == [[1, 2.5], [5.5, 7]]
    beyond = oracle.pool2d(data, "average_valid", (1, 1), (1, 2), strides=(1, 3))
    assert beyond[0, 0].tolist() == [[1, 0]]
    assert oracle.pool2d(data, "max", (1, 1), (1, 2), strides=(1, 3))[0, 0, 0, 1] == np.finfo(np.float32).min
    assert oracle.pool2d(data, "max", (2, 2), (1, 1), dilation=(2, 2))[0, 0].tolist() == [[9]]
