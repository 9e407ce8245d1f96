"""Pooling: whole, or a chunk."""

from __future__ import annotations

import numpy as np
from tvm import relay

from tvm_sramtile.geometry import Pool2d
from tvm_sramtile.ints import Range
from tvm_sramtile.plan import Chunk
from tvm_sramtile.relay.emit.site import Site
from tvm_sramtile.relay.graph import Node


def whole_pooling(site: Site, op: Pool2d) -> Node:
    """The operator itself."""
    left_over = [_left_over(op, axis) for axis in range(2)]
    parts = {
        letter: Range(0, (op.in_rows, op.in_cols)[axis] - left_over[axis])
        for axis, letter in enumerate("HW")
        if left_over[axis] >= op.strides[axis]  # rounding down leaves out what is less than a stride
    }
    data = site.map(site.step.data, parts)
    return _pool(site, op, data, (*op.padding, max(0, -left_over[0]), max(0, -left_over[1])))


def pooling_chunk(site: Site, op: Pool2d, chunk: Chunk) -> Node:
    """A chunk; what reads nothing at all is the lowest value, or an average of 0."""
    row, col = chunk.row, chunk.col
    if len(row.read) and len(col.read):
        data = site.data_part(chunk.channels, row.read, col.read)
        return _pool(site, op, data, (row.before, col.before, row.after, col.after))
    shape = site.shape(len(chunk.channels), len(row.out), len(col.out))
    if op.pooling != "max":
        return relay.zeros(shape, site.dtype)
    return relay.full(site.number(float(np.finfo(site.dtype).min)), shape, site.dtype)


def _left_over(op: Pool2d, axis: int) -> int:
    """Positions behind the last that an output reads; below 0 where there must be padding instead."""
    extent, outs = (op.in_rows, op.in_cols)[axis], (op.out_rows, op.out_cols)[axis]
    return extent + op.padding[axis] - ((outs - 1) * op.strides[axis] + op.dilation[axis] * (op.kernel[axis] - 1) + 1)


def _pool(site: Site, op: Pool2d, data: Node, padding: tuple[int, ...]) -> Node:
    attributes = {
        "pool_size": op.kernel,
        "strides": op.strides,
        "dilation": op.dilation,
        "padding": padding,
        "layout": site.layout,
    }
    if op.pooling == "max":
        return relay.nn.max_pool2d(data, **attributes)
    return relay.nn.avg_pool2d(data, **attributes, count_include_pad=op.pooling == "average_all")
