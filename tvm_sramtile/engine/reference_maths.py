"""What the compute commands of the numpy reference do with values: no addresses, no memory.

Maps are [channel, row, col]. Sums are added up in float32, in the order of the taps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_sramtile.isa import Command, Function, Pooling

Array = NDArray[Any]
Entries = NDArray[Any]  # of a table: [output, tap], with the fields of ENTRY

ENTRY = np.dtype([("position", "<i4"), ("weight", "<f4")])
NO_TAP = -1
_LOWEST = np.finfo(np.float32).min


def convolve(command: Command, inputs: Array, weights: Array, sums: Array) -> None:
    """Add to the sums, tap by tap and group by group; taps outside the map are skipped."""
    groups = command["groups"]
    ins, outs = len(inputs) // groups, len(sums) // groups
    for row, col, into, read in _taps(command, inputs, sums):
        for group in range(groups):
            own = slice(group * outs, (group + 1) * outs)
            into[own] += np.tensordot(weights[own, :, row, col], read[group * ins : (group + 1) * ins], axes=1)


def pool(command: Command, inputs: Array, shape: tuple[int, int, int]) -> Array:
    """The pooled map of ``shape``; ``inputs`` has no rows or columns where the window lies wholly in padding."""
    kind = Pooling(command["pooling"])
    pooled = np.full(shape, _LOWEST if kind is Pooling.MAX else 0, np.float32)
    counts = np.zeros(shape[1:], np.float32)
    for (_, _, into, read), (_, _, count, _) in zip(
        _taps(command, inputs, pooled), _taps(command, inputs, counts[np.newaxis]), strict=True
    ):
        into[...] = np.maximum(into, read) if kind is Pooling.MAX else into + read
        count += 1
    if kind is Pooling.AVERAGE_ALL:
        pooled /= np.float32(command["kernel_rows"] * command["kernel_cols"])
    elif kind is Pooling.AVERAGE_VALID:
        pooled /= np.maximum(counts, 1)
    return pooled


def _taps(command: Command, inputs: Array, outputs: Array) -> Iterator[tuple[int, int, Array, Array]]:
    """Each tap of the window: its row and col, the outputs for which it lies within the map, and what they read."""
    for row in range(command["kernel_rows"]):
        out_rows, in_rows = _reads(command, "rows", row, command["pad_top"], inputs.shape[1], outputs.shape[1])
        for col in range(command["kernel_cols"]):
            out_cols, in_cols = _reads(command, "cols", col, command["pad_left"], inputs.shape[2], outputs.shape[2])
            yield row, col, outputs[:, out_rows, out_cols], inputs[:, in_rows, in_cols]


def _reads(command: Command, axis: str, tap: int, pad: int, size: int, outs: int) -> tuple[slice, slice]:
    """The outputs along an axis whose tap lies within the map, and the positions that they read."""
    stride, shift = command[f"stride_{axis}"], tap * command[f"dilation_{axis}"] - pad
    within = [out for out in range(outs) if 0 <= out * stride + shift < size]
    if not within:
        return slice(0, 0), slice(0, 0)
    start, last = within[0], within[-1]
    return slice(start, last + 1), slice(start * stride + shift, last * stride + shift + 1, stride)


def resize(inputs: Array, rows: Entries, cols: Entries, first_row: int, first_col: int) -> Array:
    """The map whose rows, and then columns, are the sums that the tables say.

    Args:
        inputs: the map.
        rows: the entries of the row table; a position of -1 is no tap.
        cols: the entries of the column table.
        first_row: the position, in the table, of the map's first row.
        first_col: the position of its first column.

    Raises:
        IndexError: a position that is outside the map.
    """
    return _blend(_blend(inputs, rows, first_row, axis=1), cols, first_col, axis=2)


def _blend(inputs: Array, entries: Entries, first: int, axis: int) -> Array:
    size = inputs.shape[axis]
    blended = np.zeros((*inputs.shape[:axis], len(entries), *inputs.shape[axis + 1 :]), np.float32)
    for output, tap in zip(*np.nonzero(entries["position"] != NO_TAP), strict=True):
        entry = entries[output, tap]
        if not first <= entry["position"] < first + size:
            raise IndexError(f"position {entry['position']}: the map has {first}-{first + size}")
        before = (slice(None),) * axis
        blended[(*before, output)] += inputs[(*before, entry["position"] - first)] * entry["weight"]
    return blended


UNARY: Mapping[Function, Callable[[Array, np.float32, np.float32], Array]] = {
    Function.COPY: lambda a, v, w: a,
    Function.CLIP: lambda a, v, w: np.minimum(np.maximum(a, v), w),
    Function.LEAKY_RELU: lambda a, v, w: np.where(a > 0, a, a * v),
    Function.SIGMOID: lambda a, v, w: 1 / (1 + np.exp(-a)),
    Function.TANH: lambda a, v, w: np.tanh(a),
    Function.EXP: lambda a, v, w: np.exp(a),
    Function.SQRT: lambda a, v, w: np.sqrt(a),
    Function.ABS: lambda a, v, w: np.abs(a),
    Function.NEGATIVE: lambda a, v, w: -a,
    Function.SILU: lambda a, v, w: a / (1 + np.exp(-a)),
    Function.HARD_SWISH: lambda a, v, w: a * np.minimum(np.maximum(a + 3, 0), 6) / 6,
}

BINARY: Mapping[Function, Callable[[Array, Array], Array]] = {
    Function.ADD: lambda a, b: a + b,
    Function.SUBTRACT: lambda a, b: a - b,
    Function.REVERSE_SUBTRACT: lambda a, b: b - a,
    Function.MULTIPLY: lambda a, b: a * b,
    Function.DIVIDE: lambda a, b: a / b,
    Function.REVERSE_DIVIDE: lambda a, b: b / a,
    Function.MAXIMUM: lambda a, b: np.maximum(a, b),
    Function.MINIMUM: lambda a, b: np.minimum(a, b),
    Function.PRELU: lambda a, b: np.where(a > 0, a, a * b),
}
