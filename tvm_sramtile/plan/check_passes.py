"""Whether a plan's passes compute each tap of a kernel once. Part of the proof of plans; see ``check_plan``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import numpy as np

from tvm_sramtile.ints import Range
from tvm_sramtile.plan.plan import KernelPass

Fail = Callable[[str], NoReturn]
Unit = tuple[int, int]
Phases = Mapping[int, Sequence[int]]

_NO_TAPS = Range(0, 0)


def check_passes(passes: Sequence[KernelPass], rows: Phases, cols: Phases, units: Sequence[Unit], fail: Fail) -> None:
    """Prove that the taps of each pair of phases are in one pass each, on units that are there, for the seed's cost.

    Args:
        passes: of the plan.
        rows: the taps of each phase that has outputs.
        cols: likewise.
        units: the unit kernels.
        fail: told the first fault.
    """
    found: dict[Unit, list[tuple[int, KernelPass]]] = {(row, col): [] for row in rows for col in cols}
    for index, one in enumerate(passes):
        phase = (one.row_phase, one.col_phase)
        if phase not in found:
            fail(f"pass {index}: no output has the phases {phase}")
        found[phase].append((index, one))
    for (row, col), parts in found.items():
        kernel = (len(rows[row]), len(cols[col]))
        if all(kernel):
            _check_taps(parts, kernel, units, f"phases {(row, col)}", fail)
        else:
            _check_no_taps([one for _, one in parts], f"phases {(row, col)}", fail)


def _check_no_taps(parts: Sequence[KernelPass], what: str, fail: Fail) -> None:
    if len(parts) != 1:
        fail(f"{what} have no taps, which is one pass: they have {len(parts)}")
    for part in parts:
        if (part.rows, part.cols, part.unit) != (_NO_TAPS, _NO_TAPS, (1, 1)):
            fail(f"{what} have no taps: the pass has rows {part.rows}, cols {part.cols} and the unit {part.unit}")


def _check_taps(
    parts: Sequence[tuple[int, KernelPass]], kernel: Unit, units: Sequence[Unit], what: str, fail: Fail
) -> None:
    times = np.zeros(kernel, np.int64)
    spent = 0
    for index, part in parts:
        taps = (len(part.rows), len(part.cols))
        if part.unit not in units:
            fail(f"pass {index}: {part.unit} is no unit kernel: units are {list(units)}")
        if not (all(taps) and taps[0] <= part.unit[0] and taps[1] <= part.unit[1]):
            fail(f"pass {index}: {taps[0]}x{taps[1]} taps on a unit of {part.unit[0]}x{part.unit[1]}")
        if min(part.rows.start, part.cols.start) < 0 or part.rows.stop > kernel[0] or part.cols.stop > kernel[1]:
            fail(f"pass {index}: taps {part.rows}, {part.cols} of {what}, which have {kernel[0]}x{kernel[1]}")
        times[part.rows.start : part.rows.stop, part.cols.start : part.cols.stop] += 1
        spent += part.unit[0] * part.unit[1]
    for row, col in np.argwhere(times != 1):
        fail(f"{what}: tap {(int(row), int(col))} is in {int(times[row, col])} passes, must be in one")
    if spent > _seed_taps(kernel, units):
        fail(f"{what}: {spent} taps of units are spent, the seed's split takes {_seed_taps(kernel, units)}")


def _seed_taps(kernel: Unit, units: Sequence[Unit]) -> int:
    """What the seed spends, formula (5): the kernel rounded up to a grid of the largest unit."""
    if kernel in units:
        return kernel[0] * kernel[1]
    _, rows, cols = max((rows * cols, rows, cols) for rows, cols in units)
    return len(range(0, kernel[0], rows)) * len(range(0, kernel[1], cols)) * rows * cols
