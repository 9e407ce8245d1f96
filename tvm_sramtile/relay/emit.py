"""Writes the body of a step in Relay: the operator with its epilogue, or the same in chunks of rows."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relay

from tvm_sramtile.geometry import Conv2d
from tvm_sramtile.ints import Range
from tvm_sramtile.ir import Clip, Step
from tvm_sramtile.plan import Chunk, StepPlan
from tvm_sramtile.relay.graph import Node

_ROWS, _COLS = 2, 3  # axes of NCHW


@dataclass(frozen=True, slots=True)
class Operands:
    """The values that a step reads."""

    data: Node
    weight: Node
    bias: Node | None = None


def whole_body(step: Step, operands: Operands) -> Node:
    """The operator and its epilogue."""
    return _epilogue(step, operands, convolution(step.op, operands.data, operands.weight, step.op.padding))


def chunked_body(step: Step, plan: StepPlan, operands: Operands) -> Node:
    """The chunks, each a finished part of the result (epilogue included), put together by their rows."""
    parts = [_chunk(step, plan, chunk, operands) for chunk in plan.chunks]
    return parts[0] if len(parts) == 1 else relay.concatenate(parts, axis=_ROWS)


def convolution(op: Conv2d, data: Node, weight: Node, padding: tuple[int, int, int, int]) -> Node:
    """A convolution with the attributes of ``op``, but its own pads."""
    return relay.nn.conv2d(
        data,
        weight,
        strides=op.strides,
        padding=padding,
        dilation=op.dilation,
        groups=op.groups,
        channels=op.out_channels,
        kernel_size=op.kernel,
    )


def right_pad(op: Conv2d) -> int:
    """Padding columns right of the columns that are read."""
    return op.col_window(Range(0, op.out_cols)).pad_after


def _chunk(step: Step, plan: StepPlan, chunk: Chunk, operands: Operands) -> Node:
    op = step.op
    if len(chunk.in_rows) == 0 or len(plan.in_cols) == 0:  # all of it lies in padding, and TVM has no empty slices
        zeros = relay.zeros((step.images, op.out_channels, len(chunk.out_rows), op.out_cols), step.output.dtype)
        return _epilogue(step, operands, zeros)
    data = _slice(op, operands.data, chunk.in_rows, plan.in_cols)
    padding = (chunk.pad_top, plan.pad_left, chunk.pad_bottom, right_pad(op))
    return _epilogue(step, operands, convolution(op, data, operands.weight, padding))


def _slice(op: Conv2d, data: Node, rows: Range, cols: Range) -> Node:
    wanted = {_ROWS: (rows, op.in_rows), _COLS: (cols, op.in_cols)}
    cuts = {axis: part for axis, (part, extent) in wanted.items() if len(part) != extent}
    if not cuts:
        return data
    begin, end = [part.start for part in cuts.values()], [part.stop for part in cuts.values()]
    return relay.strided_slice(data, begin, end, [1] * len(cuts), axes=list(cuts))


def _epilogue(step: Step, operands: Operands, value: Node) -> Node:
    if step.bias is not None:
        # One-dimensional: along the channels in `bias_add`, but along the columns in `add`.
        one_axis = len(step.bias.shape) == 1
        value = relay.nn.bias_add(value, operands.bias) if one_axis else relay.add(value, operands.bias)
    return value if step.clip is None else _clipped(value, step.clip)


def _clipped(value: Node, clip: Clip) -> Node:
    if clip.low == 0.0 and clip.high is None:
        return relay.nn.relu(value)
    if clip.low is not None and clip.high is not None:
        return relay.clip(value, clip.low, clip.high)
    if clip.low is not None:
        return relay.maximum(value, relay.const(clip.low, "float32"))
    if clip.high is not None:
        return relay.minimum(value, relay.const(clip.high, "float32"))
    return value
