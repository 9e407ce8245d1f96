"""The SRAM while a program is followed: which operand lies where. Part of the proof of programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from tvm_sramtile.lower.check_made import Extents, Held, Loaded, Made, Span, Table, Wanted, Weights
from tvm_sramtile.lower.check_operands import Bytes, Operands
from tvm_sramtile.lower.check_order import Clock, Fail, Space

_Kind = TypeVar("_Kind", Loaded, Weights, Table, Made)

_LOAD, _COMPUTE = 0, 1


def extents_of(held: Loaded) -> Extents:
    """Channels, rows and columns."""
    return held.channels[1] - held.channels[0], held.rows[1] - held.rows[0], held.cols[1] - held.cols[0]


@dataclass(frozen=True, slots=True)
class Kept:
    """A map that stays in SRAM, whole, after the step that makes it.

    Attributes:
        place: all its bytes.
        extents: its channels, rows and columns.
        block_bytes: from block to block.
        step: index of the step.
        wanted: what the step's results must be.
        chunks: the channels that the step makes at a time.
    """

    place: Bytes
    extents: Extents
    block_bytes: int
    step: int
    wanted: Wanted
    chunks: frozenset[Span]


class Sram:
    """What lies in SRAM, and who put it there.

    Attributes:
        kept: the maps that stay, by the tensors' names.
        clock: what has surely finished when the command at hand starts.
        lasting: what the prologue left and the body reads.
    """

    def __init__(self, operands: Operands, kept: Mapping[str, Kept], fail: Fail) -> None:
        self.operands, self.kept, self.fail = operands, kept, fail
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
        """The operand that is a loaded map, or vector, of tensor ``name``; or a map that stays, or channels of it."""
        place = self.operands.map(at, extents, block_bytes, what, self.fail)
        kept = self.kept.get(name or "")
        if kept is not None and kept.place[0] <= place[0] and place[1] <= kept.place[1]:
            return place, self.stayed(place, extents, block_bytes, str(name), kept)
        held = self.held(place, Loaded, what)
        role = "vector" if what in ("bias", "vector") else "data"
        found = extents_of(held)
        if held.role != role or name not in held.names:
            self.fail(f"{what}: reads {name}, but there lies {held.role} {', '.join(sorted(held.names))}")
        if found != extents or held.block_bytes != block_bytes:
            self.fail(
                f"{what}: reads {extents} with blocks of {block_bytes} B, but there lie {found} of {held.block_bytes} B"
            )
        return place, held

    def stayed(self, place: Bytes, extents: Extents, block_bytes: int, name: str, kept: Kept) -> Loaded:
        """These channels of a map that stays: all that lies there is what its step makes, whole and in its place."""
        lanes = self.operands.lanes
        if (extents[1:], block_bytes) != (kept.extents[1:], kept.block_bytes):
            found = f"{kept.extents} with blocks of {kept.block_bytes} B"
            self.fail(f"reads {extents} with blocks of {block_bytes} B of {name}, which stays in SRAM as {found}")
        rows, cols = (0, extents[1]), (0, extents[2])
        for cell in self.space.read(*place, _COMPUTE, self.clock, self.fail):
            made, (block, rest) = cell.value, divmod(cell.start - kept.place[0], block_bytes)
            if not isinstance(made, Made) or made.step != kept.step:
                self.fail(
                    f"reads SRAM bytes {cell.start}-{cell.stop} as {name}, but its step did not make what lies there"
                )
            channels = (block * lanes, block * lanes + made.extents[0])
            if (
                rest
                or channels not in kept.chunks
                or (made.extents[1:], made.block_bytes) != (extents[1:], block_bytes)
            ):
                self.fail(f"reads {name}: {made.extents} from byte {cell.start} on are no chunk of it")
            kept.wanted.prove(made, channels, rows, cols, self.fail)
        first, rest = divmod(place[0] - kept.place[0], block_bytes)
        channels = (first * lanes, first * lanes + extents[0])
        if rest or channels[1] > kept.extents[0]:
            self.fail(f"reads the channels {channels} of {name}, which has {kept.extents[0]}")
        return Loaded("data", frozenset({name}), channels, rows, cols, block_bytes)

    def load(self, start: int, held: Loaded) -> None:
        """``held`` is loaded: as one operand, or as the rows that follow those of one that is there already."""
        old, at = self.loaded(start)
        if old is not None and replace(old, rows=held.rows) == held and old.rows[1] == held.rows[0]:
            rows_bytes = (old.rows[1] - old.rows[0]) * self.operands.row_bytes(held.cols[1] - held.cols[0])
            if start == at + rows_bytes:
                start, held = at, replace(held, rows=(old.rows[0], held.rows[1]))
        self.space.write(*self.place(start, held), _LOAD, self.clock, held, self.fail)

    def loaded(self, address: int) -> tuple[Loaded | None, int]:
        """The map over an address that was loaded last, and where it begins."""
        for cell in self.space.over(address, address + 1):
            if isinstance(cell.value, Loaded):
                return cell.value, cell.start
        return None, 0

    def copy(self, fields: Mapping[str, int]) -> None:
        """Rows of a map that is there become, in another place or the same, the first rows of one that is not yet."""
        source, extents = fields["source"], (fields["channels"], fields["rows"], fields["cols"])
        for name in ("source", "target"):
            self.operands.moved(fields[name], extents, fields["block_bytes"], name, self.fail)
        old, at = self.loaded(source)
        if old is None:
            self.fail(f"copies from the SRAM byte {source}, where no map was loaded")
        first, rest = divmod(source - at, self.operands.row_bytes(extents[2]))
        held = replace(old, rows=(old.rows[0] + first, old.rows[0] + first + extents[1]))
        alike = extents_of(held) == extents and held.block_bytes == fields["block_bytes"]
        if rest or not alike or held.rows[1] > old.rows[1]:
            found = f"{extents_of(old)} with blocks of {old.block_bytes} B from the byte {at} on"
            self.fail(
                f"copies {extents} with blocks of {fields['block_bytes']} B from the byte {source}, there lie {found}"
            )
        here, there = self.place(at, old), self.place(fields["target"], held)
        if there != here and there[0] < here[1] and here[0] < there[1]:
            self.fail(f"copies to the SRAM bytes {there[0]}-{there[1]}, which overlap the map in {here[0]}-{here[1]}")
        self.held(here, Loaded, "source", _LOAD)
        self.space.write(*there, _LOAD, self.clock, held, self.fail)

    def place(self, start: int, held: Loaded) -> Bytes:
        """The bytes of a map as an operand of a computation."""
        return self.operands.map(start, extents_of(held), held.block_bytes, "sram", self.fail)

    def apart(self, results: Sequence[Bytes], operands: Sequence[Bytes], *, same: bool = False) -> None:
        """Results overlap no operand; with ``same``, unless they are the same."""
        for start, stop in results:
            for other, end in operands:
                if start < end and other < stop and not (same and (start, stop) == (other, end)):
                    self.fail(f"result in SRAM bytes {start}-{stop} overlaps the operand in {other}-{end}")

    def write(self, place: Bytes, made: Made) -> None:
        """``made`` is left in ``place``."""
        self.space.write(*place, _COMPUTE, self.clock, made, self.fail)
