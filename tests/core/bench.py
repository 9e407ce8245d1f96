"""One compute command at a time on maps and tables in SRAM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from core.programs import SPEC, Float, Sram, program, tensor

from tvm_sramtile.engine.reference import Measured, interpret
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ints import Range
from tvm_sramtile.isa import Command, Dtype, Layout, Place, TensorRecord, Traffic
from tvm_sramtile.isa.table import LOAD, LOAD_TABLE, STORE

Shape = tuple[int, int, int]


class Bench:
    """Loads maps into SRAM, runs one compute command, stores the output map.

    The command's operands are placed one after the other; ``run`` gives the output map and what was measured.
    """

    def __init__(self, spec: AcceleratorSpec = SPEC) -> None:
        self.spec, self.sram = spec, Sram(spec)
        self.records: list[TensorRecord] = []
        self.arguments: list[Float] = []
        self.constants = b""
        self.body: list[Command] = []

    def argument(self, record: TensorRecord, value: Float) -> int:
        self.records.append(replace(record, offset=len(self.arguments)))
        self.arguments.append(value)
        return len(self.records) - 1

    def load(self, value: Float) -> dict[str, int]:
        """Address and block bytes of a map [channel, row, col]."""
        index = self.argument(tensor(Traffic.INPUTS, value.shape), np.ascontiguousarray(value))
        base = self.sram.place_map(*value.shape)
        self.body.append(Command.make(LOAD, **self.sram.box(index, *[Range(0, size) for size in value.shape], base)))
        return {"base": base, "block_bytes": self.sram.block_bytes(*value.shape[1:])}

    def table(self, entries: Sequence[Sequence[tuple[int, float]]], first: int, count: int) -> int:
        """The address of ``count`` outputs' entries of a table, loaded from output ``first`` on."""
        taps = len(entries[0])
        stored = np.array(entries, dtype=[("position", "<i4"), ("weight", "<f4")])
        dims = (len(entries), taps, 1, 1, 1)
        offset = len(self.constants)
        record = TensorRecord(Place.CONSTANT, Traffic.WEIGHTS, Dtype.FLOAT32, Layout.TABLE, dims, (0,) * 5, 0, offset)
        self.records.append(record)
        self.constants += stored.tobytes()
        base = self.sram.used_bytes
        self.sram.used_bytes += count * taps * 8
        self.body.append(Command.make(LOAD_TABLE, tensor=len(self.records) - 1, first=first, count=count, sram=base))
        return base

    def run(self, shape: Shape, *commands: Command) -> tuple[Float, Measured]:
        """Execute, and store the map at the address where ``output`` was placed last."""
        output = np.full(shape, np.nan, np.float32)
        index = self.argument(tensor(Traffic.OUTPUTS, shape), output)
        box = self.sram.box(index, *[Range(0, size) for size in shape], commands[-1]["output"])
        body = [*self.body, *commands, Command.make(STORE, **box)]
        made = program(self.records, body, spec=self.spec, constants=self.constants)
        return output, interpret(replace(made, argument_count=len(self.arguments)), self.arguments, checked=True)
