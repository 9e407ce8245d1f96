"""What the engine counts, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from tvm_sramtile.isa.table import COMMAND_COUNTERS, COUNTERS, OPCODE_COUNT, OPCODES


@dataclass(frozen=True, slots=True)
class CommandCounters:
    """The commands of one kind in one step: how many, and sums over them. Fields are those of ``COMMAND_COUNTERS``."""

    commands: int
    busy_cycles: int
    macs: int
    input_bytes: int
    weight_bytes: int
    output_bytes: int
    partial_sum_bytes: int

    @property
    def dram_bytes(self) -> int:
        """All bytes moved between DRAM and SRAM."""
        return self.input_bytes + self.weight_bytes + self.output_bytes + self.partial_sum_bytes


@dataclass(frozen=True, slots=True)
class Measured:
    """What the engine counted: sums over the calls, the SRAM peak their maximum. Fields are those of ``COUNTERS``.

    ``steps`` has, for each step of the region, the kinds of commands that ran, by the opcode's name. All but the calls,
    images, cycles and the SRAM peak are sums over these. Steps overlap: their busy cycles say nothing of the cycles.
    """

    calls: int
    images: int
    cycles: int
    load_busy_cycles: int
    compute_busy_cycles: int
    store_busy_cycles: int
    load_commands: int
    compute_commands: int
    store_commands: int
    macs: int
    input_bytes: int
    weight_bytes: int
    output_bytes: int
    partial_sum_bytes: int
    sram_peak_bytes: int
    steps: tuple[Mapping[str, CommandCounters], ...] = field(default=(), hash=False)

    @classmethod
    def of(cls, values: Sequence[int]) -> Measured:
        """From the values of a counter block, in the table's order."""
        size = len(COMMAND_COUNTERS)
        rows = [CommandCounters(*values[at : at + size]) for at in range(len(COUNTERS), len(values), size)]
        steps = [rows[at : at + OPCODE_COUNT] for at in range(0, len(rows), OPCODE_COUNT)]
        ran = tuple(
            {OPCODES[code].name: counted for code, counted in enumerate(step, 1) if counted.commands} for step in steps
        )
        return cls(**dict(zip(COUNTERS, values, strict=False)), steps=ran)

    @property
    def dram_bytes(self) -> int:
        """All bytes moved between DRAM and SRAM."""
        return self.input_bytes + self.weight_bytes + self.output_bytes + self.partial_sum_bytes


def value_count(steps: int) -> int:
    """How many values the counter block of a region with so many steps has."""
    return len(COUNTERS) + steps * OPCODE_COUNT * len(COMMAND_COUNTERS)


for _kind, _names in ((Measured, (*COUNTERS, "steps")), (CommandCounters, COMMAND_COUNTERS)):
    if tuple(_field.name for _field in fields(_kind)) != _names:
        raise ImportError(f"the fields of {_kind.__name__} differ from the instruction set's: {', '.join(_names)}")
