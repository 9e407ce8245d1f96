"""2-D transposed convolution: formula (4), which input rows an output range needs, and its phases."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Literal

from tvm_sramtile.ints import Range, ceil_div


@dataclass(frozen=True, slots=True)
class Phase:
    """The outputs ``offset, offset + stride, ...`` along one axis: an ordinary convolution of stride 1 over the input.

    Output ``offset + q*stride`` is the sum over ``j`` of ``input[q + first + dilation*j] * weight[taps[j]]``.

    Attributes:
        offset: the phase, in ``[0, stride)``.
        taps: kernel positions that reach these outputs, in the order of the input they read; none where the stride
            exceeds the kernel.
        first: input position, relative to ``q``, that ``taps[0]`` reads.
        dilation: input positions from one tap to the next.
    """

    offset: int
    taps: tuple[int, ...]
    first: int
    dilation: int

    def steps(self, out: Range, stride: int) -> Range:
        """The ``q`` whose outputs lie in ``out``."""
        start = max(0, ceil_div(out.start - self.offset, stride))
        return Range(start, max(start, ceil_div(out.stop - self.offset, stride)))


def phases(kernel: int, stride: int, dilation: int, pad_before: int) -> tuple[Phase, ...]:
    """The phases of an axis: ``i*stride + t*dilation == o + pad_before`` ties input ``i``, tap ``t``, output ``o``."""
    step = stride // gcd(stride, dilation)
    found = []
    for offset in range(stride):
        taps = [tap for tap in range(kernel) if (offset + pad_before - dilation * tap) % stride == 0]
        first = (offset + pad_before - dilation * taps[-1]) // stride if taps else 0
        found.append(Phase(offset, tuple(reversed(taps)), first, dilation * step // stride))
    return tuple(found)


def transposed_extent(
    size: int, kernel: int, stride: int, dilation: int, pad_before: int, pad_after: int, output_padding: int
) -> int:
    """Output positions: ``(size - 1)*stride + dilation*(kernel - 1) + 1`` (formula (4)), less pads, plus the rest."""
    return (size - 1) * stride + dilation * (kernel - 1) + 1 - pad_before - pad_after + output_padding


def transposed_window(out: Range, size: int, kernel: int, stride: int, dilation: int, pad_before: int) -> Range:
    """The least range of input positions that the outputs ``out`` need; empty where none contributes."""
    first, last = size, -1
    for tap in range(kernel):
        shift = pad_before - dilation * tap
        least = max(0, ceil_div(out.start + shift, stride))
        most = min(size - 1, (out.stop - 1 + shift) // stride)
        if least <= most:
            first, last = min(first, least), max(last, most)
    return Range(first, last + 1) if first <= last else Range(0, 0)


@dataclass(frozen=True, slots=True)
class Conv2dTranspose:
    """A transposed convolution of one image. Channels, rows and columns in elements; pairs are (rows, cols).

    Attributes:
        padding: (top, left, bottom, right), cropped from the full output.
        output_padding: rows and columns added below and on the right.
        groups: channels fall into this many independent groups.
    """

    in_channels: int
    in_rows: int
    in_cols: int
    out_channels: int
    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    output_padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    kind: Literal["conv2d_transpose"] = "conv2d_transpose"

    @property
    def direction(self) -> str:
        """The seed's direction class (claim 3); chunks never overlap, since they are pulled by output rows."""
        return "input-to-output"

    @property
    def tested_map(self) -> str:
        """The map whose footprint is tested: formula (1) with the output rows of formula (4)."""
        return "output"

    @property
    def out_rows(self) -> int:
        """Output rows."""
        top, _, bottom, _ = self.padding
        k, s, d, extra = self.kernel[0], self.strides[0], self.dilation[0], self.output_padding[0]
        return transposed_extent(self.in_rows, k, s, d, top, bottom, extra)

    @property
    def out_cols(self) -> int:
        """Output columns."""
        _, left, _, right = self.padding
        k, s, d, extra = self.kernel[1], self.strides[1], self.dilation[1], self.output_padding[1]
        return transposed_extent(self.in_cols, k, s, d, left, right, extra)

    @property
    def in_channels_per_group(self) -> int:
        """Input channels that one output channel sums over."""
        return self.in_channels // self.groups

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        """IOHW: (input channels, output channels of a group, kernel rows, kernel cols)."""
        return (self.in_channels, self.out_channels // self.groups, *self.kernel)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one image: every input element meets every tap, also where the output is cropped."""
        rows, cols = self.kernel
        return self.in_rows * self.in_cols * self.in_channels * (self.out_channels // self.groups) * rows * cols
