"""Readers of convolutions, plain and transposed, and of products with a matrix."""

from __future__ import annotations

from typing import Any

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose
from tvm_sramtile.relax.access import shape_text, static_shape
from tvm_sramtile.relax.reading import (
    CHANNELS_LAST,
    MAP_LAYOUTS,
    Reading,
    RefusedError,
    Scene,
    check_operands,
    extents,
    map_layout,
)

_KERNEL_AXES = "OIHW"


def read_conv2d(call: Any, _: Scene) -> Reading:
    """``nn.conv2d``: (N, C, H, W) in either order, weights in any."""
    attrs, (data, weight), layout, kernel_layout = _parts(call)
    source, kernel = extents(data, layout), extents(weight, kernel_layout)
    op = Conv2d(
        in_channels=source["C"],
        in_rows=source["H"],
        in_cols=source["W"],
        out_channels=kernel["O"],
        kernel=(kernel["H"], kernel["W"]),
        strides=_pair(attrs.strides),
        padding=_padding(attrs),
        dilation=_pair(attrs.dilation),
        groups=int(attrs.groups),
    )
    return Reading(op, data, layout, layout, weight, kernel_layout)


def read_conv2d_transpose(call: Any, _: Scene) -> Reading:
    """``nn.conv2d_transpose``: the weights' O are the output channels of a group."""
    attrs, (data, weight), layout, kernel_layout = _parts(call)
    source, kernel = extents(data, layout), extents(weight, kernel_layout)
    op = Conv2dTranspose(
        in_channels=source["C"],
        in_rows=source["H"],
        in_cols=source["W"],
        out_channels=kernel["O"] * int(attrs.groups),
        kernel=(kernel["H"], kernel["W"]),
        strides=_pair(attrs.strides),
        padding=_padding(attrs),
        output_padding=_pair(attrs.output_padding),
        dilation=_pair(attrs.dilation),
        groups=int(attrs.groups),
    )
    return Reading(op, data, layout, layout, weight, kernel_layout)


def read_matmul(call: Any, _: Scene) -> Reading:
    """``matmul`` with a matrix: a 1x1 convolution of a map whose last axis are the channels."""
    data, weight = call.args
    check_operands(call, {"data": data, "weight": weight})
    if len(static_shape(weight) or ()) != 2:
        raise RefusedError(f"shape of weight = {shape_text(weight)}: the accelerator takes a matrix")
    rank = len(static_shape(data) or ())
    layout = CHANNELS_LAST if rank == 4 else MAP_LAYOUTS.get(rank)
    if layout is None:
        raise RefusedError(f"shape of data = {shape_text(data)}: the accelerator takes maps of 2 to 4 axes")
    source, matrix = extents(data, layout), extents(weight, "IO")
    op = Conv2d(source["C"], source["H"], source["W"], matrix["O"], (1, 1))
    return Reading(op, data, layout, layout, weight, "IO")


def _parts(call: Any) -> tuple[Any, tuple[Any, Any], str, str]:
    attrs, (data, weight) = call.attrs, call.args
    check_operands(call, {"data": data, "weight": weight})
    layout = map_layout(attrs, "data_layout")
    kernel_layout = str(attrs.kernel_layout)
    if sorted(kernel_layout) != sorted(_KERNEL_AXES):
        raise RefusedError(f"kernel_layout = {kernel_layout!r}: the accelerator takes the axes O, I, H and W")
    return attrs, (data, weight), layout, kernel_layout


def _padding(attrs: Any) -> tuple[int, int, int, int]:
    top, left, bottom, right = (int(extent) for extent in attrs.padding)
    if min(top, left, bottom, right) < 0:
        raise RefusedError(f"padding = {(top, left, bottom, right)}: the accelerator takes padding of at least 0")
    return top, left, bottom, right


def _pair(values: Any) -> tuple[int, int]:
    rows, cols = values
    return int(rows), int(cols)
