"""Convolutions, plain and transposed: whole, or a chunk as the finished sum of its partial sums."""

from __future__ import annotations

from typing import Any

from tvm import relax

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose
from tvm_sramtile.plan import Chunk, ConvTerm, Cut, StepPlan, conv_terms
from tvm_sramtile.relax.emit.site import Site, is_dense

Convolution = Conv2d | Conv2dTranspose


def whole_convolution(site: Site, op: Convolution) -> Any:
    """The operator itself."""
    if isinstance(op, Conv2dTranspose):
        return _transposed(site, op, site.data, site.weight, op.padding, op.groups, op.output_padding)
    return _plain(site, op, site.data, site.weight, op.padding, op.groups)


def convolution_chunk(site: Site, op: Convolution, cut: Cut | StepPlan, chunk: Chunk) -> Any:
    """The sum over parts of the input channels and of the kernel; zeros where the chunk reads nothing at all."""
    terms = (_term(site, op, term) for term in conv_terms(op, cut, chunk, site.units))
    total = next(terms, None)
    if total is None:
        extents = {"N": site.step.images, "C": len(chunk.channels), "H": len(chunk.row.out), "W": len(chunk.col.out)}
        return relax.op.zeros(tuple(extents[letter] for letter in site.layout), site.dtype)
    for term in terms:
        total = relax.op.add(site.out.leaf(total), site.out.leaf(term))
    return total


def _term(site: Site, op: Convolution, term: ConvTerm) -> Any:
    data, weight = site.data_part(term.channels, term.rows, term.cols), site.weight_part(term.weights)
    if isinstance(op, Conv2d):
        return _plain(site, op, data, weight, term.pads, term.groups)
    value = _transposed(site, op, data, weight, term.crop, term.groups)
    top, left, bottom, right = term.added
    return relax.op.nn.pad(site.out.leaf(value), (0, 0, 0, 0, top, bottom, left, right)) if any(term.added) else value


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
