"""What ``resize2d`` yields, pixel by pixel: independent of the package, and of TVM's own way to compute it.

Coordinates are exact fractions, so a tie is a tie. Weights come from interpolation kernels (a box, a triangle, the
cubic convolution kernel of R. Keys, 1981) as functions of the distance to a position, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]


def place_of(out: int, size: int, out_size: int, mode: str) -> Fraction:
    """Where in the map output position ``out`` lies."""
    if mode == "align_corners":  # the first output is the first position, the last is the last
        return Fraction(out * (size - 1), out_size - 1) if out_size > 1 else Fraction(0)
    if mode == "asymmetric":
        return Fraction(out * size, out_size)
    centre = Fraction((2 * out + 1) * size, 2 * out_size)  # of the output's pixel, in units of input pixels
    if mode == "tf_half_pixel_for_nn":
        return centre
    if mode == "half_pixel" or out_size > 1:
        return centre - Fraction(1, 2)
    return Fraction(0)  # pytorch_half_pixel with one output


def nearest_of(place: Fraction, rounding: str, mode: str, ties: str) -> int:
    """The position that a coordinate is rounded to; it may lie outside the map."""
    below, above = math.floor(place), math.ceil(place)
    rounding = rounding or ("round" if mode == "align_corners" else "floor")
    if rounding == "floor" or rounding == "ceil":
        return below if rounding == "floor" else above
    if place - below != Fraction(1, 2):
        return below if place - below < Fraction(1, 2) else above
    if rounding == "round":
        even = below if below % 2 == 0 else above
        return even if ties == "even" else (above if place > 0 else below)
    return below if rounding == "round_prefer_floor" else above


def triangle(distance: float) -> float:
    return max(0.0, 1.0 - distance)


def keys(alpha: float) -> Callable[[float], float]:
    def kernel(distance: float) -> float:
        d = distance
        if d <= 1:
            return (alpha + 2) * d**3 - (alpha + 3) * d**2 + 1
        return alpha * (d**3 - 5 * d**2 + 8 * d - 4) if d < 2 else 0.0

    return kernel


def axis(
    size: int,
    out_size: int,
    *,
    method: str,
    mode: str,
    rounding: str = "",
    alpha: float = -0.75,
    exclude: bool = False,
    ties: str = "even",
    whole_scale_floors: bool = False,
) -> Float:
    """[output, position] weights of one axis. A position outside the map counts for the map's border."""
    weights = np.zeros((out_size, size))
    if whole_scale_floors and method == "nearest_neighbor" and mode == "asymmetric" and out_size % size == 0:
        rounding = "floor"
    kernel = keys(alpha) if method == "cubic" else triangle
    for out in range(out_size):
        place = place_of(out, size, out_size, mode)
        if method == "nearest_neighbor":
            weights[out, min(max(nearest_of(place, rounding, mode, ties), 0), size - 1)] = 1
            continue
        for position in range(math.floor(place) - 2, math.floor(place) + 4):
            inside = 0 <= position < size
            if inside or not (method == "cubic" and exclude):
                weights[out, min(max(position, 0), size - 1)] += kernel(abs(float(place - position)))
        if method == "cubic" and exclude:
            weights[out] /= weights[out].sum()
    return weights


def resize2d(data: NDArray[np.float32], rows: Float, cols: Float) -> Float:
    """[image, channel, row, col] of a map, by the weights of its two axes."""
    resized: Float = np.einsum("yi,ncij,xj->ncyx", rows, data.astype(np.float64), cols, optimize=True)
    return resized
