"""Resize: whole, or a chunk as the resize of a slice, else by taking rows and columns with weights."""

from __future__ import annotations

import numpy as np
from tvm import relay

from tvm_sramtile.geometry import Resize2d
from tvm_sramtile.geometry.resize_axis import AxisTaps
from tvm_sramtile.plan import Chunk, resize_part
from tvm_sramtile.relay.emit.site import Site
from tvm_sramtile.relay.graph import Node


def whole_resize(site: Site, op: Resize2d) -> Node:
    """The operator itself."""
    return _resize(site, op, site.map(site.step.data), (op.out_rows, op.out_cols))


def resize_chunk(site: Site, op: Resize2d, chunk: Chunk) -> Node:
    """A chunk, with the coordinates of the whole map.

    Along an axis where a slice has other coordinates than the whole, what the chunk reads is taken with its weights.
    """
    part = resize_part(op, chunk, site.fits, sliceable)
    value = site.data_part(chunk.channels, part.rows, part.cols)
    if part.size is not None:
        value = _resize(site, op, value, part.size)
    value = site.sliced(value, [(site.axis(letter), crop) for letter, crop in part.crops])
    if part.row is None:
        value = _taken(site, value, "H", op.row_taps(chunk.row.out))
    return value if part.col is not None else _taken(site, value, "W", op.col_taps(chunk.col.out))


def sliceable(_: Resize2d) -> bool:
    """TVM resizes any slice right."""
    return True


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
