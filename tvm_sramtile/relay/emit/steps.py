"""A step as Relay code: the operator, or its chunks put together again, with the epilogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import relay

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose, Elementwise, Pool2d
from tvm_sramtile.ints import Range
from tvm_sramtile.ir import Step
from tvm_sramtile.plan import Chunk, Cut, StepPlan, Tile
from tvm_sramtile.relay.emit.convolution import convolution_chunk, whole_convolution
from tvm_sramtile.relay.emit.pointwise import elementwise, finished
from tvm_sramtile.relay.emit.pooling import pooling_chunk, whole_pooling
from tvm_sramtile.relay.emit.resizing import resize_chunk, whole_resize
from tvm_sramtile.relay.emit.site import Operands, Site, Units, relaid
from tvm_sramtile.relay.graph import Node


def whole_step(step: Step, operands: Operands) -> Node:
    """The operator with its epilogue."""
    site = Site.of(step, operands, None)
    result = finished(site, _whole(site), Range(0, step.op.out_channels))
    return relaid(result, site.layout, site.output_layout)


def chunked_step(
    step: Step,
    cut: Cut | StepPlan,
    operands: Operands,
    units: Units | None,
    fits: Callable[[Tile], bool] = lambda _: True,
) -> Node:
    """The operator on slices, put together again.

    Chunks are joined along the columns, then the rows, then the channels. What is joined is finished: the sum over
    sub-kernels and input channels, the bias, the limits and the activations come before (claim 10).

    Args:
        step: what is computed.
        cut: how it is cut.
        operands: the nodes of its tensors.
        units: the kernels that the accelerator computes; ``None``: any kernel.
        fits: whether an operator on a tile of this size is small enough; asked where there is a choice.
    """
    site = Site.of(step, operands, units, fits)
    channels = []
    for part in cut.channels:
        rows = []
        for row in cut.rows:
            cols = [finished(site, _chunk(site, cut, Chunk(part, row, col)), part) for col in cut.cols]
            rows.append(_joined(site, cols, "W"))
        channels.append(_joined(site, rows, "H"))
    return relaid(_joined(site, channels, "C"), site.layout, site.output_layout)


def _whole(site: Site) -> Node:
    match site.step.op:
        case Conv2d() | Conv2dTranspose() as op:
            return whole_convolution(site, op)
        case Pool2d() as op:
            return whole_pooling(site, op)
        case Elementwise() as op:
            return elementwise(site, op)
        case op:
            return whole_resize(site, op)


def _chunk(site: Site, cut: Cut | StepPlan, chunk: Chunk) -> Node:
    match site.step.op:
        case Conv2d() | Conv2dTranspose() as op:
            return convolution_chunk(site, op, cut, chunk)
        case Pool2d() as op:
            return pooling_chunk(site, op, chunk)
        case Elementwise() as op:
            return elementwise(site, op, chunk)
        case op:
            return resize_chunk(site, op, chunk)


def _joined(site: Site, parts: Sequence[Node], letter: str) -> Node:
    """Parts put together along an axis; one alone is the whole."""
    return parts[0] if len(parts) == 1 else relay.concatenate(parts, axis=site.axis(letter))
