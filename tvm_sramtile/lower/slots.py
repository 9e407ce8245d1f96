"""SRAM addresses: the plan's buffers, placed one after the other in their memories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from tvm_sramtile.errors import CheckFailed
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.isa import memory_starts
from tvm_sramtile.plan import StepPlan
from tvm_sramtile.plan.plan import POOL


@dataclass(frozen=True, slots=True)
class Slot:
    """The SRAM bytes ``[address, address + bytes)`` that one copy of a buffer has."""

    address: int
    bytes: int

    def overlaps(self, other: Slot) -> bool:
        """Whether the two share a byte."""
        return self.address < other.address + other.bytes and other.address < self.address + self.bytes


def place_buffers(plan: StepPlan, spec: AcceleratorSpec) -> Mapping[str, tuple[Slot, ...]]:
    """The slots of each buffer by its name, in order of its copies; raises ``CheckFailed`` when a memory overflows."""
    slots: dict[str, tuple[Slot, ...]] = {}
    starts = memory_starts(spec.memories.values())
    for (memory, size), base in zip(spec.memories.items(), starts, strict=False):
        at = base + (plan.around.taken_bytes if memory == POOL else 0)
        for buffer in plan.buffers:
            if buffer.memory == memory:
                ends = tuple(accumulate(buffer.copies, initial=at))
                slots[buffer.name] = tuple(map(Slot, ends, buffer.copies))
                at = ends[-1]
        if at > base + size:
            raise CheckFailed(f"step {plan.step}: its buffers take {at - base} B of the {size} B of memory {memory}")
    return slots
