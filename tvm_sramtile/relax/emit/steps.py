"""A step as Relax code: the operator, or its chunks put together again, with the epilogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose, Elementwise, Pool2d
from tvm_sramtile.ints import Range
from tvm_sramtile.ir import Step
from tvm_sramtile.plan import Chunk, Cut, StepPlan, Tile
from tvm_sramtile.relax.emit.convolution import convolution_chunk, whole_convolution
from tvm_sramtile.relax.emit.emitter import Emitter
from tvm_sramtile.relax.emit.pointwise import elementwise, finished
from tvm_sramtile.relax.emit.pooling import pooling_chunk, whole_pooling
from tvm_sramtile.relax.emit.resizing import resize_chunk, whole_resize
from tvm_sramtile.relax.emit.site import Operands, Site, Units, relaid


def whole_step(out: Emitter, step: Step, operands: Operands) -> Any:
    """The operator with its epilogue; the last call is returned, not bound."""
    site = Site.of(out, step, operands, None)
    result = finished(site, _whole(site), Range(0, step.op.out_channels))
    return relaid(out, result, site.layout, site.output_layout)


def chunked_step(
    out: Emitter,
    step: Step,
    cut: Cut | StepPlan,
    operands: Operands,
    units: Units | None,
    fits: Callable[[Tile], bool] = lambda _: True,
) -> Any:
    """The operator on slices, put together again; the last call is returned, not bound.

    Chunks are joined along the columns, then the rows, then the channels. What is joined is finished: the sum over
    sub-kernels and input channels, the bias, the limits and the activations come before (claim 10).

    Args:
        out: takes the bindings.
        step: what is computed.
        cut: how it is cut.
        operands: the expressions of its tensors.
        units: the kernels that the accelerator computes; ``None``: any kernel.
        fits: whether an operator on a tile of this size is small enough; asked where there is a choice.
    """
    site = Site.of(out, step, operands, units, fits)
    alone = len(cut.channels) * len(cut.rows) * len(cut.cols) == 1

    def made(chunk: Chunk) -> Any:
        value = finished(site, _chunk(site, cut, chunk), chunk.channels)
        return value if alone else out.leaf(value)  # now, so that nothing lives longer than it must

    channels = []
    for part in cut.channels:
        rows = [_joined(site, [made(Chunk(part, row, col)) for col in cut.cols], "W") for row in cut.rows]
        channels.append(_joined(site, rows, "H"))
    return relaid(out, _joined(site, channels, "C"), site.layout, site.output_layout)


def _whole(site: Site) -> Any:
    match site.step.op:
        case Conv2d() | Conv2dTranspose() as op:
            return whole_convolution(site, op)
        case Pool2d() as op:
            return whole_pooling(site, op)
        case Elementwise() as op:
            return elementwise(site, op)
        case op:
            return whole_resize(site, op)


def _chunk(site: Site, cut: Cut | StepPlan, chunk: Chunk) -> Any:
    match site.step.op:
        case Conv2d() | Conv2dTranspose() as op:
            return convolution_chunk(site, op, cut, chunk)
        case Pool2d() as op:
            return pooling_chunk(site, op, chunk)
        case Elementwise() as op:
            return elementwise(site, op, chunk)
        case op:
            return resize_chunk(site, op, chunk)


def _joined(site: Site, parts: Sequence[Any], letter: str) -> Any:
    """Parts put together along an axis; one alone is the whole."""
    if len(parts) == 1:
        return parts[0]
    return relax.op.concat([site.out.leaf(part) for part in parts], axis=site.axis(letter))
