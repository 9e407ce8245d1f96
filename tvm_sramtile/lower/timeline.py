"""How long a program takes: the three queues, written apart from the engine's own count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm_sramtile.ints import ceil_div
from tvm_sramtile.ir import dtype_bytes
from tvm_sramtile.isa import Command, Dtype, Program, Queue
from tvm_sramtile.isa.table import CONV, LOAD_WEIGHTS


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
    if command.opcode is CONV:
        return _conv_cycles(program, command)
    return program.dma_setup_cycles + ceil_div(dma_bytes(program, command), program.dma_bytes_per_cycle)


def dma_bytes(program: Program, command: Command) -> int:
    """The DRAM bytes that a load or store moves: the real elements of its box."""
    extents: tuple[str, ...] = ("channels", "rows", "cols")
    if command.opcode is LOAD_WEIGHTS:
        extents = ("out_channels", "in_channels", "kernel_rows", "kernel_cols")
    elems = 1
    for extent in extents:
        elems *= command[extent]
    return elems * dtype_bytes(Dtype(program.tensors[command["tensor"]].dtype).name.lower())


def _conv_cycles(program: Program, command: Command) -> int:
    mac_in, mac_out = program.mac_array
    groups = command["groups"]
    in_per_group, out_per_group = command["in_channels"] // groups, command["out_channels"] // groups
    by_group = groups * ceil_div(in_per_group, mac_in) * ceil_div(out_per_group, mac_out)
    by_lane = in_per_group * ceil_div(command["out_channels"], mac_out)
    taps = command["kernel_rows"] * command["kernel_cols"]
    return command["out_rows"] * command["out_cols"] * taps * min(by_group, by_lane)
