"""What lies in SRAM at a time, and what is loaded into it. Part of the proof of plans; see ``check_plan``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose, Elementwise, Resize2d
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Step, dtype_bytes

Counts = NDArray[np.int64]

_ENTRY_BYTES = 8  # of a table: a position and a weight


@dataclass(frozen=True, slots=True)
class Extents:
    """Of what lies in SRAM at a time; ``group_channels`` are the input channels of one group, and of ``held_channels``
    there are the weights and vectors.
    """

    out_rows: int
    out_cols: int
    out_channels: int
    held_channels: int
    in_rows: int
    in_cols: int
    in_channels: int
    group_channels: int
    taps: int


@dataclass(frozen=True, slots=True)
class Needs:
    """The memory and the bytes, by name, of all that must lie in SRAM."""

    terms: Mapping[str, tuple[str, int]]

    def used(self, memory: str) -> int:
        """Bytes in one memory."""
        return sum(size for place, size in self.terms.values() if place == memory)


def map_bytes(spec: AcceleratorSpec, rows: int, cols: int, channels: int, dtype: str) -> int:
    """Formula (1)."""
    extents = ((rows, spec.lines), (cols, spec.column_align), (channels, spec.channel_align))
    return math.prod(len(range(0, count, group)) * group for count, group in extents) * dtype_bytes(dtype)


def needs_of(step: Step, spec: AcceleratorSpec, at_once: Extents) -> Needs:
    """What must lie in SRAM for a chunk of these extents."""
    op, dtype = step.op, step.data.dtype
    memory = {name: "pool" if spec.sram_bytes is not None else name for name in ("input", "weight", "output")}
    small: dict[str, int] = {}
    if step.weight is not None:
        lanes = len(range(0, at_once.held_channels, spec.channel_align)) * spec.channel_align
        small["weights"] = lanes * at_once.group_channels * at_once.taps * dtype_bytes(step.weight.dtype)
    if isinstance(op, Resize2d):
        small["row table"] = at_once.out_rows * max(map(len, op.rows.weights)) * _ENTRY_BYTES
        small["col table"] = at_once.out_cols * max(map(len, op.cols.weights)) * _ENTRY_BYTES
    for name in vector_names(step):
        small[name] = map_bytes(spec, 1, 1, at_once.held_channels, dtype)
    source = map_bytes(spec, at_once.in_rows, at_once.in_cols, at_once.in_channels, dtype)
    result = map_bytes(spec, at_once.out_rows, at_once.out_cols, at_once.out_channels, step.output.dtype)
    terms = {name: (memory["weight"], size) for name, size in small.items()}
    terms["input"] = (memory["input"], source)
    if isinstance(op, Elementwise) and op.partner == "map":
        terms["other"] = (memory["input"], source)
    terms["output"] = (memory["output"], result)
    own = spec.accumulator_bytes is not None
    if isinstance(op, Conv2d | Conv2dTranspose) and (own or dtype_bytes(step.output.dtype) != 4):
        sums = map_bytes(spec, at_once.out_rows, at_once.out_cols, at_once.out_channels, "int32")
        terms["accumulators"] = ("accumulator" if own else memory["output"], sums)
    return Needs(terms)


def vector_names(step: Step) -> list[str]:
    """The buffers of what has one value a channel."""
    names = [] if step.bias is None else ["bias"]
    if isinstance(step.op, Elementwise) and step.op.partner == "vector":
        names.append("vector")
    return names + [f"vector {at}" for at, one in enumerate(step.activations) if one.vector is not None]


def map_loads(
    ranges: Sequence[Sequence[tuple[int, int]]], rows: Counts, cols: Counts, turns: Counts, *, rolled: bool
) -> tuple[Counts, Counts]:
    """What fills a map's buffer, in order: (channels, positions in a channel that are loaded) of each fill.

    A fill takes place for each chunk and each part of its channels, unless it has no rows or columns, or would bring
    just what the one before it brought. Where maps are rolled, rows that the one before it brought are not loaded.

    Args:
        ranges: by chunk of channels, the parts (start, stop) of the input's channels that are loaded one by one.
        rows: [chunk, (start, stop)].
        cols: likewise.
        turns: the chunks in the order of execution; see ``executed``.
        rolled: whether rows are kept.
    """
    parts = np.array(ranges, np.int64)  # [chunk, part, (start, stop)]
    shape = (len(parts), len(rows), len(cols), parts.shape[1])
    part_ids, col_ids = _identity(parts.reshape(-1, 2)).reshape(parts.shape[:2]), _identity(cols)

    def listed(values: Counts) -> Counts:
        """One value for each chunk and part, in the order of execution."""
        return np.broadcast_to(values, shape).reshape(-1, shape[3])[turns].reshape(-1)

    others = listed(part_ids[:, None, None, :] * len(cols) + col_ids[None, None, :, None])  # all but the rows
    channels = listed((parts[..., 1] - parts[..., 0])[:, None, None, :])
    widths = listed((cols[:, 1] - cols[:, 0])[None, None, :, None])
    starts, stops = (listed(rows[:, end][None, :, None, None]) for end in (0, 1))
    there = (stops > starts) & (widths > 0)
    others, channels, widths, starts, stops = (one[there] for one in (others, channels, widths, starts, stops))
    alike = others[1:] == others[:-1]
    new = np.ones(len(others), np.bool_)
    new[1:] = ~(alike & (starts[1:] == starts[:-1]) & (stops[1:] == stops[:-1]))
    loaded = stops - starts
    if rolled:
        goes_on = alike & (starts[1:] >= starts[:-1])
        firsts = np.minimum(np.maximum(starts[1:], stops[:-1]), stops[1:])  # the first row that is not there
        loaded[1:] = np.where(goes_on, stops[1:] - firsts, loaded[1:])
    return channels[new], (loaded * widths)[new]


def executed(counts: Sequence[int], order: Sequence[int], together: int) -> Counts:
    """The chunks, numbered as in an array [channels, rows, columns], in the order of execution.

    Args:
        counts: chunks of channels (0), rows (1) and columns (2).
        order: the loops over them, the outermost first.
        together: the loop over channels takes so many at a time, which take turns in the innermost loop.
    """
    at = np.indices(counts).reshape(3, -1)
    shelf = at[0] // together
    loops = [shelf if axis == 0 else at[axis] for axis in order]
    return np.asarray(np.lexsort((at[0], *reversed(loops))), np.int64)


def turns_of(places: Counts, turns: Counts) -> Counts:
    """The chunks along one axis in the order of execution, each time another one comes.

    Args:
        places: which of its chunks each chunk is in, as an array [channels, rows, columns].
        turns: the chunks in the order of execution.
    """
    ids = places.reshape(-1)[turns]
    return np.asarray(ids[np.append(True, ids[1:] != ids[:-1])], np.int64)


def _identity(ranges: Counts) -> Counts:
    """A number for each range, the same for equal ones."""
    return np.unique(ranges, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
