"""Large kernels cut into the accelerator's unit kernels: formulas (5) and (6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from tvm_sramtile.ints import Range, ceil_div

Unit = tuple[int, int]


@dataclass(frozen=True, slots=True)
class SubKernel:
    """A part of a kernel that one unit computes.

    Attributes:
        rows, cols: the kernel's own taps in it; the unit's other taps are padding and are skipped, never multiplied.
        unit: (rows, cols) of the unit kernel, what the array spends.
    """

    rows: Range
    cols: Range
    unit: Unit

    @property
    def unit_taps(self) -> int:
        """Taps that the array spends on it."""
        return self.unit[0] * self.unit[1]


def seed_split(kernel: Unit, units: Sequence[Unit]) -> tuple[SubKernel, ...]:
    """The seed's way: a grid of the largest unit, the kernel padded on its left and bottom up to formula (5).

    ``kernel_out = ceil(kernel / unit)*unit``; sub-kernel (i, j) then has the padded kernel's rows
    ``[i*unit, (i + 1)*unit)`` and columns alike. A kernel that is a unit stays whole.
    """
    if kernel in units:
        return (SubKernel(Range(0, kernel[0]), Range(0, kernel[1]), kernel),)
    unit = max(units, key=lambda pair: (pair[0] * pair[1], pair))
    left = ceil_div(kernel[1], unit[1]) * unit[1] - kernel[1]
    rows = [Range(start, min(start + unit[0], kernel[0])) for start in range(0, kernel[0], unit[0])]
    cols = [Range(max(0, start), start + unit[1]) for start in range(-left, kernel[1], unit[1])]
    return tuple(SubKernel(row, col, unit) for row in rows for col in cols)


def best_split(kernel: Unit, units: Sequence[Unit]) -> tuple[SubKernel, ...]:
    """The guillotine cut into units that spends the fewest taps, then has the fewest parts; never more than the seed's.

    Units of several sizes are mixed, and padding falls where it costs least.
    """
    if kernel in units:
        return seed_split(kernel, units)
    return min(_guillotine(kernel, tuple(units)), seed_split(kernel, units), key=_cost)


def _cost(parts: Sequence[SubKernel]) -> tuple[int, int]:
    return sum(part.unit_taps for part in parts), len(parts)


def _guillotine(kernel: Unit, units: tuple[Unit, ...]) -> tuple[SubKernel, ...]:
    @cache
    def cost(rows: int, cols: int) -> tuple[int, int, str, int]:
        """(taps, parts, what to do, where) of the best cut of a block; blocks are solved from small to large."""
        options = [(u[0] * u[1], 1, "unit", index) for index, u in enumerate(units) if rows <= u[0] and cols <= u[1]]
        for at in {unit[0] for unit in units if unit[0] < rows}:
            first, rest = cost(at, cols), cost(rows - at, cols)
            options.append((first[0] + rest[0], first[1] + rest[1], "rows", at))
        for at in {unit[1] for unit in units if unit[1] < cols}:
            first, rest = cost(rows, at), cost(rows, cols - at)
            options.append((first[0] + rest[0], first[1] + rest[1], "cols", at))
        return min(options)

    for rows in range(1, kernel[0] + 1):  # so that no call recurses deeply
        for cols in range(1, kernel[1] + 1):
            cost(rows, cols)
    parts: list[SubKernel] = []
    blocks = [(Range(0, kernel[0]), Range(0, kernel[1]))]
    while blocks:
        row, col = blocks.pop()
        _, _, what, where = cost(len(row), len(col))
        if what == "unit":
            parts.append(SubKernel(row, col, units[where]))
        elif what == "rows":
            at = row.start + where
            blocks += [(Range(row.start, at), col), (Range(at, row.stop), col)]
        else:
            at = col.start + where
            blocks += [(row, Range(col.start, at)), (row, Range(at, col.stop))]
    return tuple(sorted(parts, key=lambda part: (part.rows, part.cols)))
