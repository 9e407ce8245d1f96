"""2-D pooling: a window that slides over each channel by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tvm_sramtile.geometry.window import Window, conv_window
from tvm_sramtile.ints import Range

Pooling = Literal["max", "average_all", "average_valid"]


@dataclass(frozen=True, slots=True)
class Pool2d:
    """A pooling of one image. Extents in elements; pairs are (rows, cols).

    Attributes:
        channels: of input and output.
        out_rows, out_cols: given, since rounding up (``ceil_mode``) is the front end's choice.
        pooling: the greatest, the sum over the window's size, or the sum over the positions that lie in the map.
        padding: (top, left): what lies below and on the right follows from the outputs.
    """

    channels: int
    in_rows: int
    in_cols: int
    out_rows: int
    out_cols: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    pooling: Pooling
    kind: Literal["pool2d"] = "pool2d"

    @property
    def direction(self) -> str:
        """Like a convolution, from output to input."""
        return "output-to-input"

    @property
    def tested_map(self) -> str:
        """The input map."""
        return "input"

    @property
    def in_channels(self) -> int:
        """Input channels."""
        return self.channels

    @property
    def out_channels(self) -> int:
        """Output channels."""
        return self.channels

    def in_channel_range(self, out: Range) -> Range:
        """The same channels."""
        return out

    @property
    def macs(self) -> int:
        """No multiplications."""
        return 0

    def row_window(self, out: Range) -> Window:
        """The input rows that output rows ``out`` read."""
        return conv_window(out, self.in_rows, self.kernel[0], self.strides[0], self.dilation[0], self.padding[0])

    def col_window(self, out: Range) -> Window:
        """The input columns that output columns ``out`` read."""
        return conv_window(out, self.in_cols, self.kernel[1], self.strides[1], self.dilation[1], self.padding[1])
