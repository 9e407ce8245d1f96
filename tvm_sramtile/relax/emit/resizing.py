"""Resize: whole, or a chunk as the resize of a slice, else by taking rows and columns with weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from tvm_sramtile.geometry import Resize2d
from tvm_sramtile.geometry.resize_axis import AxisTaps
from tvm_sramtile.plan import Chunk, resize_part
from tvm_sramtile.relax.emit.site import Site


def whole_resize(site: Site, op: Resize2d) -> Any:
    """The operator itself."""
    return _resize(site, op, site.data, (op.out_rows, op.out_cols))


def resize_chunk(site: Site, op: Resize2d, chunk: Chunk) -> Any:
    """A chunk, with the coordinates of the whole map.

    Along an axis where a slice has other coordinates than the whole, what the chunk reads is taken with its weights.
    """
    part = resize_part(op, chunk, site.fits, sliceable)
    value = site.data_part(chunk.channels, part.rows, part.cols)
    if part.size is not None:
        value = _resize(site, op, value, part.size)
    value = site.out.sliced(value, [(site.axis(letter), crop) for letter, crop in part.crops])
    if part.row is None:
        value = _taken(site, value, "H", op.row_taps(chunk.row.out))
    return value if part.col is not None else _taken(site, value, "W", op.col_taps(chunk.col.out))


def sliceable(op: Resize2d) -> bool:
    """TVM 0.27 yields NaN for some small maps, as from 1x2 to 3x4: slices are such more often."""
    return not (op.method == "cubic" and op.cubic_exclude)


def _resize(site: Site, op: Resize2d, data: Any, size: tuple[int, int]) -> Any:
    return relax.op.image.resize2d(
        data,
        size,
        layout=site.layout,
        method=op.method,
        coordinate_transformation_mode=op.coordinate_transformation_mode,
        rounding_method=op.rounding_method,
        cubic_alpha=op.cubic_alpha,
        cubic_exclude=int(op.cubic_exclude),
    )


def _taken(site: Site, value: Any, letter: str, taps: AxisTaps) -> Any:
    """Rows or columns as the sum of those they are blended of."""
    value, axis = site.out.leaf(value), site.axis(letter)
    shape = tuple(-1 if at == axis else 1 for at in range(len(site.layout)))
    total = None
    for indices, weights in zip(taps.indices, taps.weights, strict=True):
        term = relax.op.take(value, relax.const(np.array(indices, np.int64)), axis=axis, mode="clip")
        if any(weight != 1 for weight in weights):
            factors = np.array(weights, site.dtype).reshape(shape)
            term = relax.op.multiply(site.out.leaf(term), relax.const(factors, site.dtype))
        total = term if total is None else relax.op.add(site.out.leaf(total), site.out.leaf(term))
    return total
