"""2-D convolution: attributes, extents, and the questions that the planner asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tvm_sramtile.geometry.phase import Phase
from tvm_sramtile.geometry.window import Window, conv_extent, conv_window
from tvm_sramtile.ints import Range, ceil_div


@dataclass(frozen=True, slots=True)
class Conv2d:
    """A convolution of one image. Channels, rows and columns in elements; pairs are (rows, cols).

    Attributes:
        padding: (top, left, bottom, right), as TVM gives them.
        groups: channels fall into this many independent groups; ``groups == in_channels`` is depthwise.
    """

    in_channels: int
    in_rows: int
    in_cols: int
    out_channels: int
    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    kind: Literal["conv2d"] = "conv2d"

    @property
    def direction(self) -> str:
        """Chunks are cut along the output; their input rows follow (claim 3)."""
        return "output-to-input"

    @property
    def tested_map(self) -> str:
        """The map whose footprint is tested: formula (1) with the input rows of formula (2)."""
        return "input"

    @property
    def out_rows(self) -> int:
        """Output rows."""
        top, _, bottom, _ = self.padding
        return conv_extent(self.in_rows, self.kernel[0], self.strides[0], self.dilation[0], top, bottom)

    @property
    def out_cols(self) -> int:
        """Output columns."""
        _, left, _, right = self.padding
        return conv_extent(self.in_cols, self.kernel[1], self.strides[1], self.dilation[1], left, right)

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
        """OIHW: (output channels, input channels of a group, kernel rows, kernel cols)."""
        return (self.out_channels, self.in_channels_per_group, *self.kernel)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one image; taps in padding count, as is the custom."""
        rows, cols = self.kernel
        return self.out_rows * self.out_cols * self.out_channels * self.in_channels_per_group * rows * cols

    def row_window(self, out: Range) -> Window:
        """The input rows that output rows ``out`` read, and their own pads."""
        return conv_window(out, self.in_rows, self.kernel[0], self.strides[0], self.dilation[0], self.padding[0])

    def col_window(self, out: Range) -> Window:
        """The input columns that output columns ``out`` read, and their own pads."""
        return conv_window(out, self.in_cols, self.kernel[1], self.strides[1], self.dilation[1], self.padding[1])

    @property
    def row_phases(self) -> tuple[Phase, ...]:
        """One phase: all rows."""
        return (Phase(0, 1, tuple(range(self.kernel[0])), -self.padding[0], self.strides[0], self.dilation[0]),)

    @property
    def col_phases(self) -> tuple[Phase, ...]:
        """One phase: all columns."""
        return (Phase(0, 1, tuple(range(self.kernel[1])), -self.padding[1], self.strides[1], self.dilation[1]),)
