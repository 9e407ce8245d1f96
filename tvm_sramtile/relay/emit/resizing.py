"""Resize: whole, or a chunk as the resize of a slice, else by taking rows and columns with weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from tvm import relay

from tvm_sramtile.geometry import Resize2d
from tvm_sramtile.geometry.resize_axis import AxisSlice, AxisTaps
from tvm_sramtile.ints import Range, cut
from tvm_sramtile.ir import Step
from tvm_sramtile.plan import Capacity, Charge, Chunk, Tile
from tvm_sramtile.relay.emit.site import Site
from tvm_sramtile.relay.graph import Node


def whole_resize(site: Site, op: Resize2d) -> Node:
    """The operator itself."""
    return _resize(site, op, site.map(site.step.data), (op.out_rows, op.out_cols))


def resize_chunk(site: Site, op: Resize2d, chunk: Chunk) -> Node:
    """A chunk, with the coordinates of the whole map.

    Along an axis where a slice has other coordinates than the whole, what the chunk reads is taken with its weights.
    """
    row_slice, col_slice = next(_slices(site, op, chunk))
    rows = chunk.row.read if row_slice is None else row_slice.read
    cols = chunk.col.read if col_slice is None else col_slice.read
    value = site.data_part(chunk.channels, rows, cols)
    if row_slice is not None or col_slice is not None:
        extents = [len(part) if s is None else s.out_size for s, part in ((row_slice, rows), (col_slice, cols))]
        value = _resize(site, op, value, (extents[0], extents[1]))
    crops = [
        (site.axis(letter), piece.crop)
        for letter, piece in (("H", row_slice), ("W", col_slice))
        if piece is not None and len(piece.crop) < piece.out_size
    ]
    value = site.sliced(value, crops)
    if row_slice is None:
        value = _taken(site, value, "H", op.row_taps(chunk.row.out))
    return value if col_slice is not None else _taken(site, value, "W", op.col_taps(chunk.col.out))


def _slices(site: Site, op: Resize2d, chunk: Chunk) -> Iterator[tuple[AxisSlice | None, AxisSlice | None]]:
    """The ways to do it: both axes by a slice where that is right and small enough; or only one; or none."""
    row, col = _axis_slice(op, 0, chunk.row.out), _axis_slice(op, 1, chunk.col.out)
    if row and col and site.fits(_tile(chunk, row, col)):
        yield row, col
    if row and op.leaves_rows(len(chunk.col.read)) and site.fits(_tile(chunk, row, None)):
        yield row, None
    if col and op.leaves_rows(len(chunk.row.read)) and site.fits(_tile(chunk, None, col)):
        yield None, col
    yield None, None


def _axis_slice(op: Resize2d, axis: int, out: Range) -> AxisSlice | None:
    """The outputs ``out`` along an axis by a resize of a slice; the whole axis is a slice too."""
    size, extent = (op.in_rows, op.in_cols)[axis], (op.out_rows, op.out_cols)[axis]
    if op.coordinate_transformation_mode == "align_corners" and extent == 1:
        return None  # TVM divides by zero
    if len(out) == extent:
        return AxisSlice(Range(0, size), extent, out)
    return op.col_slice(out) if axis else op.row_slice(out)


def _tile(chunk: Chunk, row: AxisSlice | None, col: AxisSlice | None) -> Tile:
    """What the resize of a slice takes."""
    rows, cols = (
        (len(span.read), len(span.read)) if piece is None else (len(piece.read), piece.out_size)
        for span, piece in ((chunk.row, row), (chunk.col, col))
    )
    channels = len(chunk.channels)
    return Tile(rows[1], cols[1], channels, rows[0], cols[0], channels, 0)


def _resize(site: Site, op: Resize2d, data: Node, size: tuple[int, int]) -> Node:
    return relay.image.resize2d(
        data,
        size,
        layout=site.layout,
        method=op.method,
        coordinate_transformation_mode=op.coordinate_transformation_mode,
        rounding_method=op.rounding_method,
        cubic_alpha=op.cubic_alpha,
        cubic_exclude=int(op.cubic_exclude),
    )


def _taken(site: Site, value: Node, letter: str, taps: AxisTaps) -> Node:
    """Rows or columns as the sum of those they are blended of."""
    axis = site.axis(letter)
    shape = tuple(-1 if at == axis else 1 for at in range(len(site.layout)))
    total = None
    for indices, weights in zip(taps.indices, taps.weights, strict=True):
        term = relay.take(value, relay.const(np.array(indices, np.int32)), axis)
        if any(weight != 1 for weight in weights):
            term = relay.multiply(term, relay.const(np.array(weights, site.dtype).reshape(shape)))
        total = term if total is None else relay.add(total, term)
    return total


@dataclass(frozen=True, slots=True)
class SliceCapacity:
    """A rule of what fits, for resizes that are done by slices: these read and yield more than the chunk needs."""

    rule: Capacity

    @property
    def name(self) -> str:
        """The rule's, as all that follows."""
        return self.rule.name

    @property
    def row_multiple(self) -> int:
        """See ``Capacity``."""
        return self.rule.row_multiple

    @property
    def row_minimum(self) -> int:
        """See ``Capacity``."""
        return self.rule.row_minimum

    @property
    def channel_multiple(self) -> int:
        """See ``Capacity``."""
        return self.rule.channel_multiple

    @property
    def unit_kernels(self) -> tuple[tuple[int, int], ...] | None:
        """See ``Capacity``."""
        return self.rule.unit_kernels

    def charge(self, step: Step, tile: Tile) -> Charge:
        """The charge of the largest slice."""
        if isinstance(step.op, Resize2d):
            rows = _largest_slice(step.op, 0, tile.out_rows, (tile.in_rows, tile.out_rows))
            cols = _largest_slice(step.op, 1, tile.out_cols, (tile.in_cols, tile.out_cols))
            tile = replace(tile, in_rows=rows[0], out_rows=rows[1], in_cols=cols[0], out_cols=cols[1])
        return self.rule.charge(step, tile)


@lru_cache(maxsize=1024)
def _largest_slice(op: Resize2d, axis: int, size: int, least: tuple[int, int]) -> tuple[int, int]:
    """Extents (in, out) that hold the slices of all chunks of ``size`` outputs along an axis, at least ``least``."""
    extent = (op.out_rows, op.out_cols)[axis]
    found = [piece for out in cut(extent, size) if (piece := _axis_slice(op, axis, out)) is not None]
    ins, outs = [len(piece.read) for piece in found], [piece.out_size for piece in found]
    return max([least[0], *ins]), max([least[1], *outs])
