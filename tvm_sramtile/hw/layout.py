"""How a feature map lies in SRAM, and the footprint that follows: formula (1)."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_sramtile.ints import ceil_div, round_up


@dataclass(frozen=True, slots=True)
class StorageLayout:
    """A channel-blocked feature map: ``[channel block][row][column][lane]``.

    A channel block holds ``channel_align`` channels (the lanes). Rows of a block are rounded up to ``lines``, the
    number of SRAM lines (banks that hold successive rows), columns to ``column_align``. Another RAM design is another
    set of alignments.
    """

    lines: int = 1
    column_align: int = 1
    channel_align: int = 16

    def blocks(self, channels: int) -> int:
        """How many channel blocks hold ``channels``."""
        return ceil_div(channels, self.channel_align)

    def row_elems(self, cols: int) -> int:
        """Elements from one row of a channel block to the next."""
        return round_up(cols, self.column_align) * self.channel_align

    def block_elems(self, rows: int, cols: int) -> int:
        """Elements from one channel block to the next."""
        return round_up(rows, self.lines) * self.row_elems(cols)

    def footprint_bytes(self, rows: int, cols: int, channels: int, dtype_bytes: int) -> int:
        """Formula (1): ``ceil(rows / lines)*lines * cols * ceil(ch / ch_align)*ch_align * dtype_bytes``."""
        return self.blocks(channels) * self.block_elems(rows, cols) * dtype_bytes
