"""Chunks of a resize as resizes of slices of the map: when that is right, what it takes, and what else there is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from tvm_sramtile.errors import DoesNotFit
from tvm_sramtile.geometry import Resize2d
from tvm_sramtile.geometry.resize_axis import AxisSlice
from tvm_sramtile.ints import Range, cut
from tvm_sramtile.ir import Step
from tvm_sramtile.options import Options
from tvm_sramtile.plan.capacity import Capacity, Charge, Tile
from tvm_sramtile.plan.cut import Cut, Direction, kernel_passes
from tvm_sramtile.plan.plan import Chunk, Span
from tvm_sramtile.plan.seed import seed_cut

#: Whether a TVM resizes slices with these attributes right.
Sliceable = Callable[[Resize2d], bool]


@dataclass(frozen=True, slots=True)
class ResizePart:
    """How a chunk of a resize is made: the resize of a slice, cropped.

    Attributes:
        row, col: the slice along each axis; ``None`` where a slice has other coordinates than the whole, or is too
            large: what is read along this axis is then taken with its weights, as the last thing.
        rows, cols: what is read of the map.
    """

    row: AxisSlice | None
    col: AxisSlice | None
    rows: Range
    cols: Range

    @property
    def size(self) -> tuple[int, int] | None:
        """The rows and columns that the resize yields; ``None`` where nothing is resized."""
        if self.row is None and self.col is None:
            return None
        rows = len(self.rows) if self.row is None else self.row.out_size
        return rows, len(self.cols) if self.col is None else self.col.out_size

    @property
    def crops(self) -> tuple[tuple[str, Range], ...]:
        """What is kept of it, by axis (H, W), where that is not all."""
        return tuple(
            (letter, piece.crop)
            for letter, piece in (("H", self.row), ("W", self.col))
            if piece is not None and len(piece.crop) < piece.out_size
        )


def resize_part(op: Resize2d, chunk: Chunk, fits: Callable[[Tile], bool], sliceable: Sliceable) -> ResizePart:
    """The way to make a chunk: both axes by a slice where that is right and small enough; or only one; or none."""
    row, col = next(_slices(op, chunk, fits, sliceable))
    rows, cols = chunk.row.read if row is None else row.read, chunk.col.read if col is None else col.read
    return ResizePart(row, col, rows, cols)


def _slices(
    op: Resize2d, chunk: Chunk, fits: Callable[[Tile], bool], sliceable: Sliceable
) -> Iterator[tuple[AxisSlice | None, AxisSlice | None]]:
    row, col = _axis_slice(op, 0, chunk.row.out, sliceable), _axis_slice(op, 1, chunk.col.out, sliceable)
    if row and col and fits(_tile(chunk, row, col)):
        yield row, col
    if row and op.leaves_rows(len(chunk.col.read)) and fits(_tile(chunk, row, None)):
        yield row, None
    if col and op.leaves_rows(len(chunk.row.read)) and fits(_tile(chunk, None, col)):
        yield None, col
    yield None, None


def _axis_slice(op: Resize2d, axis: int, out: Range, sliceable: Sliceable) -> AxisSlice | None:
    """The outputs ``out`` along an axis by a resize of a slice; the whole axis is a slice too."""
    size, extent = (op.in_rows, op.in_cols)[axis], (op.out_rows, op.out_cols)[axis]
    if op.coordinate_transformation_mode == "align_corners" and extent == 1:
        return None  # TVM divides by zero
    if not sliceable(op):
        return None
    if len(out) == extent:
        return AxisSlice(Range(0, size), extent, out)
    return op.col_slice(out) if axis else op.row_slice(out)


def _tile(chunk: Chunk, row: AxisSlice | None, col: AxisSlice | None) -> Tile:
    """What the resize of a slice takes."""

    def extents(span: Span, piece: AxisSlice | None) -> tuple[int, int]:
        return (len(span.read), len(span.read)) if piece is None else (len(piece.read), piece.out_size)

    rows, cols, channels = extents(chunk.row, row), extents(chunk.col, col), len(chunk.channels)
    return Tile(rows[1], cols[1], channels, channels, rows[0], cols[0], channels, 0)


def cut_in_slices(
    step: Step, capacity: Capacity, options: Options, axes: Collection[Direction], sliceable: Sliceable
) -> Cut:
    """A cut so that slices of a resize fit; so that what is taken row by row fits, which needs less, if none do.

    Always by the seed's strategy: whoever runs these chunks loads the input of each anew, so few are better than many.

    Raises:
        DoesNotFit: no chunk fits either way.
    """
    passes = kernel_passes(step, capacity.unit_kernels, options.kernel_split)
    try:
        return seed_cut(step, SliceCapacity(capacity, sliceable), passes, axes)
    except DoesNotFit:
        return seed_cut(step, capacity, passes, axes)


@dataclass(frozen=True, slots=True)
class SliceCapacity:
    """A rule of what fits, for resizes that are done by slices: these read and yield more than the chunk needs."""

    rule: Capacity
    sliceable: Sliceable

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
            least = ((tile.in_rows, tile.out_rows), (tile.in_cols, tile.out_cols))
            rows, cols = (_largest_slice(step.op, axis, least[axis], self.sliceable) for axis in range(2))
            tile = replace(tile, in_rows=rows[0], out_rows=rows[1], in_cols=cols[0], out_cols=cols[1])
        return self.rule.charge(step, tile)


@lru_cache(maxsize=1024)
def _largest_slice(op: Resize2d, axis: int, least: tuple[int, int], sliceable: Sliceable) -> tuple[int, int]:
    """Extents (in, out) that hold the slices of all chunks of ``least[1]`` outputs, at least ``least``."""
    pieces = [_axis_slice(op, axis, out, sliceable) for out in cut((op.out_rows, op.out_cols)[axis], least[1])]
    ins, outs = zip(least, *((len(piece.read), piece.out_size) for piece in pieces if piece), strict=True)
    return max(ins), max(outs)
