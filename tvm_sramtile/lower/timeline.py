"""How long a program takes: the three queues, written apart from the engine's own count."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm_sramtile.ints import ceil_div
from tvm_sramtile.ir import dtype_bytes
from tvm_sramtile.isa import Command, Program, Queue
from tvm_sramtile.isa.cost import channel_turns, conv_turns
from tvm_sramtile.isa.table import CONV, COPY, ELTWISE, LOAD_TABLE, LOAD_WEIGHTS, POOL, RESIZE, TABLE_ENTRY_BYTES


@dataclass(frozen=True, slots=True)
class Timeline:
    """Cycles of one call.

    Attributes:
        cycles: from the first command's start to the last one's end.
        load_busy_cycles, compute_busy_cycles, store_busy_cycles: how long each queue executed.
    """

    cycles: int
    load_busy_cycles: int
    compute_busy_cycles: int
    store_busy_cycles: int


def timeline(program: Program, images: int = 1) -> Timeline:
    """The timeline of a call with ``images`` images: affine in them, each starts when all before is done."""
    before, before_busy = _part(program, program.prologue)
    image, image_busy = _part(program, program.body)
    busy = [once + images * each for once, each in zip(before_busy, image_busy, strict=True)]
    return Timeline(before + images * image, *busy)


def _part(program: Program, commands: Sequence[Command]) -> tuple[int, list[int]]:
    finished: list[list[int]] = [[0] for _ in Queue]  # finished[queue][n]: when its first n commands are done
    busy = [0 for _ in Queue]
    for command in commands:
        queue = command.queue
        cost = command_cycles(program, command)
        start = max(finished[queue][-1], *(ends[wait] for ends, wait in zip(finished, command.waits, strict=True)))
        finished[queue].append(start + cost)
        busy[queue] += cost
    return max(ends[-1] for ends in finished), busy


def command_cycles(program: Program, command: Command) -> int:
    """The cost of one command, by the formulas of the instruction set's table."""
    compute = _COMPUTE_CYCLES.get(command.opcode.code)
    if compute is not None:
        return compute(program, command)
    if command.opcode is COPY:
        blocks = ceil_div(command["channels"], program.lanes)
        return program.dma_setup_cycles + command["rows"] * command["cols"] * blocks
    return program.dma_setup_cycles + ceil_div(dma_bytes(program, command), program.dma_bytes_per_cycle)


def dma_bytes(program: Program, command: Command) -> int:
    """The DRAM bytes that a load or store moves: the real elements of its box."""
    tensor = program.tensors[command["tensor"]]
    if command.opcode is LOAD_TABLE:
        return command["count"] * tensor.dims[1] * TABLE_ENTRY_BYTES
    extents: tuple[str, ...] = ("channels", "rows", "cols")
    if command.opcode is LOAD_WEIGHTS:
        extents = ("out_channels", "in_channels", "kernel_rows", "kernel_cols")
    return math.prod(command[extent] for extent in extents) * dtype_bytes(tensor.dtype.name.lower())


def _conv_cycles(program: Program, command: Command) -> int:
    groups = command["groups"]
    turns = conv_turns(command["in_channels"] // groups, command["out_channels"], groups, program.mac_array)
    return command["out_rows"] * command["out_cols"] * command["unit_rows"] * command["unit_cols"] * turns


def _pool_cycles(program: Program, command: Command) -> int:
    extents = ("out_rows", "out_cols", "kernel_rows", "kernel_cols")
    return math.prod(command[extent] for extent in extents) * channel_turns(command["channels"], program.mac_array)


def _resize_cycles(program: Program, command: Command) -> int:
    extents = ("out_rows", "out_cols", "row_taps", "col_taps")
    return math.prod(command[extent] for extent in extents) * channel_turns(command["channels"], program.mac_array)


def _eltwise_cycles(program: Program, command: Command) -> int:
    return command["rows"] * command["cols"] * channel_turns(command["channels"], program.mac_array)


_COMPUTE_CYCLES: dict[int, Callable[[Program, Command], int]] = {
    CONV.code: _conv_cycles,
    POOL.code: _pool_cycles,
    RESIZE.code: _resize_cycles,
    ELTWISE.code: _eltwise_cycles,
}
