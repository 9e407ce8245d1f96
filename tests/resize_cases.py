"""Resizes that both front ends' TVM must compute as the tables say, and the tables applied in numpy. Free of TVM."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_sramtile.geometry.resize2d import Resize2d
from tvm_sramtile.geometry.resize_axis import AxisTable, AxisTaps
from tvm_sramtile.ints import Range, cut

Array = NDArray[np.float32]

MODES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn")
ROUNDINGS = ("", "round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def _cases() -> dict[str, Resize2d]:
    cases: dict[str, Resize2d] = {
        # apache/tvm issue 19570 (A06), 9841 (A07).
        "a06-small-linear": Resize2d(1, 3, 3, 7, 7),
        "a06-small-nearest": Resize2d(1, 3, 3, 7, 7, "nearest_neighbor"),
        "a06-linear": Resize2d(8, 32, 32, 80, 80),
        "a06-nearest": Resize2d(8, 32, 32, 80, 80, "nearest_neighbor"),
        "a07": Resize2d(4, 33, 33, 65, 65, coordinate_transformation_mode="align_corners"),
        "one-output": Resize2d(2, 6, 4, 1, 1, "nearest_neighbor", "half_pixel", "round"),
        "one-output-pytorch": Resize2d(2, 6, 4, 1, 1, "linear", "pytorch_half_pixel"),
        "one-input": Resize2d(2, 1, 1, 5, 4, "cubic", "half_pixel"),
        "one-input-align-corners": Resize2d(2, 1, 5, 5, 9, "linear", "align_corners"),
        "one-row-excluded": Resize2d(2, 1, 9, 3, 20, "cubic", "asymmetric", cubic_exclude=True),
        "scale-3-far": Resize2d(1, 100, 7, 300, 21),
        "lost-tie": Resize2d(1, 7, 7, 13, 13, "nearest_neighbor", "tf_half_pixel_for_nn", "round_prefer_floor"),
        "sharp-cubic": Resize2d(2, 9, 7, 24, 10, "cubic", "half_pixel", cubic_alpha=-1.0),
    }
    # Integer scales; fractional ones; up along one axis and down along the other.
    sizes = ((7, 5, 14, 20), (6, 9, 8, 21), (5, 12, 9, 4))
    for number, mode in enumerate(MODES):
        for rounding in ROUNDINGS:
            # Ties are frequent from 6 to 12 and from 10 to 5.
            name = f"nearest-{mode}-{rounding or 'default'}"
            cases[name] = Resize2d(2, 6, 10, 12, 5, "nearest_neighbor", mode, rounding)  # type: ignore[arg-type]
        shape = sizes[number % 3]
        for method, exclude in (("linear", False), ("cubic", False), ("cubic", True)):
            name = f"{method}-{mode}" + ("-excluded" if exclude else "")
            cases[name] = Resize2d(
                2,
                *shape,
                method,  # type: ignore[arg-type]
                mode,  # type: ignore[arg-type]
                cubic_alpha=-0.5,
                cubic_exclude=exclude,
            )
            shape = sizes[(sizes.index(shape) + 1) % 3]
    return cases


CASES = _cases()

# Chunks of the first are resizes of slices; those of the second are not, as their scales have no common divisor or are
# none that float32 holds.
SLICED = {"a06-linear", "a06-nearest", "a07", "linear-asymmetric", "nearest-half_pixel-round"}
NEVER_SLICED = {"lost-tie", "cubic-half_pixel", "nearest-align_corners-round"}
# Enough to see every way to write a chunk, where building is slow.
FEW = SLICED | NEVER_SLICED | {"one-input", "nearest-tf_half_pixel_for_nn-round", "linear-tf_half_pixel_for_nn"}


def cases(**generation: Any) -> dict[str, Resize2d]:
    """All cases for a generation of TVM, whose ``ties`` and ``whole_scale_floors`` are given."""
    return {name: replace(op, **generation) for name, op in CASES.items()}


def inputs(ops: dict[str, Resize2d]) -> list[Array]:
    random = np.random.default_rng(3)
    return [random.standard_normal((1, op.in_channels, op.in_rows, op.in_cols), dtype="float32") for op in ops.values()]


def blend(data: Array, table: AxisTable, axis: int) -> Array:
    """One axis of an NCHW map resized by its table."""
    weights = np.zeros((len(table.first), data.shape[axis]), np.float32)
    for out, (first, taps) in enumerate(zip(table.first, table.weights, strict=True)):
        weights[out, first : first + len(taps)] = taps
    return np.moveaxis(np.tensordot(weights, data, axes=(1, axis)), 0, axis)


def apply_tables(op: Resize2d, data: Array) -> Array:
    return blend(blend(data, op.cols, 3), op.rows, 2)


def check_whole(op: Resize2d, data: Array, result: Array) -> None:
    """A result of TVM against the tables: nearest exactly, else to 1e-5 of the largest value."""
    expected = apply_tables(op, data)
    assert result.shape == expected.shape == (1, op.out_channels, op.out_rows, op.out_cols)
    if op.method == "nearest_neighbor":
        np.testing.assert_array_equal(result, expected)
    else:
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5 * float(np.abs(data).max()))


def chunks(op: Resize2d) -> list[Range]:
    """First, middle and last of the output rows in chunks of 5."""
    outs = cut(op.out_rows, 5)
    return [outs[number] for number in sorted({0, len(outs) // 2, len(outs) - 1})]


def check_chunk(op: Resize2d, out: Range, result: Array, whole: Array, exact: bool) -> None:
    """A chunk written in TVM's ops against the same rows of TVM's own result: bit by bit, or to some ulp."""
    expected = whole[:, :, out.start : out.stop]
    tolerance = 0.0 if exact else 1e-6 * float(np.abs(whole).max())
    np.testing.assert_allclose(result, expected, rtol=0, atol=tolerance, err_msg=f"{op} rows {out}")


def of_tap(taps: AxisTaps, tap: int, axis: int) -> tuple[NDArray[np.int32], Array]:
    """Indices of one tap, and its weights shaped to be broadcast along an axis of an NCHW map."""
    shape = [1, 1, 1, 1]
    shape[axis] = -1
    return np.array(taps.indices[tap], np.int32), np.array(taps.weights[tap], np.float32).reshape(shape)
