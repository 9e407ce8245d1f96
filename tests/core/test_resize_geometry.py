"""Resize tables, windows, taps and slices against the oracle: everything on small domains, samples on large ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, get_args

import numpy as np
import pytest
from core import oracle_resize as oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import TypeAdapter

from tvm_sramtile.errors import UnsupportedOp
from tvm_sramtile.geometry import Window
from tvm_sramtile.geometry.resize2d import Resize2d
from tvm_sramtile.geometry.resize_axis import (
    AxisSlice,
    AxisTable,
    AxisTaps,
    CoordinateMode,
    Rounding,
    Sampling,
    axis_slice,
    axis_table,
    axis_taps,
)
from tvm_sramtile.ints import Range

MODES = get_args(CoordinateMode)
ROUNDINGS = get_args(Rounding)
SIZES = [*product(range(1, 10), range(1, 14))]

# In float32 this coordinate, 3.5, comes out as 3.5000002, so that both TVMs take the upper position:
# (size, out_size, mode, rounding, output).
TIES_LOST_TO_FLOAT32 = {(7, 13, "tf_half_pixel_for_nn", "round_prefer_floor", 6)}


def oracle_axis(size: int, out_size: int, sampling: Sampling) -> NDArray[np.float64]:
    return oracle.axis(
        size,
        out_size,
        method=sampling.method,
        mode=sampling.mode,
        rounding=sampling.rounding,
        alpha=sampling.cubic_alpha,
        exclude=sampling.cubic_exclude,
        ties=sampling.ties,
        whole_scale_floors=sampling.whole_scale_floors,
    )


def dense(table: AxisTable, size: int) -> NDArray[np.float64]:
    """[output, position] weights."""
    weights = np.zeros((len(table.first), size))
    for out, (first, taps) in enumerate(zip(table.first, table.weights, strict=True)):
        assert first >= 0
        assert first + len(taps) <= size
        weights[out, first : first + len(taps)] = taps
    return weights


def dense_taps(taps: AxisTaps, size: int) -> NDArray[np.float64]:
    """[output, position] weights, by adding up tap after tap."""
    weights = np.zeros((len(taps.indices[0]), size))
    for indices, values in zip(taps.indices, taps.weights, strict=True):
        for out, (index, value) in enumerate(zip(indices, values, strict=True)):
            weights[out, index] += value
    return weights


def ranges(extent: int) -> Iterator[Range]:
    for start in range(extent):
        for stop in range(start + 1, extent + 1):
            yield Range(start, stop)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_nearest_exhaustively(mode: CoordinateMode, rounding: Rounding) -> None:
    lost = set()
    for (size, out_size), ties, floors in product(SIZES, ("even", "away"), (False, True)):
        sampling = Sampling("nearest_neighbor", mode, rounding, ties=ties, whole_scale_floors=floors)
        table = axis_table(size, out_size, sampling)
        assert table.weights == ((1.0,),) * out_size
        expected = oracle_axis(size, out_size, sampling).argmax(axis=1)
        lost |= {(size, out_size, mode, rounding, int(out)) for out in np.flatnonzero(expected != table.first)}
    assert lost == {case for case in TIES_LOST_TO_FLOAT32 if case[2:4] == (mode, rounding)}


INTERPOLATIONS = [
    ("linear", -0.75, False),
    ("cubic", -0.75, False),
    ("cubic", -0.75, True),
    ("cubic", -0.5, False),
    ("cubic", -0.5, True),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("method", "alpha", "exclude"), INTERPOLATIONS)
def test_interpolation_exhaustively(mode: CoordinateMode, method: Any, alpha: float, exclude: bool) -> None:
    sampling = Sampling(method, mode, cubic_alpha=alpha, cubic_exclude=exclude)
    for size, out_size in SIZES:
        table = axis_table(size, out_size, sampling)
        assert table.taps <= min(size, 4 if method == "cubic" else 2)
        expected = oracle_axis(size, out_size, sampling)
        # A coordinate that is an integer may come out just below it, with weight 1 at the same position all the same.
        np.testing.assert_allclose(dense(table, size), expected, rtol=0, atol=4e-6, err_msg=f"{size} to {out_size}")
        assert all(np.float32(weight) == weight for taps in table.weights for weight in taps)


SAMPLINGS = [
    *(Sampling("nearest_neighbor", mode, rounding) for mode in MODES for rounding in ROUNDINGS),
    *(Sampling("linear", mode) for mode in MODES),
    *(Sampling("cubic", mode, cubic_exclude=exclude) for mode in MODES for exclude in (False, True)),
]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda s: f"{s.method}-{s.mode}-{s.rounding}-{s.cubic_exclude}")
def test_windows_and_taps_exhaustively(sampling: Sampling) -> None:
    for size, out_size in SIZES:
        table = axis_table(size, out_size, sampling)
        weights = dense(table, size)
        for out in ranges(out_size):
            outs = range(out.start, out.stop)
            window = table.window(out)
            assert window.start == min(table.first[o] for o in outs)
            assert window.stop == max(table.first[o] + len(table.weights[o]) for o in outs)
            taps = axis_taps(size, out_size, sampling, out)
            assert len(taps.indices) == {"nearest_neighbor": 1, "linear": 2, "cubic": 4}[sampling.method]
            own = dense_taps(taps, len(window))
            np.testing.assert_allclose(own, weights[out.start : out.stop, window.start : window.stop], atol=1e-6)
        assert len(table.window(Range(0, 0))) == 0


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda s: f"{s.method}-{s.mode}-{s.rounding}-{s.cubic_exclude}")
def test_slices_exhaustively(sampling: Sampling) -> None:
    """A slice's resize, cropped, has the whole table's positions and weights, and never needs more than the map."""
    for size, out_size in SIZES:
        whole = axis_table(size, out_size, sampling)
        for out in ranges(out_size):
            piece = axis_slice(size, out_size, sampling, out)
            if piece is None:
                continue
            window = whole.window(out)
            assert 0 <= piece.read.start <= window.start
            assert window.stop <= piece.read.stop <= size
            assert (len(piece.read) < size) or (len(window) == size)
            assert len(piece.crop) == len(out)
            assert piece.crop.start >= 0
            assert piece.crop.stop <= piece.out_size
            own = axis_table(len(piece.read), piece.out_size, sampling)
            crop = slice(piece.crop.start, piece.crop.stop)
            kept = slice(out.start, out.stop)
            assert [first + piece.read.start for first in own.first[crop]] == [*whole.first[kept]]
            assert own.weights[crop] == whole.weights[kept]


@pytest.mark.parametrize("mode", ["half_pixel", "pytorch_half_pixel", "asymmetric", "tf_half_pixel_for_nn"])
@pytest.mark.parametrize("method", ["nearest_neighbor", "linear", "cubic"])
def test_power_of_two_scales_can_always_be_sliced(mode: CoordinateMode, method: Any) -> None:
    for scale, size in product((2, 4), (24, 67)):
        for start in range(0, size * scale - 5, 3):
            out = Range(start, start + 5)
            piece = axis_slice(size, size * scale, Sampling(method, mode), out)
            assert piece is not None
            window = axis_table(size, size * scale, Sampling(method, mode)).window(out)
            assert len(piece.read) <= len(window) + 2
            assert piece.out_size == scale * len(piece.read)
            # Downwards, with the roles changed.
            assert axis_slice(size * scale, size, Sampling(method, mode), Range(3, 9)) is not None


def test_scales_that_float32_cannot_hold_need_a_tolerance() -> None:
    linear, nearest = Sampling("linear", "half_pixel"), Sampling("nearest_neighbor", "half_pixel")
    out = Range(271, 289)
    assert axis_slice(100, 300, linear, out) is None
    assert axis_slice(100, 300, linear, out, tolerance=1e-5) == AxisSlice(Range(90, 97), 21, Range(1, 19))
    assert axis_slice(100, 300, nearest, out) == AxisSlice(Range(90, 97), 21, Range(1, 19))


def test_scales_without_a_common_divisor_cannot_be_sliced() -> None:
    # Reported against TVM as issue 19570 (case A06).
    assert axis_slice(3, 7, Sampling("linear", "half_pixel"), Range(0, 2)) is None
    op = Resize2d(8, 32, 32, 80, 80)
    chunks = [Range(0, 20), Range(20, 40), Range(40, 60), Range(60, 80)]
    reads = [op.row_window(chunk).read for chunk in chunks]
    assert reads == [Range(0, 9), Range(7, 17), Range(15, 25), Range(23, 32)]
    assert op.row_window(Range(20, 40)) == Window(Range(7, 17), 0, 0) == op.col_window(Range(20, 40))


def test_align_corners() -> None:
    # Reported against TVM as issue 9841 (case A07): 2n - 1 outputs, and chunks of which the last is one row.
    op = Resize2d(4, 33, 33, 65, 65, coordinate_transformation_mode="align_corners")
    assert op.rows.first[-1] == 32
    assert op.rows.weights[-1] == (1.0,)
    assert op.row_window(Range(64, 65)).read == Range(32, 33)
    assert op.row_slice(Range(64, 65)) == AxisSlice(Range(31, 33), 3, Range(2, 3))
    assert op.row_slice(Range(8, 16)) == AxisSlice(Range(4, 9), 9, Range(0, 8))
    # One output row, where TVM divides by zero, is the first input row.
    one = Resize2d(1, 5, 5, 1, 5, coordinate_transformation_mode="align_corners")
    assert one.rows == AxisTable((0,), ((1.0, 0.0),))
    assert one.row_slice(Range(0, 1)) is None
    assert not one.leaves_rows(1)
    assert one.leaves_rows(2)


def test_rows_and_columns_are_kept_apart() -> None:
    op = Resize2d(3, 8, 20, 16, 5, cubic_alpha=-0.5)
    assert op.rows == axis_table(8, 16, op.sampling)
    assert op.cols == axis_table(20, 5, op.sampling)
    assert op.row_window(Range(4, 6)).read == Range(1, 4)
    assert op.col_window(Range(0, 5)).read == Range(1, 19)
    assert op.row_taps(Range(4, 6)) == AxisTaps(((0, 1), (1, 2)), ((0.25, 0.75), (0.75, 0.25)))
    assert op.col_taps(Range(2, 3)) == AxisTaps(((0,), (1,)), ((0.5,), (0.5,)))
    assert op.row_slice(Range(4, 6)) == AxisSlice(Range(1, 4), 6, Range(2, 4))
    assert op.col_slice(Range(2, 3)) == AxisSlice(Range(8, 12), 1, Range(0, 1))
    assert (op.out_channels, op.macs, op.direction, op.tested_map) == (3, 0, "input-to-output", "output")


def test_an_infinite_row_is_read_by_no_more_rows_than_in_tvm() -> None:
    """The last row of an asymmetric upsampling reads the last position only, not its neighbour with weight 0."""
    op = Resize2d(1, 4, 4, 8, 8, coordinate_transformation_mode="asymmetric")
    assert op.rows.first[-2:] == (3, 3)
    assert op.rows.weights[-2:] == ((1.0,), (1.0,))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["nearest_neighbor", "linear", "cubic"])
def test_which_resizes_leave_rows_as_they_are(mode: CoordinateMode, method: Any) -> None:
    op = Resize2d(1, 8, 8, 16, 16, method, mode)
    expected = mode != "tf_half_pixel_for_nn" or method == "nearest_neighbor"
    assert {op.leaves_rows(rows) for rows in range(2, 40)} == {expected}
    assert not Resize2d(1, 8, 8, 16, 16, method, "tf_half_pixel_for_nn", "ceil").leaves_rows(8)


def test_json_round_trip() -> None:
    op = Resize2d(1, 2, 3, 4, 5, "nearest_neighbor", "asymmetric", "ceil", ties="away", whole_scale_floors=True)
    adapter = TypeAdapter(Resize2d)
    assert adapter.validate_json(adapter.dump_json(op)) == op


KNOWN_MODES = "'half_pixel', 'pytorch_half_pixel', 'align_corners', 'asymmetric', 'tf_half_pixel_for_nn'"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"out_rows": 0}, "resize2d: out_rows is 0, it must be at least 1"),
        ({"in_channels": -2}, "resize2d: in_channels is -2, it must be at least 1"),
        (
            {"method": "area"},
            "resize2d: method 'area' is not supported, only 'nearest_neighbor', 'linear', 'cubic'",
        ),
        (
            {"coordinate_transformation_mode": "tf_crop_and_resize"},
            "resize2d: coordinate_transformation_mode 'tf_crop_and_resize' is not supported, only " + KNOWN_MODES,
        ),
        (
            {"method": "nearest_neighbor", "rounding_method": "up"},
            "resize2d: rounding_method 'up' is not supported, only '', 'round', 'round_prefer_floor', "
            "'round_prefer_ceil', 'floor', 'ceil'",
        ),
    ],
)
def test_refusals(change: dict[str, Any], message: str) -> None:
    fields = {"in_channels": 1, "in_rows": 2, "in_cols": 2, "out_rows": 4, "out_cols": 4}
    with pytest.raises(UnsupportedOp) as caught:
        Resize2d(**{**fields, **change})
    assert str(caught.value) == message


def test_a_rounding_method_matters_to_nearest_only() -> None:
    assert Resize2d(1, 2, 2, 4, 4, "linear", rounding_method="unknown").rows.taps == 2  # type: ignore[arg-type]


samplings = st.builds(
    Sampling,
    method=st.sampled_from(["nearest_neighbor", "linear", "cubic"]),
    mode=st.sampled_from(MODES),
    rounding=st.sampled_from(ROUNDINGS),
    cubic_alpha=st.floats(-1, 0),
    cubic_exclude=st.booleans(),
    ties=st.sampled_from(["even", "away"]),
    whole_scale_floors=st.booleans(),
)


@settings(deadline=None)  # the oracle is slow
@given(size=st.integers(1, 700), out_size=st.integers(1, 700), sampling=samplings, data=st.data())
def test_large_maps(size: int, out_size: int, sampling: Sampling, data: st.DataObject) -> None:
    table = axis_table(size, out_size, sampling)
    expected = oracle_axis(size, out_size, sampling)
    if sampling.method == "nearest_neighbor":
        for out in np.flatnonzero(expected.argmax(axis=1) != table.first):
            # Coordinates of this size are off by up to 1e-4, which shows on ties (and beyond the 1e-5 of floor, ceil).
            place = oracle.place_of(int(out), size, out_size, sampling.mode)
            assert abs(table.first[out] - int(expected[out].argmax())) == 1
            assert abs(2 * place - round(2 * place)) <= 4e-4
    else:
        # A coordinate is off by 1e-4 at most, and no kernel is steeper than 2 or so.
        np.testing.assert_allclose(dense(table, size), expected, rtol=0, atol=4e-4)
    start, last = sorted(data.draw(st.tuples(st.integers(0, out_size - 1), st.integers(0, out_size - 1))))
    out = Range(start, last + 1)
    reads = [range(table.first[o], table.first[o] + len(table.weights[o])) for o in range(start, last + 1)]
    window = table.window(out)
    assert window == Range(min(read.start for read in reads), max(read.stop for read in reads))
    piece = axis_slice(size, out_size, sampling, out)
    if piece is not None:
        own = axis_table(len(piece.read), piece.out_size, sampling)
        assert own.weights[piece.crop.start : piece.crop.stop] == table.weights[start : last + 1]
        assert own.first[piece.crop.start] + piece.read.start == table.first[start]
