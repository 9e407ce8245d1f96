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
    """Of what lies in SRAM at a time; ``group_channels`` are the input channels of one group."""

    out_rows: int
    out_cols: int
    out_channels: int
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
        lanes = len(range(0, at_once.out_channels, spec.channel_align)) * spec.channel_align
        small["weights"] = lanes * at_once.group_channels * at_once.taps * dtype_bytes(step.weight.dtype)
    if isinstance(op, Resize2d):
        small["row table"] = at_once.out_rows * max(map(len, op.rows.weights)) * _ENTRY_BYTES
        small["col table"] = at_once.out_cols * max(map(len, op.cols.weights)) * _ENTRY_BYTES
    for name in vector_names(step):
        small[name] = map_bytes(spec, 1, 1, at_once.out_channels, dtype)
    source = map_bytes(spec, at_once.in_rows, at_once.in_cols, at_once.in_channels, dtype)
    result = map_bytes(spec, at_once.out_rows, at_once.out_cols, at_once.out_channels, step.output.dtype)
    terms = {name: (memory["weight"], size) for name, size in small.items()}
    terms["input"] = (memory["input"], source)
    if isinstance(op, Elementwise) and op.partner == "map":
        terms["other"] = (memory["input"], source)
    terms["output"] = (memory["output"], result)
    if spec.accumulator_bytes is not None and isinstance(op, Conv2d | Conv2dTranspose):
        terms["accumulators"] = ("accumulator", result)
    return Needs(terms)


def vector_names(step: Step) -> list[str]:
    """The buffers of what has one value a channel."""
    names = [] if step.bias is None else ["bias"]
    if isinstance(step.op, Elementwise) and step.op.partner == "vector":
        names.append("vector")
    return names + [f"vector {at}" for at, one in enumerate(step.activations) if one.vector is not None]


def map_loads(ranges: Sequence[Sequence[tuple[int, int]]], rows: Counts, cols: Counts) -> tuple[Counts, Counts]:
    """The loads that fill a map's buffer, in order: (channels, positions in a channel) of each.

    A load takes place for each chunk of channels, rows and cols and each part of its channels, in this order, unless it
    has no rows or columns, or would bring just what the load before it brought.

    Args:
        ranges: by chunk of channels, the parts (start, stop) of the input's channels that are loaded one by one.
        rows: [chunk, (start, stop)].
        cols: likewise.
    """
    parts = np.array(ranges, np.int64)  # [chunk, part, (start, stop)]
    shape = (len(parts), len(rows), len(cols), parts.shape[1])
    part_ids, row_ids, col_ids = _identity(parts.reshape(-1, 2)), _identity(rows), _identity(cols)
    keys = part_ids.reshape(parts.shape[:2])[:, None, None, :] * len(rows) + row_ids[:, None, None]
    keys = (keys * len(cols) + col_ids[:, None]).reshape(-1)
    channels = np.broadcast_to((parts[..., 1] - parts[..., 0])[:, None, None, :], shape).reshape(-1)
    areas = (rows[:, 1] - rows[:, 0])[:, None, None] * (cols[:, 1] - cols[:, 0])[:, None]
    areas = np.broadcast_to(areas, shape).reshape(-1)
    kept = areas > 0
    keys, channels, areas = keys[kept], channels[kept], areas[kept]
    new = np.ones(len(keys), np.bool_)
    new[1:] = keys[1:] != keys[:-1]
    return channels[new], areas[new]


def _identity(ranges: Counts) -> Counts:
    """A number for each range, the same for equal ones."""
    return np.unique(ranges, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
