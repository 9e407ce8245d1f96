"""Convolutions, plain and transposed: whole, or a chunk as the finished sum of its partial sums."""

from __future__ import annotations

from tvm import relay

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose
from tvm_sramtile.ints import Range
from tvm_sramtile.plan import Chunk, ConvTerm, Cut, StepPlan, conv_terms
from tvm_sramtile.relay.emit.site import IOHW, NCHW, OIHW, Site, is_dense, layout_of_weight
from tvm_sramtile.relay.graph import Node

Convolution = Conv2d | Conv2dTranspose


def whole_convolution(site: Site, op: Convolution) -> Node:
    """The operator itself."""
    data = site.map(site.step.data)
    if isinstance(op, Conv2dTranspose):
        return _transposed(site, op, data, {}, op.padding, op.groups, op.output_padding)
    return _plain(site, op, data, {}, op.padding, op.groups)


def convolution_chunk(site: Site, op: Convolution, cut: Cut | StepPlan, chunk: Chunk) -> Node:
    """The sum over parts of the input channels and of the kernel; zeros where the chunk reads nothing at all."""
    terms = (_term(site, op, term) for term in conv_terms(op, cut, chunk, site.units))
    total = next(terms, None)
    if total is None:
        return relay.zeros(site.shape(len(chunk.channels), len(chunk.row.out), len(chunk.col.out)), site.dtype)
    for term in terms:
        total = relay.add(total, term)
    return total


def _term(site: Site, op: Convolution, term: ConvTerm) -> Node:
    data = site.data_part(term.channels, term.rows, term.cols)
    if isinstance(op, Conv2d):
        return _plain(site, op, data, term.weights, term.pads, term.groups)
    value = _transposed(site, op, data, term.weights, term.crop, term.groups)
    top, left, bottom, right = term.added
    return relay.nn.pad(value, ((0, 0), (0, 0), (top, bottom), (left, right))) if any(term.added) else value


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
