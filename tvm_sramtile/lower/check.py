"""Proof of a program from its commands alone: shares no code with what made it.

It follows the commands in program order, knows of each SRAM byte which command wrote it and what that was, and takes
two uses of a byte to be in order only where the queues and the waits enforce it.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from typing import NoReturn

from tvm_sramtile.errors import CheckFailed
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Region, Step, Tensor
from tvm_sramtile.isa import OPCODES, Command, Layout, Program, TensorRecord, Traffic, memory_starts
from tvm_sramtile.lower.check_by_channel import ByChannel
from tvm_sramtile.lower.check_conv import Convolving
from tvm_sramtile.lower.check_made import Loaded, Made, Span, Table, Wanted, Weights
from tvm_sramtile.lower.check_operands import ELEM_BYTES, ENTRY_BYTES, Operands
from tvm_sramtile.lower.check_order import Clocks
from tvm_sramtile.lower.check_sram import Kept, Sram
from tvm_sramtile.lower.check_tensors import Identity, TensorCheck
from tvm_sramtile.plan import Plan, StepPlan

Fields = Mapping[str, int]

_LOAD, _STORE = 0, 2  # queues
_NAMES = {code: tuple(field.name for field in opcode.fields) for code, opcode in OPCODES.items()}
_BOX = (("channel", "channels"), ("row", "rows"), ("col", "cols"))


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
    _Run(region, plan, program, spec, TensorCheck(region, program, values=values)).run()


class _StepRun:
    """One step: what its commands must be, and how far it has come."""

    def __init__(self, index: int, step: Step, plan: StepPlan) -> None:
        self.index, self.step, self.plan = index, step, plan
        self.wanted = Wanted(step, plan)
        self.bytes = dict.fromkeys(Traffic, 0)
        self.identities: dict[tuple[str, int], Identity] = {}
        self.tables: dict[int, frozenset[str]] = {}
        self.stores: list[int] = []  # for each chunk stored: how many stores there were then
        self.turns = {at: turn for turn, at in enumerate(self.wanted.turns)}
        axes = (plan.channels, [span.out for span in plan.rows], [span.out for span in plan.cols])
        self.starts = tuple([one.start for one in ranges] for ranges in axes)
        self.stops = tuple([one.stop for one in ranges] for ranges in axes)

    def last_over(self, box: tuple[Span, ...]) -> int:
        """The last chunk, in the order of stores, that shares an output with a box of the step's channels; -1: none."""
        last = [0, 0, 0]
        for axis, (start, stop) in enumerate(box):
            last[axis] = bisect_left(self.starts[axis], stop) - 1
            if last[axis] < bisect_right(self.stops[axis], start):
                return -1
        return self.turns[last[0], last[1], last[2]]


class _Run:
    def __init__(
        self, region: Region, plan: Plan, program: Program, spec: AcceleratorSpec, tensors: TensorCheck
    ) -> None:
        self.region, self.plan, self.program, self.spec, self.tensors = region, plan, program, spec, tensors
        self.steps = [_StepRun(*pair) for pair in zip(range(len(plan.steps)), region.steps, plan.steps, strict=True)]
        self.writers: dict[str, list[_StepRun]] = {}
        for run in self.steps:
            self.writers.setdefault(run.step.output.name, []).append(run)
        self.operands = Operands(program)
        self.sram = Sram(self.operands, self.kept(), self.fail)
        convolving, by_channel = Convolving(self.sram, spec.unit_kernels), ByChannel(self.sram)
        self.convolve = convolving.convolve
        self.moves = {
            "LOAD": self.load, "LOAD_WEIGHTS": self.load_weights, "LOAD_TABLE": self.load_table,
            "COPY": self.copy, "STORE": self.store
        }  # fmt: skip
        self.computes: dict[str, Callable[[Wanted, int, Fields], None]] = {
            "POOL": by_channel.pool, "RESIZE": by_channel.resize, "ELTWISE": by_channel.eltwise
        }  # fmt: skip
        self.part, self.images, self.index = "", 1, 0

    def kept(self) -> dict[str, Kept]:
        """The maps that stay in SRAM."""
        found, pool = {}, memory_starts(self.program.memories)[0]
        for stay in self.plan.stays:
            run = self.steps[stay.first]
            rows, cols = run.wanted.axes
            extents = (run.step.op.out_channels, rows.outs, cols.outs)
            start, chunks = pool + stay.offset_bytes, frozenset((one.start, one.stop) for one in run.plan.channels)
            block_bytes = self.operands.rows_bytes(extents[1], extents[2])
            found[stay.tensor] = Kept((start, start + stay.bytes), extents, block_bytes, run.index, run.wanted, chunks)
        return found

    def run(self) -> None:
        """All proofs."""
        parts = (("prologue", self.program.prologue, 1), ("body", self.program.body, self.region.images))
        for self.part, commands, self.images in parts:
            clocks = Clocks()
            self.sram.space.settle()
            for self.index, command in enumerate(commands):
                self.command(command, clocks)
        self.finish()

    def command(self, command: Command, clocks: Clocks) -> None:
        """One command: its waits, operands and effect."""
        if not 0 <= command.step < len(self.steps):
            self.fail(f"there is no step {command.step}")
        name, run = command.opcode.name, self.steps[command.step]
        if name != "CONV" and command.flags:
            self.fail(f"flags are {command.flags}, a {name} has none")
        if self.part == "prologue" and not name.startswith("LOAD"):
            self.fail("depends on the image, of which the prologue knows nothing")
        self.sram.clock = clocks.start(command, int(command.opcode.queue), self.fail)
        fields: Fields = dict(zip(_NAMES[command.opcode.code], command.values))  # type: ignore[arg-type]  # noqa: B905
        if name in self.moves:
            self.moves[name](run, fields)
        elif name == "CONV":
            self.convolve(run.wanted, run.index, command.flags, fields)
        else:
            self.computes[name](run.wanted, run.index, fields)

    # Loads and stores.

    def load(self, run: _StepRun, fields: Fields) -> None:
        """A box of the step's data, or of one of its vectors."""
        index, step = fields["tensor"], run.step
        identity = run.identities.get(("LOAD", index))
        if identity is None:
            uses = [(tensor, role) for tensor, role in step.uses if role != "weight"]
            identity = run.identities["LOAD", index] = self.tensors.identify(index, step, uses, self.fail)
        record = self.program.tensors[index]
        if self.part == "prologue" and record.image_stride:
            self.fail(f"loads {', '.join(sorted(identity.names))} of one image in the prologue")
        box = self.box(run, fields, record)
        tensors = [tensor for tensor in step.inputs if tensor.name in identity.names]
        for tensor in tensors:
            self.available(tensor, box, flat=identity.role == "vector")
        held = Loaded(identity.role, identity.names, *box, fields["block_bytes"])
        self.sram.load(fields["sram"], held)

    def copy(self, _: _StepRun, fields: Fields) -> None:
        """Rows of a loaded map, to the place of another."""
        self.sram.copy(fields)

    def available(self, tensor: Tensor, box: tuple[Span, Span, Span], *, flat: bool) -> None:
        """What is loaded of a tensor between steps has surely been stored; ``flat``: by elements, not by channels."""
        if tensor.digest is not None:
            return
        writers = self.writers.get(tensor.name, ())
        if not writers and tensor not in self.region.inputs:
            self.fail(f"loads {tensor.name}, which no step stores")
        for writer in writers:
            first = writer.step.output_channel
            part = ((box[0][0] - first, box[0][1] - first), box[1], box[2])
            last = writer.wanted.chunks - 1 if flat else writer.last_over(part)
            if last >= len(writer.stores):
                self.fail(f"loads a part of {tensor.name} that step {writer.step.name} has not stored")
            if last >= 0 and self.sram.clock[_STORE] < writer.stores[last]:
                store = writer.stores[last] - 1
                self.fail(f"may run before store command {store}, which writes a part of {tensor.name} that it reads")

    def load_weights(self, run: _StepRun, fields: Fields) -> None:
        """A box of the step's weights."""
        index, step = fields["tensor"], run.step
        identity = run.identities.get(("LOAD_WEIGHTS", index))
        if identity is None:
            uses = [(tensor, role) for tensor, role in step.uses if role == "weight"]
            identity = run.identities["LOAD_WEIGHTS", index] = self.tensors.identify(index, step, uses, self.fail)
        record = self.program.tensors[index]
        groups, width, depth, *kernel = record.dims
        outs, ins = (
            self.span(fields, f"{one}_channel", f"{one}_channels", size)
            for one, size in (("out", groups * width), ("in", depth))
        )
        taps = []
        for axis, size in zip(("row", "col"), kernel, strict=True):
            first, count, by = (fields[f"kernel_{name}"] for name in (axis, f"{axis}s", f"{axis}_step"))
            last = first + (count - 1) * by
            if count < 1 or not (0 <= first < size and 0 <= last < size):
                self.fail(f"kernel {axis}s {first} to {last} are not within the tensor's {size}")
            taps.append((first, count, by if count > 1 else 1))
        if outs[1] % width and outs[0] // width != (outs[1] - 1) // width:
            self.fail(f"output channels {outs[0]}-{outs[1]} end within a group of {width}, and begin in another")
        if record.layout is Layout.PACKED and (outs[0] % self.program.lanes or ins[0] % self.program.lanes):
            self.fail(f"channels {outs[0]} and {ins[0]} of packed weights do not begin a block")
        extents = (outs[1] - outs[0], ins[1] - ins[0], taps[0][1] * taps[1][1])
        place = self.operands.weights(fields["sram"], *extents, self.fail)
        run.bytes[record.traffic] += self.images * math.prod(extents) * ELEM_BYTES
        held = Weights(identity.names, outs, (ins, taps[0], taps[1]))
        self.sram.space.write(*place, _LOAD, self.sram.clock, held, self.fail)

    def load_table(self, run: _StepRun, fields: Fields) -> None:
        """Entries of one of the step's tables."""
        index = fields["tensor"]
        if index not in run.tables:
            run.tables[index] = self.tensors.table_axes(index, run.step, self.fail)
        record = self.program.tensors[index]
        outs = self.span(fields, "first", "count", record.dims[0])
        size = fields["count"] * record.dims[1] * ENTRY_BYTES
        place = self.operands.place(fields["sram"], size, "sram", self.fail)
        run.bytes[record.traffic] += self.images * size
        held = Table(run.tables[index], outs, record.dims[1])
        self.sram.space.write(*place, _LOAD, self.sram.clock, held, self.fail)

    def store(self, run: _StepRun, fields: Fields) -> None:
        """The plan's next chunk of the step's output, whole."""
        index, step, wanted = fields["tensor"], run.step, run.wanted
        if ("STORE", index) not in run.identities:
            run.identities["STORE", index] = self.tensors.identify(index, step, [(step.output, "output")], self.fail)
        record = self.program.tensors[index]
        channels, rows, cols = self.box(run, fields, record)
        channels = (channels[0] - step.output_channel, channels[1] - step.output_channel)
        if len(run.stores) == wanted.chunks:
            self.fail(f"stores more than the {wanted.chunks} chunks of step {step.name}")
        chunk = wanted.chunk(len(run.stores))
        if chunk != (channels, rows, cols):
            self.fail(f"stores channels, rows and columns {(channels, rows, cols)}, the plan's next chunk is {chunk}")
        extents = (fields["channels"], fields["rows"], fields["cols"])
        place = self.operands.map(fields["sram"], extents, fields["block_bytes"], "sram", self.fail)
        made = self.sram.held(place, Made, "sram", _STORE)
        if (made.step, made.extents, made.block_bytes) != (run.index, extents, fields["block_bytes"]) or made.stored:
            found = f"{made.extents} with blocks of {made.block_bytes} B of step {made.step}"
            self.fail(f"stores {extents} with blocks of {fields['block_bytes']} B, but there lie {found}")
        wanted.prove(made, channels, rows, cols, self.fail)
        made.stored = True
        run.stores.append(self.sram.clock[_STORE] + 1)

    def box(self, run: _StepRun, fields: Fields, record: TensorRecord) -> tuple[Span, Span, Span]:
        """The (channels, rows, cols) of a loaded or stored box of a map; counts its bytes."""
        channels, rows, cols = (
            self.span(fields, first, count, size) for (first, count), size in zip(_BOX, record.dims, strict=False)
        )
        extents = (fields["channels"], fields["rows"], fields["cols"])
        if fields["row_bytes"] != self.operands.row_bytes(extents[2]):
            self.fail(f"row_bytes is {fields['row_bytes']}, must be {self.operands.row_bytes(extents[2])}")
        run.bytes[record.traffic] += self.images * extents[0] * extents[1] * extents[2] * ELEM_BYTES
        self.operands.moved(fields["sram"], extents, fields["block_bytes"], "sram", self.fail)
        return channels, rows, cols

    def span(self, fields: Fields, first: str, count: str, size: int) -> Span:
        """A part of an axis of a tensor, not empty and within it."""
        start, stop = fields[first], fields[first] + fields[count]
        if not 0 <= start < stop <= size:
            self.fail(f"{count} {start}-{stop} are not within the tensor's {size}")
        return start, stop

    # The whole.

    def finish(self) -> None:
        """What must hold of the program as a whole."""
        where = f"program of {self.region.name}"
        for run in self.steps:
            name = run.step.name
            chunks = run.wanted.chunks if run.plan.around.stores else 0
            if len(run.stores) != chunks:
                raise CheckFailed(f"{where}: step {name} stores {len(run.stores)} chunks, its plan {chunks}")
            self.covered(run, where)
            planned = run.plan.traffic
            wanted = (planned.input_bytes, planned.weight_bytes, planned.output_bytes, planned.partial_sum_bytes)
            for kind, size in zip(Traffic, wanted, strict=True):
                if run.bytes[kind] != size:
                    found = f"{run.bytes[kind]} B of {kind.name}"
                    raise CheckFailed(f"{where}: step {name} moves {found}, its plan {size}")
        for tensor in self.region.outputs:
            if not any(run.stores for run in self.writers.get(tensor.name, ())):
                raise CheckFailed(f"{where}: nothing stores the output {tensor.name}")
        self.joined(where)
        for (start, stop), held in self.sram.lasting.items():
            if any(cell.value is not held for cell in self.sram.space.over(start, stop)):
                what = f"SRAM bytes {start}-{stop} of the prologue"
                raise CheckFailed(f"{where}: body overwrites {what}, which the next image needs")
        for memory, reached in zip(self.spec.memories, self.operands.reached, strict=True):
            planned_bytes = max(step.used_bytes(memory) for step in self.plan.steps)
            if reached != planned_bytes:
                raise CheckFailed(f"{where}: it uses {reached} B of memory {memory}, its plan {planned_bytes}")

    def covered(self, run: _StepRun, where: str) -> None:
        """The plan's chunks, which have all been stored, are each output of the step once."""
        extents = (run.step.op.out_channels, *(axis.outs for axis in run.wanted.axes))
        for starts, stops, extent in zip(run.starts, run.stops, extents, strict=True):
            if [0, *stops] != [*starts, extent]:
                raise CheckFailed(f"{where}: the chunks of step {run.step.name} do not cover its output once")

    def joined(self, where: str) -> None:
        """The steps that write one tensor write each of its channels once."""
        for name, runs in self.writers.items():
            tensor = runs[0].step.output
            at = 0
            for first, count in sorted((run.step.output_channel, run.step.op.out_channels) for run in runs):
                if first != at:
                    raise CheckFailed(f"{where}: channels {at}-{first} of {name} are not stored once")
                at = first + count
            channels = dict(zip(tensor.layout or "NCHW", tensor.shape, strict=True)).get("C", 1)
            if at != channels:
                raise CheckFailed(f"{where}: channels 0-{at} of {name} are stored, it has {channels}")

    def fail(self, message: str) -> NoReturn:
        """Raise, naming the command."""
        commands = self.program.prologue if self.part == "prologue" else self.program.body
        command = commands[self.index]
        step = self.steps[command.step].step.name if 0 <= command.step < len(self.steps) else command.step
        raise CheckFailed(f"{self.part} command {self.index} ({command.opcode.name}, step {step}): {message}")
