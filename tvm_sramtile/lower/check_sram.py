"""The SRAM while a program is followed: which operand lies where. Part of the proof of programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tvm_sramtile.lower.check_made import Extents, Held, Loaded, Made, Table, Weights
from tvm_sramtile.lower.check_operands import Bytes, Operands
from tvm_sramtile.lower.check_order import Clock, Fail, Space

_Kind = TypeVar("_Kind", Loaded, Weights, Table, Made)

_COMPUTE = 1


class Sram:
    """What lies in SRAM, and who put it there.

    Attributes:
        clock: what has surely finished when the command at hand starts.
        lasting: what the prologue left and the body reads.
    """

    def __init__(self, operands: Operands, fail: Fail) -> None:
        self.operands, self.fail = operands, fail
        self.space: Space[Held] = Space("SRAM bytes")
        self.clock: Clock = (0, 0, 0)
        self.lasting: dict[Bytes, Held] = {}

    def held(self, place: Bytes, kind: type[_Kind], what: str, queue: int = _COMPUTE) -> _Kind:
        """What ``place`` holds, which must be one operand of this kind and whole."""
        start, stop = place
        cell = self.space.read(start, stop, queue, self.clock, self.fail)[0]
        held = cell.value
        if held is None or (cell.start, cell.stop) != place:
            self.fail(f"reads SRAM bytes {start}-{stop} as {what}, but they hold no one operand")
        if not isinstance(held, kind):
            self.fail(f"reads SRAM bytes {start}-{stop} as {what}, but they hold {type(held).__name__.lower()}")
        if cell.count == 0:
            self.lasting[place] = held
        return held

    def map(self, at: int, extents: Extents, block_bytes: int, what: str, name: str | None) -> tuple[Bytes, Loaded]:
        """The operand that is a loaded map, or vector, of tensor ``name``."""
        place = self.operands.map(at, extents, block_bytes, what, self.fail)
        held = self.held(place, Loaded, what)
        role = "vector" if what in ("bias", "vector") else "data"
        found = tuple(stop - start for start, stop in (held.channels, held.rows, held.cols))
        if held.role != role or name not in held.names:
            self.fail(f"{what}: reads {name}, but there lies {held.role} {', '.join(sorted(held.names))}")
        if found != extents or held.block_bytes != block_bytes:
            self.fail(
                f"{what}: reads {extents} with blocks of {block_bytes} B, but there lie {found} of {held.block_bytes} B"
            )
        return place, held

    def apart(self, results: Sequence[Bytes], operands: Sequence[Bytes], *, same: bool = False) -> None:
        """Results overlap no operand; with ``same``, unless they are the same."""
        for start, stop in results:
            for other, end in operands:
                if start < end and other < stop and not (same and (start, stop) == (other, end)):
                    self.fail(f"result in SRAM bytes {start}-{stop} overlaps the operand in {other}-{end}")

    def write(self, place: Bytes, made: Made) -> None:
        """``made`` is left in ``place``."""
        self.space.write(*place, _COMPUTE, self.clock, made, self.fail)
