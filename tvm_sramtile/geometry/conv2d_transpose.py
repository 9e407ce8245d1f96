"""2-D transposed convolution: formula (4), which input rows an output range needs, and its phases."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Literal

from tvm_sramtile.geometry.phase import Phase
from tvm_sramtile.geometry.window import Window
from tvm_sramtile.ints import Range, ceil_div


def phases(kernel: int, stride: int, dilation: int, pad_before: int) -> tuple[Phase, ...]:
    """The phases of an axis: ``i*stride + t*dilation == o + pad_before`` ties input ``i``, tap ``t``, output ``o``."""
    step = stride // gcd(stride, dilation)
    found = []
    for offset in range(stride):
        taps = [tap for tap in range(kernel) if (offset + pad_before - dilation * tap) % stride == 0]
        first = (offset + pad_before - dilation * taps[-1]) // stride if taps else 0
        found.append(Phase(offset, stride, tuple(reversed(taps)), first, 1, dilation * step // stride))
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
    def out_channels_per_group(self) -> int:
        """Output channels of a group."""
        return self.out_channels // self.groups

    def groups_of(self, out: Range) -> Range:
        """The groups that output channels ``out`` belong to."""
        return Range(out.start // self.out_channels_per_group, ceil_div(out.stop, self.out_channels_per_group))

    def in_channel_range(self, out: Range) -> Range:
        """The input channels, of all groups, that output channels ``out`` sum over."""
        groups = self.groups_of(out)
        return Range(groups.start * self.in_channels_per_group, groups.stop * self.in_channels_per_group)

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

    def row_window(self, out: Range) -> Window:
        """The input rows that output rows ``out`` need, and what to crop of their full transposed convolution."""
        return self._window(0, out)

    def col_window(self, out: Range) -> Window:
        """The input columns that output columns ``out`` need, and the crop."""
        return self._window(1, out)

    @property
    def row_phases(self) -> tuple[Phase, ...]:
        """The phases of the rows."""
        return phases(self.kernel[0], self.strides[0], self.dilation[0], self.padding[0])

    @property
    def col_phases(self) -> tuple[Phase, ...]:
        """The phases of the columns."""
        return phases(self.kernel[1], self.strides[1], self.dilation[1], self.padding[1])

    def _window(self, axis: int, out: Range) -> Window:
        """Crops are negative where rows without a contributor are to be added instead."""
        size = (self.in_rows, self.in_cols)[axis]
        kernel, stride, dilation = self.kernel[axis], self.strides[axis], self.dilation[axis]
        pad = self.padding[axis]
        read = transposed_window(out, size, kernel, stride, dilation, pad)
        if not len(read):
            return Window(read, 0, 0)
        first = read.start * stride - pad
        last = (read.stop - 1) * stride - pad + dilation * (kernel - 1) + 1
        return Window(read, out.start - first, last - out.stop)
