"""Proof of a program from its commands alone: shares no code with what made it.

It follows the commands in program order, knows of each SRAM byte which command wrote it and what that was, and takes
two uses of a byte to be in order only where the queues and the waits enforce it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from tvm_sramtile.errors import CheckFailed
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Region, Step
from tvm_sramtile.isa import OPCODES, Command, Dtype, Program, Traffic
from tvm_sramtile.isa.table import CONV_BIAS, CONV_CLIP, CONV_FIRST, CONV_LAST, MEMORY_ALIGN_BYTES
from tvm_sramtile.lower.check_order import Clock, Clocks, Space
from tvm_sramtile.lower.check_tensors import TensorCheck
from tvm_sramtile.plan import Plan

Lies = tuple[int, int, int, int]  # channels, rows, cols, block_bytes of a map in SRAM; dims of weights
Fields = Mapping[str, int]
Ends = NDArray[np.int64]

_NAMES = {code: tuple(field.name for field in opcode.fields) for code, opcode in OPCODES.items()}
_ELEM_BYTES = 4  # of float32, the only type so far
_BOX = (
    "out_channel",
    "out_channels",
    "in_channel",
    "in_channels",
    "kernel_row",
    "kernel_rows",
    "kernel_col",
    "kernel_cols",
)


def check_program(region: Region, plan: Plan, program: Program, spec: AcceleratorSpec, *, values: bool = True) -> None:
    """Prove that ``program`` computes ``region`` by ``plan`` on ``spec``, however its queues run between its waits.

    With ``values``, the constants' bytes must be the values that the region names; not so in a program that is only
    counted.

    Raises:
        CheckFailed: the first fault, naming the command and the numbers.
    """
    names = [step.step for step in plan.steps]
    if names != [step.name for step in region.steps]:
        raise CheckFailed(f"program of {region.name}: its plan has the steps {names}")
    for name, value in Program.chip(spec).items():
        if getattr(program, name) != value:
            raise CheckFailed(f"program of {region.name}: {name} is {getattr(program, name)}, of {spec.name} {value}")
    _Run(region, plan, program, TensorCheck(region, program, values=values), tuple(spec.memories)).run()


@dataclass(frozen=True, slots=True)
class _Held:
    """What a command left in SRAM: part of a tensor, or sums.

    Attributes:
        role: "data", "weight" or "bias", loaded from the tensor ``name``; "sums" of the step ``name``.
        row, col: of loaded data: first row and column in the tensor; of sums: the row and column that the first tap of
            the first sum reads.
        reads: of sums: the rows and columns of the tensor that lay in SRAM, as (row, stop, col, stop).
    """

    role: str
    name: str
    lies: Lies
    row: int = 0
    col: int = 0
    reads: tuple[int, int, int, int] | None = None


class _Reads:
    """Which rows and columns of its data each row and column of a step's output reads, listed tap by tap."""

    def __init__(self, step: Step) -> None:
        op = step.op
        extents = ((op.in_rows, step.output.shape[2]), (op.in_cols, step.output.shape[3]))
        self.starts = (-op.padding[0], -op.padding[1])
        self.strides = op.strides
        self.ends: list[tuple[Ends, Ends]] = []
        for axis, (size, outs) in enumerate(extents):
            windows = np.arange(outs, dtype=np.int64) * op.strides[axis] + self.starts[axis]
            low, high = np.full(outs, size, np.int64), np.full(outs, -1, np.int64)
            for tap in range(op.kernel[axis]):
                at = windows + tap * op.dilation[axis]
                inside = (at >= 0) & (at < size)
                low[inside] = np.minimum(low[inside], at[inside])
                high[inside] = np.maximum(high[inside], at[inside])
            self.ends.append((low, high))
        self.cols = self._hull(1, 0, extents[1][1])

    def of(self, row: int, stop: int) -> tuple[int, int, int, int] | None:
        """The box (row, stop, col, stop) that the output rows ``[row, stop)`` read; None when all is padding."""
        rows = self._hull(0, row, stop)
        return (*rows, *self.cols) if rows is not None and self.cols is not None else None

    def _hull(self, axis: int, start: int, stop: int) -> tuple[int, int] | None:
        low, high = self.ends[axis]
        first, last = int(low[start:stop].min()), int(high[start:stop].max())
        return (first, last + 1) if first <= last else None


class _StepRun:
    """One step: what its commands must be, and how far it has come."""

    def __init__(self, index: int, step: Step, plan: Plan) -> None:
        self.index, self.step, self.plan = index, step, plan.steps[index]
        self.reads = _Reads(step)
        self.stored_rows, self.stored_chunks, self.convolved = 0, 0, 0
        self.bytes = dict.fromkeys(Traffic, 0)
        code = int(Dtype[step.data.dtype.upper()])
        op = step.op
        self.fixed = {
            "in_channels": op.in_channels, "out_channels": op.out_channels, "out_cols": step.output.shape[3],
            "groups": op.groups, "kernel_rows": op.kernel[0], "kernel_cols": op.kernel[1],
            "stride_rows": op.strides[0], "stride_cols": op.strides[1],
            "dilation_rows": op.dilation[0], "dilation_cols": op.dilation[1],
            **{f"{operand}_dtype": code for operand in ("input", "weight", "accumulator", "output")},
        }  # fmt: skip
        self.flags = CONV_FIRST | CONV_LAST
        self.flags |= (CONV_BIAS if step.bias is not None else 0) | (CONV_CLIP if step.clip is not None else 0)

    @cached_property
    def clip(self) -> tuple[float, float]:
        """Limits as 32-bit floats."""
        clip = self.step.clip
        low = -math.inf if clip is None or clip.low is None else clip.low
        high = math.inf if clip is None or clip.high is None else clip.high
        return float(np.float32(low)), float(np.float32(high))


class _Run:
    def __init__(
        self, region: Region, plan: Plan, program: Program, tensors: TensorCheck, memories: Sequence[str]
    ) -> None:
        self.region, self.plan, self.program, self.tensors, self.memories = region, plan, program, tensors, memories
        self.steps = [_StepRun(index, step, plan) for index, step in enumerate(region.steps)]
        self.sram: Space[_Held] = Space("SRAM bytes")
        self.dram: dict[str, Space[_Held]] = {
            step.output.name: Space(f"rows of {step.output.name}") for step in region.steps
        }
        self.clocks = Clocks()
        self.lasting: dict[tuple[int, int], _Held] = {}  # what the prologue left in SRAM and the body reads
        self.reached = [0] * len(program.memories)
        self.part, self.images, self.index = "", 1, 0
        self.queue = 0

    def run(self) -> None:
        """All proofs."""
        parts = (("prologue", self.program.prologue, 1), ("body", self.program.body, self.region.images))
        for self.part, commands, self.images in parts:
            self.clocks = Clocks()
            for space in (self.sram, *self.dram.values()):
                space.settle()
            for self.index, command in enumerate(commands):
                self.command(command)
        self.finish()

    def command(self, command: Command) -> None:
        """One command: its waits, operands and effect."""
        if not 0 <= command.step < len(self.steps):
            self.fail(f"there is no step {command.step}")
        name, step = command.opcode.name, self.steps[command.step]
        if name != "CONV" and command.flags:
            self.fail(f"flags are {command.flags}, a {name} has none")
        if self.part == "prologue" and name in ("CONV", "STORE"):
            self.fail("depends on the image, of which the prologue knows nothing")
        self.queue = int(command.queue)
        clock = self.clocks.start(command, self.fail)
        fields = dict(zip(_NAMES[command.opcode.code], command.values, strict=True))
        if name == "CONV":
            self.convolve(step, command.flags, fields, clock)  # type: ignore[arg-type]
        else:
            {"LOAD": self.load, "LOAD_WEIGHTS": self.load_weights, "STORE": self.store}[name](step, fields, clock)  # type: ignore[arg-type]

    # Commands.

    def load(self, run: _StepRun, fields: Fields, clock: Clock) -> None:
        """Rows of the step's data with all their channels, or the whole bias."""
        step, index = run.step, fields["tensor"]
        is_bias = index < len(self.program.tensors) and self.program.tensors[index].traffic is Traffic.WEIGHTS
        if is_bias and step.bias is None:
            self.fail(f"loads the tensor {index}, which the step does not read")
        tensor = step.bias if is_bias and step.bias is not None else step.data
        record = self.tensors.record(index, tensor, "bias" if is_bias else "data", self.fail)
        if self.part == "prologue" and record.per_image:
            self.fail(f"loads {tensor.name} of one image in the prologue")
        start, stop, lies = self.box(run, fields, record.dims, record.traffic)
        if tensor.name in self.dram:
            row = fields["row"]
            self.dram[tensor.name].read(row, row + fields["rows"], self.queue, clock, self.fail)
        elif tensor.digest is None and tensor not in self.region.inputs:
            self.fail(f"loads {tensor.name}, which no step stores")
        held = _Held("bias" if is_bias else "data", tensor.name, lies, fields["row"], fields["col"])
        self.sram.write(start, stop, self.queue, clock, held, self.fail)

    def load_weights(self, run: _StepRun, fields: Fields, clock: Clock) -> None:
        """The step's whole weights."""
        weight = run.step.weight
        record = self.tensors.record(fields["tensor"], weight, "weight", self.fail)
        found = tuple(fields[name] for name in _BOX)
        outs, ins, rows, cols = record.dims
        if found != (0, outs, 0, ins, 0, rows, 0, cols):
            self.fail(f"loads the box {found} of weights, the step needs all of {record.dims}")
        start, stop = self.weights(fields["sram"], record.dims)
        run.bytes[record.traffic] += self.images * math.prod(record.dims) * _ELEM_BYTES
        self.sram.write(start, stop, self.queue, clock, _Held("weight", weight.name, record.dims), self.fail)

    def convolve(self, run: _StepRun, flags: int, fields: Fields, clock: Clock) -> None:
        """The step's whole sum over the rows and columns that lie in SRAM, with its epilogue."""
        step = run.step
        for name, value in run.fixed.items():
            if fields[name] != value:
                self.fail(f"{name} is {fields[name]}, of step {step.name} it is {value}")
        if flags != run.flags:
            self.fail(f"flags are {flags}, must be {run.flags}: each CONV makes the whole sum of step {step.name}")
        clip = (float(np.float32(fields["clip_low"])), float(np.float32(fields["clip_high"])))
        if flags & CONV_CLIP and clip != run.clip:
            self.fail(f"clips to {clip}, step {step.name} to {run.clip}")
        in_lies = (fields["in_channels"], fields["in_rows"], fields["in_cols"], fields["in_block_bytes"])
        out_lies = (fields["out_channels"], fields["out_rows"], fields["out_cols"], fields["out_block_bytes"])
        operands, reads, row, col = [], None, 0, 0
        if fields["in_rows"] or fields["in_cols"]:
            operands.append(self.map(fields["input"], in_lies, "input"))
            data = self.held(*operands[0], "data", step.data.name, in_lies, clock)
            reads = (data.row, data.row + data.lies[1], data.col, data.col + data.lies[2])
            row, col = data.row - fields["pad_top"], data.col - fields["pad_left"]
            operands.append(self.weights(fields["weights"], step.weight.shape))
            self.held(*operands[1], "weight", step.weight.name, step.weight.shape, clock)
        if step.bias is not None:
            lies = (step.op.out_channels, 1, 1, self.rows_bytes(1, 1))
            operands.append(self.map(fields["bias"], lies, "bias"))
            self.held(*operands[-1], "bias", step.bias.name, lies, clock)
        output = self.map(fields["output"], out_lies, "output")
        sums = self.map(fields["accumulators"], out_lies, "accumulators")
        results = [output] if output == sums else [output, sums]
        for place, (start, stop) in enumerate(results):
            for other, end in (*operands, *results[:place]):
                if start < end and other < stop:
                    self.fail(f"result in SRAM bytes {start}-{stop} overlaps the operand in {other}-{end}")
        made = _Held("sums", step.name, out_lies, row, col, reads)
        for result in results:
            self.sram.write(*result, self.queue, clock, made if result == output else None, self.fail)
        run.convolved += 1

    def store(self, run: _StepRun, fields: Fields, clock: Clock) -> None:
        """The next rows of the step's output: what a CONV made of just the rows that they need."""
        step, row = run.step, fields["row"]
        record = self.tensors.record(fields["tensor"], step.output, "output", self.fail)
        start, stop, lies = self.box(run, fields, record.dims, record.traffic)
        end = row + fields["rows"]
        if fields["cols"] != record.dims[3]:
            self.fail(f"stores {fields['cols']} of {record.dims[3]} columns of {step.output.name}")
        chunks = run.plan.chunks[run.stored_chunks : run.stored_chunks + 1]
        marks = [(chunk.out_rows.start, chunk.out_rows.stop) for chunk in chunks]
        if row != run.stored_rows or marks != [(row, end)]:
            self.fail(f"stores rows {row}-{end}, stored are those up to {run.stored_rows}, the plan's next are {marks}")
        held = self.held(start, stop, "sums", step.name, lies, clock)
        wanted = run.reads.of(row, end)
        if held.reads != wanted:
            self.fail(f"stores rows {row}-{end}, made of rows and columns {held.reads} of the data, they need {wanted}")
        starts, strides = run.reads.starts, run.reads.strides
        taps = (row * strides[0] + starts[0], starts[1])
        if wanted is not None and (held.row, held.col) != taps:
            self.fail(f"stores rows {row}-{end}, whose first tap is at {taps}, but the CONV's at {held.row, held.col}")
        space = self.dram[step.output.name]
        if space.over(row, end):
            self.fail(f"stores rows {row}-{end} of {step.output.name} again")
        space.write(row, end, self.queue, clock, held, self.fail)
        run.stored_rows, run.stored_chunks = end, run.stored_chunks + 1

    # Operands.

    def box(self, run: _StepRun, fields: Fields, dims: Sequence[int], traffic: Traffic) -> tuple[int, int, Lies]:
        """The SRAM bytes of a loaded or stored box of rows, with all its channels; counts its bytes."""
        for name, first, size in (("channel", "channel", dims[1]), ("row", "row", dims[2]), ("col", "col", dims[3])):
            at, count = fields[first], fields[f"{name}s"]
            if at < 0 or count < 1 or at + count > size:
                self.fail(f"{name}s {at}-{at + count} are not within the tensor's {size}")
        if fields["channels"] != dims[1]:
            self.fail(f"moves {fields['channels']} of {dims[1]} channels")
        lies = (fields["channels"], fields["rows"], fields["cols"], fields["block_bytes"])
        if fields["row_bytes"] != self.rows_bytes(1, fields["cols"], lines=1):
            self.fail(f"row_bytes is {fields['row_bytes']}, must be {self.rows_bytes(1, fields['cols'], lines=1)}")
        run.bytes[traffic] += self.images * math.prod(lies[:3]) * _ELEM_BYTES
        start, stop = self.map(fields["sram"], lies, "sram")
        return start, stop, lies

    def rows_bytes(self, rows: int, cols: int, lines: int | None = None) -> int:
        """Bytes of the rows of one channel block, rounded up to lines."""
        lines, align = lines or self.program.lines, self.program.column_align
        return -(rows // -lines) * lines * -(cols // -align) * align * self.program.lanes * _ELEM_BYTES

    def map(self, base: int, lies: Lies, name: str) -> tuple[int, int]:
        """The SRAM bytes from a map's first to its last."""
        channels, rows, cols, block_bytes = lies
        if rows < 1 or cols < 1:
            self.fail(f"{name} has {rows} rows and {cols} columns")
        last = self.rows_bytes(rows, cols)
        if block_bytes < last or block_bytes % _ELEM_BYTES:
            self.fail(f"{name}: {block_bytes} B from block to block, must be {last} or more, in whole elements")
        return self.operand(base, -(channels // -self.program.lanes) * block_bytes - block_bytes + last, name)

    def weights(self, base: int, dims: Sequence[int]) -> tuple[int, int]:
        """The SRAM bytes of whole weights."""
        lanes = self.program.lanes
        return self.operand(base, -(dims[0] // -lanes) * lanes * math.prod(dims[1:]) * _ELEM_BYTES, "weights")

    def operand(self, base: int, size: int, name: str) -> tuple[int, int]:
        """The bytes ``[base, base + size)``, which lie within one memory; counts how far that is used."""
        if base % _ELEM_BYTES:
            self.fail(f"{name}: address {base} is no multiple of the element size, {_ELEM_BYTES}")
        first = 0
        for memory, memory_bytes in enumerate(self.program.memories):
            first += -first % MEMORY_ALIGN_BYTES
            if first <= base and base + size <= first + memory_bytes:
                self.reached[memory] = max(self.reached[memory], base + size - first)
                break
            first += memory_bytes
        else:
            self.fail(f"{name}: bytes {base}-{base + size} do not lie within one memory of {self.program.memories}")
        return base, base + size

    def held(self, start: int, stop: int, role: str, name: str, lies: Sequence[int], clock: Clock) -> _Held:
        """What the bytes ``[start, stop)`` hold, which must be this and whole."""
        cell = self.sram.read(start, stop, self.queue, clock, self.fail)[0]
        held = cell.value
        if held is None or (cell.start, cell.stop) != (start, stop):
            self.fail(f"reads SRAM bytes {start}-{stop} as {role} of {name}, but they hold no one operand")
        if (held.role, held.name, held.lies) != (role, name, tuple(lies)):
            found = f"{held.role} of {held.name} {held.lies}"
            self.fail(f"reads SRAM bytes {start}-{stop} as {role} of {name} {tuple(lies)}, but they hold {found}")
        if cell.count == 0:
            self.lasting[start, stop] = held
        return held

    def finish(self) -> None:
        """What must hold of the program as a whole."""
        where = f"program of {self.region.name}"
        for run in self.steps:
            name, chunks = run.step.name, len(run.plan.chunks)
            if run.stored_rows != run.step.output.shape[2] or not chunks == run.stored_chunks == run.convolved:
                found = f"{run.convolved} CONVs and {run.stored_chunks} STOREs of {run.stored_rows} rows"
                raise CheckFailed(f"{where}: step {name} has {found}, its plan {chunks} chunks")
            planned = run.plan.traffic
            wanted = (planned.input_bytes, planned.weight_bytes, planned.output_bytes, planned.partial_sum_bytes)
            for kind, size in zip(Traffic, wanted, strict=True):
                if run.bytes[kind] != size:
                    found = f"{run.bytes[kind]} B of {kind.name}"
                    raise CheckFailed(f"{where}: step {name} moves {found}, its plan {size}")
        for tensor in self.region.outputs:
            if tensor.name not in self.dram:
                raise CheckFailed(f"{where}: nothing stores the output {tensor.name}")
        for (start, stop), held in self.lasting.items():
            if any(cell.value is not held for cell in self.sram.over(start, stop)):
                raise CheckFailed(f"{where}: body overwrites {held.role} {held.name}, which the next image needs")
        for memory, reached in zip(self.memories, self.reached, strict=True):
            planned_bytes = max(step.used_bytes(memory) for step in self.plan.steps)
            if reached != planned_bytes:
                raise CheckFailed(f"{where}: it uses {reached} B of memory {memory}, its plan {planned_bytes}")

    def fail(self, message: str) -> NoReturn:
        """Raise, naming the command."""
        commands = self.program.prologue if self.part == "prologue" else self.program.body
        command = commands[self.index]
        step = self.steps[command.step].step.name if 0 <= command.step < len(self.steps) else command.step
        raise CheckFailed(f"{self.part} command {self.index} ({command.opcode.name}, step {step}): {message}")
