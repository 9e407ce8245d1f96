"""Dependencies between the queues, derived from the operands' overlap in SRAM and in the workspace."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace

from tvm_sramtile.isa import Command, Queue
from tvm_sramtile.lower.slots import Slot

_QUEUES = len(Queue)


@dataclass(slots=True)
class _Uses:
    """How many commands of each queue had been issued when a place was last written, and last read by each queue."""

    written: list[int] = field(default_factory=lambda: [0] * _QUEUES)
    read: list[int] = field(default_factory=lambda: [0] * _QUEUES)


class Sequencer:
    """Takes commands in program order, gives each the waits that its operands demand.

    A place is an SRAM slot or the name of a workspace tensor. Slots of different steps may overlap: the overlaps of a
    new slot are found once, when it first occurs, so that the cost of a command does not depend on how many there were.
    """

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self._issued = [0] * _QUEUES
        self._uses: dict[Hashable, _Uses] = {}
        self._overlaps: dict[Hashable, list[_Uses]] = {}

    def add(self, command: Command, reads: Iterable[Slot | str], writes: Iterable[Slot | str]) -> None:
        """Append ``command``, which reads and writes these places."""
        waits = [0] * _QUEUES
        queue = int(command.queue)
        reads, writes = tuple(reads), tuple(writes)
        for place in reads:
            for uses in self._at(place):
                waits = [max(pair) for pair in zip(waits, uses.written, strict=True)]
        for place in writes:
            for uses in self._at(place):
                waits = [max(triple) for triple in zip(waits, uses.written, uses.read, strict=True)]
        waits[queue] = 0  # a queue keeps its own order
        self.commands.append(replace(command, waits=(waits[0], waits[1], waits[2])))
        self._issued[queue] += 1
        for place in reads:
            self._uses[place].read[queue] = self._issued[queue]
        for place in writes:
            self._uses[place].written[queue] = self._issued[queue]

    def _at(self, place: Slot | str) -> list[_Uses]:
        if place not in self._uses:
            self._uses[place] = _Uses()
            self._overlaps[place] = []
            for other in self._uses:
                if _share(place, other):
                    self._overlaps[place].append(self._uses[other])
                    if other != place:
                        self._overlaps[other].append(self._uses[place])
        return self._overlaps[place]


def _share(place: Slot | str, other: Hashable) -> bool:
    if isinstance(place, Slot) and isinstance(other, Slot):
        return place.overlaps(other)
    return place == other
