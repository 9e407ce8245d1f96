"""Convolutions, plain and transposed: whole, or a chunk as the finished sum of its partial sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import gcd
from typing import Any

from tvm import relax

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose, Window, conv_window
from tvm_sramtile.ints import Range, cut
from tvm_sramtile.plan import Chunk, Cut, StepPlan
from tvm_sramtile.relax.emit.site import Site, Units, is_dense

Convolution = Conv2d | Conv2dTranspose


def whole_convolution(site: Site, op: Convolution) -> Any:
    """The operator itself."""
    if isinstance(op, Conv2dTranspose):
        return _transposed(site, op, site.data, site.weight, op.padding, op.groups, op.output_padding)
    return _plain(site, op, site.data, site.weight, op.padding, op.groups)


def convolution_chunk(site: Site, op: Convolution, cut_: Cut | StepPlan, chunk: Chunk) -> Any:
    """The sum over parts of the input channels and of the kernel; zeros where the chunk reads nothing at all."""
    if isinstance(op, Conv2dTranspose):
        terms = _transposed_terms(site, op, chunk, cut_)
    else:
        terms = _terms(site, op, chunk, cut_)
    total = next(terms, None)
    if total is None:
        extents = {"N": site.step.images, "C": len(chunk.channels), "H": len(chunk.row.out), "W": len(chunk.col.out)}
        return relax.op.zeros(tuple(extents[letter] for letter in site.layout), site.dtype)
    for term in terms:
        total = relax.op.add(site.out.leaf(total), site.out.leaf(term))
    return total


def kernel_parts(op: Convolution, cut_: Cut | StepPlan, units: Units | None) -> tuple[tuple[Range, Range], ...]:
    """The taps (rows, cols) of the kernel that one operator of the graph computes at a time.

    Of a plain convolution these are the passes. A transposed one is cut into blocks of so many neighbouring taps that
    each phase has as many as a unit: one operator then stands for a pass in each phase. Where the weights of only one
    pass are in memory at a time, a block has no more taps than that.
    """
    if not isinstance(op, Conv2dTranspose):
        return tuple((one.rows, one.cols) for one in cut_.passes)
    if cut_.passes_resident:
        unit = op.kernel if units is None else max(units, key=lambda pair: (pair[0] * pair[1], pair))
        steps = [stride // gcd(stride, dilation) for stride, dilation in zip(op.strides, op.dilation, strict=True)]
        block = [unit[axis] * steps[axis] for axis in range(2)]
    else:
        largest = max(cut_.passes, key=lambda one: one.taps)
        block = [len(largest.rows), len(largest.cols)]
    return tuple((row, col) for row in cut(op.kernel[0], block[0]) for col in cut(op.kernel[1], block[1]))


def _terms(site: Site, op: Conv2d, chunk: Chunk, cut_: Cut | StepPlan) -> Iterator[Any]:
    for channels, weights, groups in _channel_parts(op, chunk, cut_):
        for rows, cols in kernel_parts(op, cut_, site.units):
            row, col = _window(op, 0, chunk.row.out, rows), _window(op, 1, chunk.col.out, cols)
            if not len(row.read) or not len(col.read):
                continue
            data = site.data_part(channels, row.read, col.read)
            weight = site.weight_part({**weights, "H": rows, "W": cols})
            yield _plain(site, op, data, weight, _pads(row, col), groups)


def _window(op: Conv2d, axis: int, out: Range, taps: Range) -> Window:
    """What some taps read along an axis for the outputs ``out``."""
    size, stride, dilation = (op.in_rows, op.in_cols)[axis], op.strides[axis], op.dilation[axis]
    return conv_window(out, size, len(taps), stride, dilation, op.padding[axis] - taps.start * dilation)


def _transposed_terms(site: Site, op: Conv2dTranspose, chunk: Chunk, cut_: Cut | StepPlan) -> Iterator[Any]:
    for channels, weights, groups in _channel_parts(op, chunk, cut_):
        for rows, cols in kernel_parts(op, cut_, site.units):
            top, left = (op.padding[axis] - taps.start * op.dilation[axis] for axis, taps in enumerate((rows, cols)))
            part = replace(op, kernel=(len(rows), len(cols)), padding=(top, left, 0, 0))
            row, col = part.row_window(chunk.row.out), part.col_window(chunk.col.out)
            if not len(row.read) or not len(col.read):
                continue
            data = site.data_part(channels, row.read, col.read)
            weight = site.weight_part({**weights, "H": rows, "W": cols})
            crop = _pads(row, col)
            cropped = (max(0, crop[0]), max(0, crop[1]), max(0, crop[2]), max(0, crop[3]))
            term = _transposed(site, op, data, weight, cropped, groups)
            yield term if min(crop) >= 0 else _with_zeros(site, term, crop)


def _with_zeros(site: Site, value: Any, crop: tuple[int, int, int, int]) -> Any:
    """Rows and columns that have no contributor, where the crop is negative."""
    top, left, bottom, right = (max(0, -pad) for pad in crop)
    return relax.op.nn.pad(site.out.leaf(value), (0, 0, 0, 0, top, bottom, left, right))


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


def _plain(site: Site, op: Conv2d, data: Any, weight: Any, padding: tuple[int, ...], groups: int) -> Any:
    if is_dense(site.step):
        return relax.op.matmul(data, weight, out_dtype=site.dtype)
    return relax.op.nn.conv2d(
        data,
        weight,
        strides=op.strides,
        padding=padding,
        dilation=op.dilation,
        groups=groups,
        data_layout=site.layout,
        kernel_layout=site.weight_layout,
        out_dtype=site.dtype,
    )


def _transposed(
    site: Site,
    op: Conv2dTranspose,
    data: Any,
    weight: Any,
    padding: tuple[int, ...],
    groups: int,
    output_padding: tuple[int, int] = (0, 0),
) -> Any:
    return relax.op.nn.conv2d_transpose(
        data,
        weight,
        strides=op.strides,
        padding=padding,
        output_padding=output_padding,
        dilation=op.dilation,
        groups=groups,
        out_dtype=site.dtype,
    )
