"""What each output position reads along one axis. Part of the proofs of plans and programs.

Shares no code with the geometry: positions are listed tap by tap, never found by solving for the ends of a range. Only
the tables of a resize are taken as they are: they are what defines it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose, Elementwise, Operator, Pool2d, Resize2d

Marks = NDArray[np.int64]
Convolution = Conv2d | Conv2dTranspose


@dataclass(frozen=True, slots=True)
class Axis:
    """What each output position along one axis reads.

    Attributes:
        size: positions of the input.
        first, stop: ends of the positions read, by output; ``first`` is ``size`` and ``stop`` 0 where none is.
        spread, shift, reach: the whole convolution, plain or transposed, of input positions ``[a, b)`` by itself begins
            at the output ``a*spread - shift`` and ends at ``(b - 1)*spread - shift + reach``; 0 where nothing is padded
            or cropped.
        tops, bottoms: ends of the positions that the window of a convolution or pooling covers, padding included.
    """

    size: int
    first: Marks
    stop: Marks
    spread: int = 0
    shift: int = 0
    reach: int = 0
    tops: Marks | None = None
    bottoms: Marks | None = None

    @property
    def outs(self) -> int:
        """Output positions."""
        return len(self.first)

    def hull(self, start: int, stop: int) -> tuple[int, int] | None:
        """The ends of what the outputs ``[start, stop)`` read; ``None`` when that is nothing."""
        first, end = int(self.first[start:stop].min()), int(self.stop[start:stop].max())
        return (first, end) if first < end else None

    def windows(self, starts: Marks) -> Marks:
        """(first position read, stop, before, after) of the runs of outputs that begin at ``starts``."""
        first, stop = np.minimum.reduceat(self.first, starts), np.maximum.reduceat(self.stop, starts)
        nothing = stop <= first
        before, after = np.zeros_like(first), np.zeros_like(first)
        if self.tops is not None and self.bottoms is not None:
            top, bottom = np.minimum.reduceat(self.tops, starts), np.maximum.reduceat(self.bottoms, starts)
            before, after = np.where(nothing, bottom - top, first - top), np.where(nothing, 0, bottom - stop)
        elif self.spread:
            ends = np.append(starts[1:], self.outs)
            before = np.where(nothing, 0, starts - (first * self.spread - self.shift))
            after = np.where(nothing, 0, (stop - 1) * self.spread - self.shift + self.reach - ends)
        return np.stack([np.where(nothing, 0, first), np.where(nothing, 0, stop), before, after], axis=1)


def axes_of(op: Operator) -> tuple[Axis, Axis]:
    """The rows and the columns of an operator."""
    return _axis_of(op, 0), _axis_of(op, 1)


def _axis_of(op: Operator, axis: int) -> Axis:
    size = (op.in_rows, op.in_cols)[axis]
    match op:
        case Conv2d():
            before, after = op.padding[axis], op.padding[axis + 2]
            kernel, dilation = op.kernel[axis], op.dilation[axis]
            tops = np.arange(-before, size + after - dilation * (kernel - 1), op.strides[axis], dtype=np.int64)
            return _sliding(size, tops, kernel, dilation)
        case Pool2d():
            outs = np.arange((op.out_rows, op.out_cols)[axis], dtype=np.int64)
            return _sliding(size, outs * op.strides[axis] - op.padding[axis], op.kernel[axis], op.dilation[axis])
        case Conv2dTranspose():
            return _spreading(op, axis, size)
        case Resize2d():
            table = (op.rows, op.cols)[axis]
            first = np.array(table.first, np.int64)
            return Axis(size, first, first + np.array([len(weights) for weights in table.weights], np.int64))
        case Elementwise():
            positions = np.arange(size, dtype=np.int64)
            return Axis(size, positions, positions + 1)


def _sliding(size: int, tops: Marks, kernel: int, dilation: int) -> Axis:
    """A window that starts at ``tops``."""
    first, stop = np.full(len(tops), size, np.int64), np.zeros(len(tops), np.int64)
    for tap in range(kernel):
        at = tops + tap * dilation
        within = (at >= 0) & (at < size)
        first = np.where(within, np.minimum(first, at), first)
        stop = np.where(within, np.maximum(stop, at + 1), stop)
    return Axis(size, first, stop, tops=tops, bottoms=tops + dilation * (kernel - 1) + 1)


def _spreading(op: Conv2dTranspose, axis: int, size: int) -> Axis:
    """Each input position adds to one output a tap; what falls outside the output is cropped."""
    kernel, stride, dilation, pad = op.kernel[axis], op.strides[axis], op.dilation[axis], op.padding[axis]
    reach = dilation * (kernel - 1) + 1
    outs = max(0, (size - 1) * stride + reach - pad - op.padding[axis + 2] + op.output_padding[axis])
    first, stop = np.full(outs, size, np.int64), np.zeros(outs, np.int64)
    positions = np.arange(size, dtype=np.int64)
    for tap in range(kernel):
        target = positions * stride + tap * dilation - pad
        kept = (target >= 0) & (target < outs)
        out, read = target[kept], positions[kept]
        first[out], stop[out] = np.minimum(first[out], read), np.maximum(stop[out], read + 1)
    return Axis(size, first, stop, spread=stride, shift=pad, reach=reach)


def tap_reads(op: Convolution, axis: int, outs: Marks, taps: Sequence[int]) -> tuple[Marks, Marks]:
    """The ends of the positions that each of the outputs ``outs`` reads with some taps: first and stop.

    Where none does, first is the size of the input and stop 0.
    """
    size, stride, dilation, pad = (op.in_rows, op.in_cols)[axis], op.strides[axis], op.dilation[axis], op.padding[axis]
    first, stop = np.full(len(outs), size, np.int64), np.zeros(len(outs), np.int64)
    for tap in taps:
        at = outs * stride - pad + tap * dilation
        within = np.ones(len(outs), np.bool_)
        if isinstance(op, Conv2dTranspose):
            at, rest = np.divmod(outs + pad - tap * dilation, stride)
            within = rest == 0
        within &= (at >= 0) & (at < size)
        first = np.where(within, np.minimum(first, at), first)
        stop = np.where(within, np.maximum(stop, at + 1), stop)
    return first, stop


def phase_taps(op: Convolution, axis: int, outs: int) -> Mapping[int, tuple[int, ...]]:
    """The taps that reach each phase of the outputs, in the order of the input that they read.

    A plain convolution has one phase, 0. The phase of an output of a transposed one is its remainder by the stride.
    """
    taps = range(op.kernel[axis])
    if isinstance(op, Conv2d):
        return {0: tuple(taps)}
    stride = op.strides[axis]
    phases: dict[int, list[int]] = {phase: [] for phase in range(min(stride, outs))}
    for tap in reversed(taps):
        phase = (tap * op.dilation[axis] - op.padding[axis]) % stride
        if phase in phases:
            phases[phase].append(tap)
    return {phase: tuple(reach) for phase, reach in phases.items()}
