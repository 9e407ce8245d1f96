"""One axis of a resize: which positions of the map an output position blends, and with which weights.

The formulas and their order of operations are those of TVM's ``topi/image/resize.py`` (``get_inx``,
``get_closest_index``, ``_cubic_spline_weights``, ``_resize_2d``). TVM evaluates them in float32, so the tables do too:
with exact coordinates a position that lies on a tie, or on an integer, would at times go to another neighbour than
TVM's. Scales come from the extents of the whole map, whatever part of it is asked for.

The equality is that of code without fused multiply-add, TVM's for a plain ``llvm`` target. Where a target has it
(``-mcpu=haswell``), LLVM fuses, and TVM's half-pixel coordinates differ in their last bit: rarely on a tie of nearest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tvm_sramtile.ints import Range, ceil_div

Method = Literal["nearest_neighbor", "linear", "cubic"]
CoordinateMode = Literal["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn"]
Rounding = Literal["", "round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
Ties = Literal["even", "away"]

_Float = NDArray[np.float32]
_Int = NDArray[np.int64]

# TVM keeps floor and ceil this far from integers, against rounding errors of its coordinates.
_EPSILON = np.float32(1e-5)
# TVM divides integers only where (out + out/size) * 1e-5 is at most 1 (``can_convert_multiply_to_intdiv``).
_INTEGER_DIVISION_EPSILON = 1e-5


@dataclass(frozen=True, slots=True)
class Sampling:
    """How positions are found and weighed: all that both axes share.

    Attributes:
        rounding: of nearest_neighbor; "" is "round" with align_corners, else "floor".
        cubic_alpha: the spline's coefficient.
        cubic_exclude: taps outside the map get no weight, and the others are scaled to a sum of 1.
        ties: where "round" takes a coordinate halfway between two positions, to the even one or away from zero.
        whole_scale_floors: asymmetric nearest_neighbor to a multiple of the extent floors, whatever ``rounding`` says.
    """

    method: Method = "linear"
    mode: CoordinateMode = "half_pixel"
    rounding: Rounding = ""
    cubic_alpha: float = -0.75
    cubic_exclude: bool = False
    ties: Ties = "even"
    whole_scale_floors: bool = False


@dataclass(frozen=True, slots=True)
class AxisTaps:
    """The taps of a range of outputs in TVM's order: ``out[o] = sum over t of data[indices[t][o]] * weights[t][o]``.

    1, 2 or 4 taps. Those outside the map are moved to its border, so an index may occur twice for one output. Adding
    the products in the order of the taps, in float32, is the computation that TVM does.
    """

    indices: tuple[tuple[int, ...], ...]
    weights: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class AxisTable:
    """The distinct positions that each output reads: ``out[o] = sum over t of data[first[o] + t] * weights[o][t]``.

    Weights are float32 values. There are 1 to 4 of them for an output: taps that TVM moves to the map's border are
    added up there, so all positions lie in the map. Taps of weight 0 count as read, as TVM reads them.
    """

    first: tuple[int, ...]
    weights: tuple[tuple[float, ...], ...]

    @property
    def taps(self) -> int:
        """The largest number of positions that one output reads."""
        return max(map(len, self.weights))

    def window(self, out: Range) -> Range:
        """The least range of positions that holds all that the outputs ``out`` read; empty for an empty ``out``."""
        if not len(out):
            return Range(0, 0)
        # Neither end of the taps ever moves back from one output to the next: coordinates do not, in float32 either.
        last = out.stop - 1
        return Range(self.first[out.start], self.first[last] + len(self.weights[last]))


@dataclass(frozen=True, slots=True)
class AxisSlice:
    """A range of outputs as the same resize of a slice of the map, and a crop of its result.

    Attributes:
        read: positions of the map to slice.
        out_size: extent that the slice is resized to.
        crop: the outputs wanted, counted in the resized slice.
    """

    read: Range
    out_size: int
    crop: Range


def _divides_integers(size: int, out_size: int, sampling: Sampling) -> bool:
    """Whether TVM finds the position by integer division, without any float."""
    if sampling.method != "nearest_neighbor" or sampling.mode != "asymmetric" or out_size % size:
        return False
    if sampling.rounding not in ("", "floor") and not sampling.whole_scale_floors:
        return False
    return out_size / size <= 1 / (_INTEGER_DIVISION_EPSILON * size + _INTEGER_DIVISION_EPSILON)


def _coordinates(size: int, out_size: int, mode: CoordinateMode) -> _Float:
    """The place in the map of every output position.

    One output with align_corners, where TVM divides by zero, is the first position, as in ONNX and PyTorch.
    """
    half = np.float32(0.5)
    out = np.arange(out_size).astype(np.float32)
    scale = np.float32(size) / np.float32(out_size)
    if mode == "align_corners":
        return (np.float32(size - 1) / np.float32(max(1, out_size - 1))) * out
    if mode == "asymmetric":
        return scale * out
    if mode == "tf_half_pixel_for_nn":
        return (out + half) * scale
    if mode == "pytorch_half_pixel" and out_size == 1:
        return np.zeros(1, np.float32)
    return (out + half) * scale - half


def _nearest(place: _Float, sampling: Sampling) -> _Int:
    """The position that each coordinate is rounded to; it may lie outside the map."""
    half = np.float32(0.5)
    rounded: _Float
    rounding = sampling.rounding or ("round" if sampling.mode == "align_corners" else "floor")
    if rounding == "round_prefer_floor":
        rounded = np.ceil(place - half)
    elif rounding == "round_prefer_ceil":
        rounded = np.floor(place + half)
    elif rounding == "floor":
        rounded = np.floor(place + _EPSILON)
    elif rounding == "ceil":
        rounded = np.ceil(place - _EPSILON)
    elif sampling.ties == "even":
        rounded = np.rint(place)
    else:
        # Not floor(|x| + 0.5): the sum can round up to the next integer where |x| is just below a tie.
        down = np.trunc(place)
        rounded = np.where(np.abs(place - down) >= half, down + np.copysign(np.float32(1), place), down)
    return rounded.astype(np.int64)


def _cubic_weights(fraction: _Float, below: _Int, size: int, sampling: Sampling) -> _Float:
    """[tap, output] weights of the positions ``below - 1`` to ``below + 2``."""
    # A float32 array times a Python number stays float32 in every numpy, and rounds the number first, as TVM does.
    alpha, t = sampling.cubic_alpha, fraction
    t2, t3 = t * t, t * t * t
    weights = np.stack(
        [
            alpha * (t3 - 2 * t2 + t),
            (alpha + 2) * t3 - (3 + alpha) * t2 + 1,
            -(alpha + 2) * t3 + (3 + 2 * alpha) * t2 - alpha * t,
            -alpha * t3 + alpha * t2,
        ]
    )
    if sampling.cubic_exclude:
        taps = below + np.arange(-1, 3)[:, np.newaxis]
        weights[(taps < 0) | (taps >= size)] = 0
        weights /= weights[0] + weights[1] + weights[2] + weights[3]
    return weights


@lru_cache(maxsize=64)
def _raw_taps(size: int, out_size: int, sampling: Sampling) -> tuple[_Int, _Float]:
    """[tap, output] positions, moved into the map, and weights. Not to be written to."""
    if _divides_integers(size, out_size, sampling):
        taps = (np.arange(out_size) // (out_size // size))[np.newaxis]
        return taps, np.ones(taps.shape, np.float32)
    place = _coordinates(size, out_size, sampling.mode)
    if sampling.method == "nearest_neighbor":
        taps = _nearest(place, sampling)[np.newaxis]
        weights = np.ones(taps.shape, np.float32)
    else:
        floor = np.floor(place)
        below, fraction = floor.astype(np.int64), place - floor
        if sampling.method == "linear":
            taps, weights = np.stack([below, below + 1]), np.stack([1 - fraction, fraction])
        else:
            taps = below + np.arange(-1, 3)[:, np.newaxis]
            weights = _cubic_weights(fraction, below, size, sampling)
    return np.clip(taps, 0, size - 1), weights


@lru_cache(maxsize=64)
def axis_table(size: int, out_size: int, sampling: Sampling) -> AxisTable:
    """The table of a whole axis of ``size`` positions resized to ``out_size``; both are at least 1."""
    taps, weights = _raw_taps(size, out_size, sampling)
    first, counts = taps[0], taps[-1] - taps[0] + 1
    sums = np.zeros(taps.shape[::-1])
    np.add.at(sums, (np.arange(out_size), taps - first), weights)
    kept = tuple(tuple(row[:count].tolist()) for row, count in zip(sums.astype(np.float32), counts, strict=True))
    return AxisTable(tuple(first.tolist()), kept)


def axis_taps(size: int, out_size: int, sampling: Sampling, out: Range) -> AxisTaps:
    """The taps of the outputs ``out``, counted from the first position that they read (``AxisTable.window``)."""
    taps, weights = _raw_taps(size, out_size, sampling)
    start = axis_table(size, out_size, sampling).window(out).start
    kept = slice(out.start, out.stop)
    indices = (taps[:, kept] - start).tolist()
    return AxisTaps(tuple(map(tuple, indices)), tuple(map(tuple, weights[:, kept].tolist())))


def _aligned_slice(size: int, out_size: int, sampling: Sampling, out: Range) -> AxisSlice:
    """The least slice on the resize's grid that holds what the outputs ``out`` (not empty) read and yields them.

    A resize looks the same from every ``period`` positions, that is ``out_period`` outputs, on. A slice of whole
    periods has the scale of the whole map, a ratio of extents; with align_corners it is one of extents less 1.
    """
    extra = 1 if sampling.mode == "align_corners" else 0
    periods = gcd(size - extra, out_size - extra)
    period, out_period = (size - extra) // periods, (out_size - extra) // periods
    window = axis_table(size, out_size, sampling).window(out)
    start = min(out.start // out_period, periods - 1)
    stop = max(start + 1, ceil_div(out.stop - extra, out_period))
    if period:  # align_corners of a single position has none
        start = min(start, window.start // period)
        stop = max(stop, ceil_div(window.stop - extra, period))
    read = Range(start * period, stop * period + extra)
    origin = start * out_period
    return AxisSlice(read, stop * out_period + extra - origin, Range(out.start - origin, out.stop - origin))


def axis_slice(size: int, out_size: int, sampling: Sampling, out: Range, tolerance: float = 0.0) -> AxisSlice | None:
    """The outputs ``out`` by a resize of a slice; ``None`` where that is not what the whole resize yields.

    Positions must be the same ones, and weights differ by at most ``tolerance``. With 0 TVM computes both alike, bit
    by bit; small tolerances matter to scales that float32 cannot hold, whose coordinates round according to their size.
    Also ``None`` where only the whole map would do as the slice although the outputs read less.
    """
    if not len(out) or (sampling.mode == "align_corners" and out_size == 1):
        return None
    piece = _aligned_slice(size, out_size, sampling, out)
    if len(piece.read) == size and len(axis_table(size, out_size, sampling).window(out)) < size:
        return None
    whole_taps, whole_weights = _raw_taps(size, out_size, sampling)
    taps, weights = _raw_taps(len(piece.read), piece.out_size, sampling)
    kept, crop = slice(out.start, out.stop), slice(piece.crop.start, piece.crop.stop)
    if not np.array_equal(whole_taps[:, kept], taps[:, crop] + piece.read.start):
        return None
    return piece if np.all(np.abs(whole_weights[:, kept] - weights[:, crop]) <= tolerance) else None
