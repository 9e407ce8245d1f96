"""Convolutions, plain and transposed: whole, or a chunk as the finished sum of its partial sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import gcd

from tvm import relay

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose, Window, conv_window
from tvm_sramtile.ints import Range, cut
from tvm_sramtile.plan import Chunk, Cut, StepPlan
from tvm_sramtile.relay.emit.site import IOHW, NCHW, OIHW, Site, Units, is_dense, layout_of_weight
from tvm_sramtile.relay.graph import Node

Convolution = Conv2d | Conv2dTranspose


def whole_convolution(site: Site, op: Convolution) -> Node:
    """The operator itself."""
    data = site.map(site.step.data)
    if isinstance(op, Conv2dTranspose):
        return _transposed(site, op, data, {}, op.padding, op.groups, op.output_padding)
    return _plain(site, op, data, {}, op.padding, op.groups)


def convolution_chunk(site: Site, op: Convolution, cut_: Cut | StepPlan, chunk: Chunk) -> Node:
    """The sum over parts of the input channels and of the kernel; zeros where the chunk reads nothing at all."""
    if isinstance(op, Conv2dTranspose):
        terms = _transposed_terms(site, op, chunk, cut_)
    else:
        terms = _terms(site, op, chunk, cut_)
    total = next(terms, None)
    if total is None:
        return relay.zeros(site.shape(len(chunk.channels), len(chunk.row.out), len(chunk.col.out)), site.dtype)
    for term in terms:
        total = relay.add(total, term)
    return total


def kernel_parts(op: Convolution, cut_: Cut | StepPlan, units: Units | None) -> tuple[tuple[Range, Range], ...]:
    """The taps (rows, cols) of the kernel that one operator of the graph computes at a time.

    Of a plain convolution these are the passes. A transposed one is cut into blocks of so many neighbouring taps that
    each phase has as many as a unit: one operator then stands for a pass in each phase.
    """
    if not isinstance(op, Conv2dTranspose):
        return tuple((one.rows, one.cols) for one in cut_.passes)
    unit = op.kernel if units is None else max(units, key=lambda pair: (pair[0] * pair[1], pair))
    steps = [stride // gcd(stride, dilation) for stride, dilation in zip(op.strides, op.dilation, strict=True)]
    rows, cols = (cut(op.kernel[axis], unit[axis] * steps[axis]) for axis in range(2))
    return tuple((row, col) for row in rows for col in cols)


def _terms(site: Site, op: Conv2d, chunk: Chunk, cut_: Cut | StepPlan) -> Iterator[Node]:
    for channels, weights, groups in _channel_parts(op, chunk, cut_):
        for rows, cols in kernel_parts(op, cut_, site.units):
            row, col = _window(op, 0, chunk.row.out, rows), _window(op, 1, chunk.col.out, cols)
            if not len(row.read) or not len(col.read):
                continue
            data = site.data_part(channels, row.read, col.read)
            yield _plain(site, op, data, {**weights, "H": rows, "W": cols}, _pads(row, col), groups)


def _window(op: Conv2d, axis: int, out: Range, taps: Range) -> Window:
    """What some taps read along an axis for the outputs ``out``."""
    size, stride, dilation = (op.in_rows, op.in_cols)[axis], op.strides[axis], op.dilation[axis]
    return conv_window(out, size, len(taps), stride, dilation, op.padding[axis] - taps.start * dilation)


def _transposed_terms(site: Site, op: Conv2dTranspose, chunk: Chunk, cut_: Cut | StepPlan) -> Iterator[Node]:
    for channels, weights, groups in _channel_parts(op, chunk, cut_):
        for rows, cols in kernel_parts(op, cut_, site.units):
            top, left = (op.padding[axis] - taps.start * op.dilation[axis] for axis, taps in enumerate((rows, cols)))
            part = replace(op, kernel=(len(rows), len(cols)), padding=(top, left, 0, 0))
            row, col = part.row_window(chunk.row.out), part.col_window(chunk.col.out)
            if not len(row.read) or not len(col.read):
                continue
            data = site.data_part(channels, row.read, col.read)
            crop = _pads(row, col)
            cropped = (max(0, crop[0]), max(0, crop[1]), max(0, crop[2]), max(0, crop[3]))
            term = _transposed(site, op, data, {**weights, "H": rows, "W": cols}, cropped, groups)
            yield term if min(crop) >= 0 else _with_zeros(term, crop)


def _with_zeros(value: Node, crop: tuple[int, int, int, int]) -> Node:
    """Rows and columns that have no contributor, where the crop is negative."""
    top, left, bottom, right = (max(0, -pad) for pad in crop)
    return relay.nn.pad(value, ((0, 0), (0, 0), (top, bottom), (left, right)))


def _channel_parts(
    op: Convolution, chunk: Chunk, cut_: Cut | StepPlan
) -> Iterator[tuple[Range, dict[str, Range], int]]:
    """The parts of the sum over channels: input channels, the ranges of the kernel's O and I, and groups."""
    found, source = op.groups_of(chunk.channels), op.in_channel_range(chunk.channels)
    first = found.start * op.out_channels_per_group
    within = Range(chunk.channels.start - first, chunk.channels.stop - first)
    if len(found) > 1:
        within = Range(0, op.out_channels_per_group)
    for part in cut_.in_channels:
        ins = source if len(cut_.in_channels) == 1 else Range(source.start + part.start, source.start + part.stop)
        if isinstance(op, Conv2dTranspose):
            yield ins, {"I": ins, "O": within}, len(found)
        else:
            yield ins, {"I": part, "O": chunk.channels}, len(found)


def _pads(row: Window, col: Window) -> tuple[int, int, int, int]:
    return row.pad_before, col.pad_before, row.pad_after, col.pad_after


def _plain(site: Site, op: Conv2d, data: Node, parts: dict[str, Range], padding: tuple[int, ...], groups: int) -> Node:
    """A convolution with some of the weights; TVM wants to be told how many these are."""
    channels = len(parts.get("O", range(op.out_channels)))
    if is_dense(site.step):
        layout = layout_of_weight(site.step)
        product = relay.nn.dense if layout == "OI" else relay.nn.matmul
        return product(data, site.weight_part(parts, layout), units=channels, out_dtype=site.dtype)
    layout = _weight_layout(site, op, channels, groups)
    return relay.nn.conv2d(
        data,
        site.weight_part(parts, layout),
        strides=op.strides,
        padding=padding,
        dilation=op.dilation,
        groups=groups,
        channels=channels,
        kernel_size=tuple(len(parts.get(letter, range(op.kernel[axis]))) for axis, letter in enumerate("HW")),
        data_layout=site.layout,
        kernel_layout=layout,
        out_dtype=site.dtype,
    )


def _weight_layout(site: Site, op: Conv2d, channels: int, groups: int) -> str:
    """The order of the kernel's axes that TVM's CPU takes beside maps of the site's layout."""
    if site.layout == NCHW:
        return OIHW
    return "HWOI" if op.in_channels_per_group == 1 and channels == groups > 1 else "HWIO"


def _transposed(
    site: Site,
    op: Conv2dTranspose,
    data: Node,
    parts: dict[str, Range],
    padding: tuple[int, ...],
    groups: int,
    output_padding: tuple[int, int] = (0, 0),
) -> Node:
    """A transposed convolution with some of the weights, spread where they are dilated: TVM's CPU takes no others."""
    weight = site.weight_part(parts, IOHW)
    if op.dilation != (1, 1):
        weight = relay.nn.dilate(weight, [1, 1, *op.dilation])
    taps = (len(parts.get(letter, range(op.kernel[axis]))) for axis, letter in enumerate("HW"))
    return relay.nn.conv2d_transpose(
        data,
        weight,
        strides=op.strides,
        padding=padding,
        groups=groups,
        channels=groups * len(parts.get("O", range(op.out_channels_per_group))),
        kernel_size=tuple((count - 1) * dilation + 1 for count, dilation in zip(taps, op.dilation, strict=True)),
        output_padding=output_padding,
        out_dtype=site.dtype,
    )
