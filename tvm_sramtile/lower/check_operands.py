"""Where the operands of commands lie in SRAM. Part of the proof of programs; see ``check_program``."""

from __future__ import annotations

from tvm_sramtile.isa import Program
from tvm_sramtile.isa.table import MEMORY_ALIGN_BYTES
from tvm_sramtile.lower.check_order import Fail

Bytes = tuple[int, int]  # the SRAM bytes [start, stop)

ELEM_BYTES = 4  # of float32, the only type so far
ENTRY_BYTES = 8  # of a table


class Operands:
    """Sizes and places of operands; counts how far each memory is used."""

    def __init__(self, program: Program) -> None:
        self.memories = program.memories
        self.lanes, self.lines, self.align = program.lanes, program.lines, program.column_align
        self.reached = [0] * len(program.memories)
        self._ends: list[tuple[int, int]] = []
        at = 0
        for size in program.memories:
            at += -at % MEMORY_ALIGN_BYTES
            self._ends.append((at, at + size))
            at += size

    def blocks(self, channels: int) -> int:
        """Channel blocks."""
        return -(channels // -self.lanes)

    def rows_bytes(self, rows: int, cols: int) -> int:
        """Bytes of the rows of one channel block, rounded up to lines."""
        return -(rows // -self.lines) * self.lines * self.row_bytes(cols)

    def row_bytes(self, cols: int) -> int:
        """Bytes of one row of one channel block."""
        return -(cols // -self.align) * self.align * self.lanes * ELEM_BYTES

    def map(self, base: int, extents: tuple[int, int, int], block_bytes: int, name: str, fail: Fail) -> Bytes:
        """The bytes of a map of these (channels, rows, cols)."""
        self.check_map(extents, block_bytes, name, fail)
        return self.place(base, self.blocks(extents[0]) * block_bytes, name, fail)

    def moved(self, base: int, extents: tuple[int, int, int], block_bytes: int, name: str, fail: Fail) -> Bytes:
        """The same of a map that is loaded, stored or copied: it ends with its last row."""
        self.check_map(extents, block_bytes, name, fail)
        channels, rows, cols = extents
        last = rows * self.row_bytes(cols)
        return self.place(base, (self.blocks(channels) - 1) * block_bytes + last, name, fail)

    def check_map(self, extents: tuple[int, int, int], block_bytes: int, name: str, fail: Fail) -> None:
        """The extents and the block of a map."""
        channels, rows, cols = extents
        if channels < 1 or rows < 1 or cols < 1:
            fail(f"{name} has {channels} channels, {rows} rows and {cols} columns")
        least = self.rows_bytes(rows, cols)
        if block_bytes < least or block_bytes % ELEM_BYTES:
            fail(f"{name}: {block_bytes} B from block to block, must be {least} or more, in whole elements")

    def weights(self, base: int, outs: int, ins: int, taps: int, fail: Fail) -> Bytes:
        """The bytes of weights."""
        return self.place(base, self.blocks(outs) * self.lanes * ins * taps * ELEM_BYTES, "weights", fail)

    def place(self, base: int, size: int, name: str, fail: Fail) -> Bytes:
        """The bytes ``[base, base + size)``, which lie within one memory; counts how far that is used."""
        if base % ELEM_BYTES:
            fail(f"{name}: address {base} is no multiple of the element size, {ELEM_BYTES}")
        if size < 1:
            fail(f"{name} has no bytes")
        stop = base + size
        for memory, (first, end) in enumerate(self._ends):
            if first <= base and stop <= end:
                if stop - first > self.reached[memory]:
                    self.reached[memory] = stop - first
                return base, stop
        return fail(f"{name}: bytes {base}-{stop} do not lie within one memory of {self.memories}")
