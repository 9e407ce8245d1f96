"""What steps of a region yield, by the oracle: tensors in any layout, epilogues, several writers of one tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from core import oracle
from numpy.typing import NDArray

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose, Elementwise, Pool2d, Resize2d
from tvm_sramtile.geometry.resize_axis import AxisTable
from tvm_sramtile.ir import Region, Step, Tensor

Float = NDArray[np.float32]


def canonical(value: Float, tensor: Tensor, order: str) -> Float:
    """A tensor's value with its axes in ``order``; axes that its layout has not have extent 1."""
    layout = tensor.layout or order
    missing = [letter for letter in order if letter not in layout]
    letters = [*layout, *missing]
    return value.reshape(*value.shape, *[1] * len(missing)).transpose([letters.index(letter) for letter in order])


def in_layout(value: Float, tensor: Tensor) -> Float:
    """A map [image, channel, row, col] as the tensor has it."""
    layout = tensor.layout or "NCHW"
    rest = [letter for letter in "NCHW" if letter not in layout]
    return value.transpose(["NCHW".index(letter) for letter in [*layout, *rest]]).reshape(tensor.shape)


def evaluate(region: Region, values: Mapping[str, Float]) -> dict[str, Float]:
    """The values of all tensors of a region; channels that no step wrote are NaN."""
    known = dict(values)
    for step in region.steps:
        yielded = _activated(step, _operator(step, known), known)
        if step.output.name not in known:
            known[step.output.name] = np.full(step.output.shape, np.nan, np.float32)
        whole = canonical(known[step.output.name], step.output, "NCHW").copy()
        whole[:, step.output_channel : step.output_channel + step.op.out_channels] = yielded
        known[step.output.name] = in_layout(whole, step.output)
    return known


def terms(step: Step) -> int:
    """How many products or elements an output is the sum of, at most."""
    op = step.op
    if isinstance(op, Conv2d | Conv2dTranspose):
        return op.in_channels_per_group * op.kernel[0] * op.kernel[1]
    return op.kernel[0] * op.kernel[1] if isinstance(op, Pool2d) else 16


def macs(step: Step) -> int:
    """Products of all images, counted output by output; those in padding count, inserted zeros do not."""
    op = step.op
    if not isinstance(op, Conv2d | Conv2dTranspose):
        return 0
    taps = 1
    for axis, outs in enumerate((op.out_rows, op.out_cols)):
        kernel, stride = op.kernel[axis], op.strides[axis]
        if isinstance(op, Conv2d):
            taps *= outs * kernel
        else:
            shift = op.padding[axis]
            hits = [(o + shift - t * op.dilation[axis]) % stride == 0 for o in range(outs) for t in range(kernel)]
            taps *= sum(hits)
    return step.images * taps * op.out_channels * op.in_channels_per_group


def _operator(step: Step, values: Mapping[str, Float]) -> Float:
    op, data = step.op, canonical(values[step.data.name], step.data, "NCHW")
    match op:
        case Conv2d() | Conv2dTranspose():
            return _convolution(step, data, values)
        case Pool2d():
            extents = (op.out_rows, op.out_cols)
            attributes: dict[str, Any] = {"strides": op.strides, "padding": op.padding, "dilation": op.dilation}
            return oracle.pool2d(data, op.pooling, op.kernel, extents, **attributes)
        case Resize2d():
            rows, cols = _matrix(op.rows, op.in_rows), _matrix(op.cols, op.in_cols)
            return np.einsum("yi,ncij,xj->ncyx", rows, data.astype(np.float64), cols).astype(np.float32)
        case Elementwise():
            partner: Float | float = op.value
            if step.other is not None and op.partner == "map":
                partner = canonical(values[step.other.name], step.other, "NCHW")
            elif step.other is not None:
                partner = values[step.other.name].reshape(1, -1, 1, 1)
            return oracle.elementwise(op.function, data, partner)


def _matrix(table: AxisTable, size: int) -> NDArray[np.float64]:
    """[output, position] weights; the tables themselves are tested elsewhere."""
    matrix = np.zeros((len(table.first), size))
    for output, (first, weights) in enumerate(zip(table.first, table.weights, strict=True)):
        matrix[output, first : first + len(weights)] = weights
    return matrix


def _convolution(step: Step, data: Float, values: Mapping[str, Float]) -> Float:
    op, weight, clip = step.op, step.weight, step.clip
    assert weight is not None
    bias = None if step.bias is None else values[step.bias.name]
    attributes: dict[str, Any] = {
        "strides": op.strides,
        "padding": op.padding,
        "dilation": op.dilation,
        "groups": op.groups,
        "clip": (None, None) if clip is None else (clip.low, clip.high),
    }
    if isinstance(op, Conv2d):
        return oracle.conv2d(data, canonical(values[weight.name], weight, "OIHW"), bias, **attributes)
    kernel = canonical(values[weight.name], weight, "IOHW")
    return oracle.conv2d_transpose(data, kernel, bias, output_padding=op.output_padding, **attributes)


def _activated(step: Step, value: Float, values: Mapping[str, Float]) -> Float:
    for activation in step.activations:
        partner: Float | float = activation.value0
        if activation.vector is not None:
            partner = values[activation.vector.name].reshape(1, -1, 1, 1)
        value = oracle.elementwise(activation.function, value, partner, activation.value1)
    return value
