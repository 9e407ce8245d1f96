"""Readers of convolutions, plain and transposed, and of products with a matrix."""

from __future__ import annotations

from typing import Any

from tvm import relay

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose
from tvm_sramtile.relay.access import constant_value, four_pads, is_constant, op_name, pair, shape_text, static_shape
from tvm_sramtile.relay.graph import Node
from tvm_sramtile.relay.reading import (
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


def read_conv2d(call: Node, scene: Scene) -> Reading:
    """``nn.conv2d``: (N, C, H, W) in either order, weights in any."""
    attrs, data, weight, layout, kernel_layout = _parts(call, scene)
    groups = int(attrs.groups)
    source, kernel = extents(data, layout), extents(weight, kernel_layout)
    if kernel["O"] == groups == source["C"] and kernel["I"] > 1:
        weight = _flat_multiplier(weight, kernel_layout)
        kernel = {**kernel, "O": kernel["O"] * kernel["I"], "I": 1}
    if groups < 1 or kernel["I"] * groups != source["C"] or kernel["O"] % groups:
        raise RefusedError(
            f"groups = {groups}: the accelerator takes groups that divide {source['C']} input channels as weight "
            f"{shape_text(call.args[1])} does"
        )
    op = Conv2d(
        in_channels=source["C"],
        in_rows=source["H"],
        in_cols=source["W"],
        out_channels=kernel["O"],
        kernel=(kernel["H"], kernel["W"]),
        strides=pair(attrs.strides),
        padding=_padding(attrs),
        dilation=pair(attrs.dilation),
        groups=groups,
    )
    return Reading(op, data, layout, layout, weight, kernel_layout)


def read_conv2d_transpose(call: Node, scene: Scene) -> Reading:
    """``nn.conv2d_transpose``: the weights' O are the output channels of a group."""
    attrs, data, weight, layout, kernel_layout = _parts(call, scene)
    weight, dilation = _dilation(weight, attrs, kernel_layout, scene)
    source, kernel = extents(data, layout), extents(weight, kernel_layout)
    padding, output_padding = _cropping(attrs)
    op = Conv2dTranspose(
        in_channels=source["C"],
        in_rows=source["H"],
        in_cols=source["W"],
        out_channels=kernel["O"] * int(attrs.groups),
        kernel=(kernel["H"], kernel["W"]),
        strides=pair(attrs.strides),
        padding=padding,
        output_padding=output_padding,
        dilation=dilation,
        groups=int(attrs.groups),
    )
    return Reading(op, data, layout, layout, weight, kernel_layout)


def read_matmul(call: Node, scene: Scene) -> Reading:
    """``nn.dense`` and ``nn.matmul``: a 1x1 convolution of a map whose last axis are the channels."""
    data, weight = (scene.graph.literal(operand) for operand in call.args)
    check_operands(call, {"data": data, "weight": weight})
    layout = "OI"
    if op_name(call) == "nn.matmul":
        if call.attrs.transpose_a:
            raise RefusedError("transpose_a = True: the accelerator takes False")
        layout = "OI" if call.attrs.transpose_b else "IO"
    if len(static_shape(weight) or ()) != 2:
        raise RefusedError(f"shape of weight = {shape_text(weight)}: the accelerator takes a matrix")
    rank = len(static_shape(data) or ())
    map_axes = CHANNELS_LAST if rank == 4 else MAP_LAYOUTS.get(rank)
    if map_axes is None:
        raise RefusedError(f"shape of data = {shape_text(data)}: the accelerator takes maps of 2 to 4 axes")
    source, matrix = extents(data, map_axes), extents(weight, layout)
    op = Conv2d(source["C"], source["H"], source["W"], matrix["O"], (1, 1))
    return Reading(op, data, map_axes, map_axes, weight, layout)


def _parts(call: Node, scene: Scene) -> tuple[Any, Node, Node, str, str]:
    attrs, (data, weight) = call.attrs, (scene.graph.literal(operand) for operand in call.args)
    check_operands(call, {"data": data, "weight": weight})
    layout = map_layout(attrs, "data_layout")
    kernel_layout = str(attrs.kernel_layout)
    if sorted(kernel_layout) != sorted(_KERNEL_AXES):
        raise RefusedError(f"kernel_layout = {kernel_layout!r}: the accelerator takes the axes O, I, H and W")
    return attrs, data, weight, layout, kernel_layout


def _flat_multiplier(weight: Node, layout: str) -> Node:
    """The kernel of a depthwise convolution whose axis I are the channel's outputs: in Relay O are its inputs then.

    Raises:
        RefusedError: the two axes do not stand side by side.
    """
    shape = extents(weight, layout)
    if "OI" not in layout:
        raise RefusedError(
            f"kernel_layout = {layout!r} with channel multiplier {shape['I']}: the accelerator takes O before I"
        )
    flat = tuple({**shape, "O": shape["O"] * shape["I"], "I": 1}[letter] for letter in layout)
    if is_constant(weight):
        return relay.const(constant_value(weight).reshape(flat))
    reshaped = relay.reshape(weight, flat)
    relay.transform.InferTypeLocal(reshaped)
    return reshaped


def _dilation(weight: Node, attrs: Any, layout: str, scene: Scene) -> tuple[Node, tuple[int, int]]:
    """Weight and dilation: a weight spread beforehand, as we write it ourselves for TVM's CPU, is dilated."""
    spread, dilation = scene.graph.resolve(weight), pair(attrs.dilation)
    if op_name(spread) != "nn.dilate" or dilation != (1, 1) or float(spread.attrs.dilation_value) != 0:
        return weight, dilation
    steps = dict(zip(layout, map(int, spread.attrs.strides), strict=True))
    if steps["O"] != 1 or steps["I"] != 1:
        return weight, dilation
    return spread.args[0], (steps["H"], steps["W"])


def _cropping(attrs: Any) -> tuple[tuple[int, int, int, int], tuple[int, int]]:
    """Padding and output padding: TVM's ONNX importer writes the latter as negative padding below and on the right."""
    top, left, bottom, right = four_pads(attrs.padding)
    rows, cols = pair(attrs.output_padding)
    added = (rows - min(0, bottom), cols - min(0, right))
    if min(top, left) < 0 or any(more >= stride for more, stride in zip(added, pair(attrs.strides), strict=True)):
        return _padding(attrs), (rows, cols)
    return (top, left, max(0, bottom), max(0, right)), added


def _padding(attrs: Any) -> tuple[int, int, int, int]:
    padding = four_pads(attrs.padding)
    if min(padding) < 0:
        raise RefusedError(f"padding = {padding}: the accelerator takes padding of at least 0")
    return padding
