"""Large kernels: formulas (5) and (6) by brute force, and splits that spend no more than the seed's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from core import oracle

from tvm_sramtile.geometry import SubKernel, best_split, seed_split
from tvm_sramtile.ints import Range

UNIT_SETS = (
    ((1, 1),),
    ((3, 3),),
    ((2, 3),),
    ((3, 1), (1, 3)),
    ((1, 1), (3, 3)),
    ((1, 1), (2, 2), (5, 3)),
    ((2, 2), (3, 3), (4, 1)),
    ((7, 7), (1, 1)),
)


def taps_of(part: SubKernel) -> list[tuple[int, int]]:
    return list(product(range(part.rows.start, part.rows.stop), range(part.cols.start, part.cols.stop)))


def assert_splits(kernel: tuple[int, int], units: Sequence[tuple[int, int]], parts: Sequence[SubKernel]) -> None:
    """Each tap of the kernel is in one part, and each part within its unit."""
    taps = Counter(tap for part in parts for tap in taps_of(part))
    assert taps == Counter(product(range(kernel[0]), range(kernel[1])))
    for part in parts:
        assert part.unit in units
        assert 0 < len(part.rows) <= part.unit[0]
        assert 0 < len(part.cols) <= part.unit[1]
        assert part.unit_taps == part.unit[0] * part.unit[1]


@pytest.mark.parametrize("units", UNIT_SETS)
def test_splits_exhaustively(units: tuple[tuple[int, int], ...]) -> None:
    for kernel in product(range(1, 12), range(1, 12)):
        seed, best = seed_split(kernel, units), best_split(kernel, units)
        assert_splits(kernel, units, seed)
        assert_splits(kernel, units, best)
        assert sum(part.unit_taps for part in best) <= sum(part.unit_taps for part in seed)
        if kernel in units:
            assert seed == best == (SubKernel(Range(0, kernel[0]), Range(0, kernel[1]), kernel),)
        if (1, 1) in units and kernel not in units:
            assert sum(part.unit_taps for part in best) == kernel[0] * kernel[1]


@pytest.mark.parametrize("units", [((3, 3),), ((2, 3),), ((1, 4),), ((2, 2),)])
def test_the_seed_split_is_formula_5(units: tuple[tuple[int, int], ...]) -> None:
    """The kernel, padded on its left and bottom up to a grid of units, whose cells are the sub-kernels."""
    unit = units[0]
    for kernel in product(range(1, 9), range(1, 9)):
        out_h, out_w = (-(-k // u) * u for k, u in zip(kernel, unit, strict=True))
        padded = np.full((out_h, out_w), -1)
        padded[: kernel[0], out_w - kernel[1] :] = np.arange(kernel[0] * kernel[1]).reshape(kernel)
        cells = []
        for row, col in product(range(0, out_h, unit[0]), range(0, out_w, unit[1])):
            cell = padded[row : row + unit[0], col : col + unit[1]]
            cells.append(sorted(cell[cell >= 0].tolist()))
        found = [sorted(row * kernel[1] + col for row, col in taps_of(part)) for part in seed_split(kernel, units)]
        assert found == cells


def test_sub_kernels_on_the_padded_map_are_formula_6() -> None:
    """Rows and columns of the padded map on which sub-kernel (i, j) works, for any stride and dilation.

    The map gets as much more on its left and bottom as the kernel; a sub-kernel without pads on its part of that map
    yields the full output, and all of them add up to the convolution.
    """
    rng = np.random.default_rng(0)
    unit = (2, 3)
    for kernel, strides, dilation in product(((3, 5), (4, 4), (5, 3)), ((1, 1), (2, 3)), ((1, 1), (2, 1), (1, 3))):
        data = rng.standard_normal((1, 2, 13, 16), np.float32)
        weight = rng.standard_normal((3, 2, *kernel), np.float32)
        expected = oracle.conv2d(data, weight, strides=strides, dilation=dilation)
        out_h, out_w = (-(-k // u) * u for k, u in zip(kernel, unit, strict=True))
        below, left = (out_h - kernel[0]) * dilation[0], (out_w - kernel[1]) * dilation[1]
        grown = np.pad(data, ((0, 0), (0, 0), (0, below), (left, 0)))
        padded = np.pad(weight, ((0, 0), (0, 0), (0, out_h - kernel[0]), (out_w - kernel[1], 0)))
        total = np.zeros_like(expected)
        shares = np.zeros_like(expected)
        parts = seed_split(kernel, [unit])
        for part, (i, j) in zip(parts, np.ndindex(out_h // unit[0], out_w // unit[1]), strict=True):
            rows = slice(i * unit[0] * dilation[0], grown.shape[2] - (out_h - (i + 1) * unit[0]) * dilation[0])
            cols = slice(j * unit[1] * dilation[1], grown.shape[3] - (out_w - (j + 1) * unit[1]) * dilation[1])
            cell = padded[:, :, i * unit[0] : (i + 1) * unit[0], j * unit[1] : (j + 1) * unit[1]]
            share = oracle.conv2d(grown[:, :, rows, cols], cell, strides=strides, dilation=dilation)
            assert share.shape == expected.shape
            total += share
            # The same by the real taps alone, on the map as it is.
            own = np.zeros_like(weight)
            for row, col in taps_of(part):
                own[:, :, row, col] = weight[:, :, row, col]
            shares += oracle.conv2d(data, own, strides=strides, dilation=dilation)
        np.testing.assert_allclose(total, expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(shares, expected, rtol=1e-4, atol=1e-4)


def least_taps(kernel: tuple[int, int], units: Sequence[tuple[int, int]]) -> int:
    """The fewest taps that a guillotine cut into units spends, cuts at any place."""
    best: dict[tuple[int, int], int] = {}
    for rows, cols in product(range(1, kernel[0] + 1), range(1, kernel[1] + 1)):
        costs = [u[0] * u[1] for u in units if rows <= u[0] and cols <= u[1]]
        costs += [best[at, cols] + best[rows - at, cols] for at in range(1, rows)]
        costs += [best[rows, at] + best[rows, cols - at] for at in range(1, cols)]
        best[rows, cols] = min(costs)
    return best[kernel]


@pytest.mark.parametrize("units", UNIT_SETS)
def test_the_best_split_spends_least_of_all_guillotine_cuts(units: tuple[tuple[int, int], ...]) -> None:
    for kernel in product(range(1, 10), range(1, 10)):
        if kernel not in units:
            assert sum(part.unit_taps for part in best_split(kernel, units)) == least_taps(kernel, units)


def test_a_kernel_of_a_real_network() -> None:
    """3x39 and 1x256 of basicpitch."""
    units = ((1, 1), (3, 3))
    assert len(best_split((3, 39), units)) == len(seed_split((3, 39), units)) == 13
    assert_splits((1, 256), units, best_split((1, 256), units))
    assert sum(part.unit_taps for part in best_split((1, 256), units)) == 256
    assert sum(part.unit_taps for part in seed_split((1, 256), units)) == 86 * 9
