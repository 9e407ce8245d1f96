"""What surely happens before what: clocks of the queues, and who used which part of a memory.

Part of the proof of programs; see ``check_program``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NoReturn, TypeVar

from tvm_sramtile.isa import Command, Queue

Fail = Callable[[str], NoReturn]
Clock = tuple[int, int, int]  # how many commands of (load, compute, store) have surely finished

_Value = TypeVar("_Value")
_NAMES = tuple(queue.name.lower() for queue in Queue)
_READS = ("reads",) * len(Queue)


class Clocks:
    """One clock a command: what has surely finished when it starts, in whatever order the queues run otherwise."""

    def __init__(self) -> None:
        self.finished: tuple[list[Clock], ...] = tuple([(0, 0, 0)] for _ in Queue)  # [queue][n]: when its first n are

    def start(self, command: Command, queue: int, fail: Fail) -> Clock:
        """The clock at ``command``'s start, who comes after all that were given before; then it counts as issued."""
        own = self.finished[queue]
        clock = own[-1]  # a queue keeps its own order
        for wait, name, ends in zip(command.waits, _NAMES, self.finished, strict=True):
            if not 0 <= wait < len(ends):
                fail(f"waits for {wait} {name} commands, but only {len(ends) - 1} come before it")
            if wait:
                (a, b, c), (d, e, f) = clock, ends[wait]
                clock = (a if a > d else d, b if b > e else e, c if c > f else f)
        end = list(clock)
        end[queue] = len(own)
        own.append((end[0], end[1], end[2]))
        return clock


@dataclass(slots=True)
class Cell(Generic[_Value]):
    """A part of a memory, ``[start, stop)``, last written as one piece.

    Attributes:
        queue: who wrote it.
        count: as the ``count``-th command of its queue; 0: before this part of the program.
        value: what was written; ``None`` when it is of no use, or when a part of it has been overwritten.
        read: by queue, the last command that read it since.
    """

    start: int
    stop: int
    queue: int
    count: int
    value: _Value | None
    read: list[int]


class Space(Generic[_Value]):
    """A memory: its cells in order of address, without overlap.

    Since all uses of an address up to its last write are proven to be in order, a new use need only come after that
    write and the reads since.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._starts: list[int] = []
        self._cells: list[Cell[_Value]] = []

    def settle(self) -> None:
        """All uses so far have finished: the next part of a program starts."""
        for cell in self._cells:
            cell.count, cell.read = 0, [0, 0, 0]

    def over(self, start: int, stop: int) -> list[Cell[_Value]]:
        """The cells that share an address with ``[start, stop)``."""
        first, last = self._range(start, stop)
        return self._cells[first:last]

    def holds(self, start: int, stop: int) -> _Value | None:
        """What ``[start, stop)`` was last written with as one piece; ``None`` where it was not."""
        at = bisect_right(self._starts, start) - 1
        if at < 0:
            return None
        cell = self._cells[at]
        return cell.value if cell.start == start and cell.stop == stop else None

    def read(self, start: int, stop: int, queue: int, clock: Clock, fail: Fail) -> list[Cell[_Value]]:
        """A command of ``queue`` reads ``[start, stop)``: proves that all of it was written; returns the cells."""
        cells, at = self.over(start, stop), start
        for cell in cells:
            if cell.start > at:
                break
            if clock[cell.queue] < cell.count:
                what = f"{_NAMES[cell.queue]} command {cell.count - 1}"
                fail(f"may run before {what}, which writes the {self.name} {cell.start}-{cell.stop} that it reads")
            cell.read[queue] = clock[queue] + 1
            at = cell.stop
        if at < stop:
            fail(f"reads the {self.name} {start}-{stop}, but nothing wrote those from {at}")
        return cells

    def write(self, start: int, stop: int, queue: int, clock: Clock, value: _Value | None, fail: Fail) -> None:
        """A command of ``queue`` writes ``[start, stop)``: proves that all uses of what was there have finished."""
        first, last = self._range(start, stop)
        for old in self._cells[first:last]:
            reads = list(old.read)
            reads[queue] = 0  # a queue keeps its own order, and a command reads before it writes
            if clock[old.queue] < old.count or clock[0] < reads[0] or clock[1] < reads[1] or clock[2] < reads[2]:
                self._blame(old, reads, clock, fail)
        if last == first + 1 and (old := self._cells[first]).start == start and old.stop == stop:
            old.queue, old.count, old.value, old.read = queue, clock[queue] + 1, value, [0, 0, 0]
            return
        cells: list[Cell[_Value]] = [Cell(start, stop, queue, clock[queue] + 1, value, [0, 0, 0])]
        for old in self._cells[first:last]:
            for begin, end in ((old.start, start), (stop, old.stop)):
                if begin < end:
                    cells.append(Cell(begin, end, old.queue, old.count, None, list(old.read)))
        cells.sort(key=lambda cell: cell.start)
        self._cells[first:last] = cells
        self._starts[first:last] = [cell.start for cell in cells]

    def _blame(self, old: Cell[_Value], reads: list[int], clock: Clock, fail: Fail) -> None:
        for user, count, does in ((old.queue, old.count, "writes"), *zip(Queue, reads, _READS, strict=True)):
            if clock[user] < count:
                what = f"{_NAMES[user]} command {count - 1}, which {does} the {self.name} {old.start}-{old.stop}"
                fail(f"may run before {what} that it overwrites")

    def _range(self, start: int, stop: int) -> tuple[int, int]:
        cells = self._cells
        first = max(0, bisect_right(self._starts, start) - 1)
        if first < len(cells) and cells[first].stop <= start:
            first += 1
        last = first
        while last < len(cells) and cells[last].start < stop:
            last += 1
        return first, last
