"""Elementwise operators: each output element has one input element, and perhaps a partner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tvm_sramtile.geometry.window import Window
from tvm_sramtile.ints import Range

Function = Literal[
    "copy",
    "add",
    "subtract",
    "reverse_subtract",
    "multiply",
    "divide",
    "reverse_divide",
    "maximum",
    "minimum",
    "prelu",
    "clip",
    "leaky_relu",
    "sigmoid",
    "tanh",
    "exp",
    "sqrt",
    "abs",
    "negative",
    "silu",
    "hard_swish",
]
Partner = Literal["none", "map", "vector", "value"]


@dataclass(frozen=True, slots=True)
class Elementwise:
    """A function of each element of a map of one image.

    Attributes:
        function: by the name that the instruction set has for it, in lower case; a function without a partner is a
            ``copy`` with an activation.
        partner: the second operand: a map of the same extents, one value a channel, ``value``, or none.
    """

    channels: int
    rows: int
    cols: int
    function: Function
    partner: Partner = "none"
    value: float = 0.0
    kind: Literal["elementwise"] = "elementwise"

    @property
    def direction(self) -> str:
        """Chunks may be cut from either side."""
        return "any"

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

    @property
    def in_rows(self) -> int:
        """Input rows."""
        return self.rows

    @property
    def in_cols(self) -> int:
        """Input columns."""
        return self.cols

    @property
    def out_rows(self) -> int:
        """Output rows."""
        return self.rows

    @property
    def out_cols(self) -> int:
        """Output columns."""
        return self.cols

    def in_channel_range(self, out: Range) -> Range:
        """The same channels."""
        return out

    @property
    def macs(self) -> int:
        """No multiply-accumulates."""
        return 0

    def row_window(self, out: Range) -> Window:
        """The same rows."""
        return Window(out, 0, 0)

    def col_window(self, out: Range) -> Window:
        """The same columns."""
        return Window(out, 0, 0)
