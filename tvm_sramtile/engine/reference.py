"""A slow interpreter of programs in numpy: the living definition of each command.

It follows the table and nothing else, one command after the other in program order, and shares no code with the engine.
It checks what it needs to be exact about addresses; the engine's validator checks the rest of the preconditions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tvm_sramtile.engine.reference_maths import BINARY, ENTRY, UNARY, Entries, convolve, pool, resize
from tvm_sramtile.engine.reference_memory import NUMPY, Array, Dram, Sram, SramMap, expect, packed
from tvm_sramtile.errors import ProgramError
from tvm_sramtile.ints import round_up
from tvm_sramtile.isa import Command, Dtype, Function, Layout, Partner, Place, Program, TensorRecord, Traffic
from tvm_sramtile.isa.table import CONV_BIAS, CONV_CLIP, CONV_FIRST, CONV_LAST

_FLOAT = NUMPY[Dtype.FLOAT32]
_BEYOND = "the box is empty or reaches beyond the tensor"


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run measured, summed from the extents of the executed commands.

    Attributes:
        dram_bytes: bytes moved between DRAM and SRAM, by what the tensors are counted as.
        macs: multiply-accumulates; taps outside the map count, as is the custom.
        sram_peak_bytes: the sum over the memories of the highest byte that an operand reached.
    """

    dram_bytes: Mapping[Traffic, int]
    macs: int
    sram_peak_bytes: int


def interpret(program: Program, arguments: Sequence[Array], images: int = 1, *, checked: bool = False) -> Measured:
    """Run a program on the tensors of a call.

    Args:
        program: what to run.
        arguments: the tensors that the program's argument tensors point to, C-contiguous; outputs are written in place.
        images: how often the body runs.
        checked: refuse reads of SRAM bytes that nothing wrote.

    Raises:
        ProgramError: an operand or a box that is not where the table allows it, or, when ``checked``, a read of SRAM
            bytes that nothing wrote; names the command, and the address.
    """
    if len(arguments) != program.argument_count:
        raise ProgramError(f"the program takes {program.argument_count} tensors, {len(arguments)} were given")
    machine = _Machine(program, arguments, checked)
    machine.run("prologue", program.prologue, image=None)
    for image in range(images):
        machine.run("body", program.body, image)
    return Measured(machine.dram_bytes, machine.macs, sum(machine.sram.reached))


class _Machine:
    """The accelerator while it runs: its memories, and what has been measured so far."""

    def __init__(self, program: Program, arguments: Sequence[Array], checked: bool) -> None:
        self.program = program
        self.sram, self.dram = Sram(program, checked=checked), Dram(program, arguments)
        self.dram_bytes = dict.fromkeys(Traffic, 0)
        self.macs = 0

    def run(self, part: str, commands: Sequence[Command], image: int | None) -> None:
        """Execute commands; ``image`` is ``None`` in the prologue."""
        for index, command in enumerate(commands):
            try:
                self._execute(command, image)
            except ProgramError as error:
                raise ProgramError(f"{part} command {index} ({command.opcode.name}): {error}") from None

    def _execute(self, command: Command, image: int | None) -> None:
        match command.opcode.name:
            case "LOAD":
                self._load(command, image)
            case "LOAD_WEIGHTS":
                self._load_weights(command)
            case "LOAD_TABLE":
                self._load_table(command)
            case "COPY":
                self._copy(command)
            case "STORE":
                self._store(command, image)
            case "CONV":
                self._conv(command)
            case "POOL":
                self._pool(command)
            case "RESIZE":
                self._resize(command)
            case "ELTWISE":
                self._eltwise(command)

    # Loads and stores.

    def _load(self, command: Command, image: int | None) -> None:
        _, source, sram = self._map_box(command, image)
        self.sram.write(sram.addresses(), source)
        self.sram.write(sram.lanes_past_the_last(), np.zeros((), sram.dtype))

    def _store(self, command: Command, image: int | None) -> None:
        record, target, sram = self._map_box(command, image)
        expect(record.place is not Place.CONSTANT, "a store to a constant")
        target[...] = self.sram.read(sram.addresses(), sram.dtype)

    def _map_box(self, command: Command, image: int | None) -> tuple[TensorRecord, Array, SramMap]:
        """Of a map's load or store: the tensor, its box in DRAM [channel, row, col], and the map in SRAM."""
        record = self._record(command, Layout.MAP)
        expect(image is not None or record.image_stride == 0, "the prologue has no image")
        extents = [command[f"{axis}s"] for axis in ("channel", "row", "col")]
        box = []
        for axis, extent, dim in zip(("channel", "row", "col"), extents, record.dims, strict=False):
            expect(extent > 0 and command[axis] + extent <= dim, _BEYOND)
            box.append(slice(command[axis], command[axis] + extent))
        values = self.dram.strided(record, image or 0)[..., 0, 0][tuple(box)]
        sram = self.sram.moved("sram", command["sram"], extents, command["block_bytes"], values.dtype)
        expect(command["row_bytes"] == sram.row_bytes, "sram: wrong row_bytes")
        self.dram_bytes[record.traffic] += values.nbytes
        return record, values, sram

    def _copy(self, command: Command) -> None:
        extents = (round_up(command["channels"], self.program.lanes), command["rows"], command["cols"])
        expect(min(extents) > 0, "nothing to copy")
        source, target = (
            self.sram.moved(name, command[name], extents, command["block_bytes"], _FLOAT)
            for name in ("source", "target")
        )
        for block in np.split(np.arange(extents[0]), extents[0] // self.program.lanes):
            self.sram.read(source.addresses()[block[block < command["channels"]]], _FLOAT)  # a refusal, where unwritten
            self.sram.transfer(source.addresses()[block], target.addresses()[block], _FLOAT)

    def _load_weights(self, command: Command) -> None:
        record = self._record(command, Layout.WEIGHTS, Layout.PACKED)
        groups, group, *rest = record.dims
        box = []
        axes = ("out_channel", "in_channel", "kernel_row", "kernel_col")
        for axis, dim in zip(axes, (groups * group, *rest), strict=True):
            step = command[f"{axis}_step"] if axis.startswith("kernel") else 1
            box.append(command[axis] + step * np.arange(command[f"{axis}s"]))
            expect(len(box[-1]) > 0 and box[-1].min() >= 0 and box[-1].max() < dim, _BEYOND)
        outs = box[0]
        expect((outs[-1] + 1) % group == 0 or outs[0] // group == outs[-1] // group, "the box cuts a group")
        if record.layout is Layout.PACKED:
            lanes = self.program.lanes
            expect(outs[0] % lanes == 0 and box[1][0] % lanes == 0, "the box cuts a block of packed weights")
            places = packed((groups * group, *rest), lanes, full=False)
            values = self.dram.flat(record, places.size, NUMPY[record.dtype])[places[np.ix_(*box)]]
        else:
            each, *others = np.ix_(*box)
            values = self.dram.strided(record, 0)[(each // group, each % group, *others)]
        addresses = self.sram.weights("sram", command["sram"], values.shape, values.dtype)
        self.sram.write(addresses[: len(values)], values)
        self.sram.write(addresses[len(values) :], np.zeros((), values.dtype))
        self.dram_bytes[record.traffic] += values.nbytes

    def _load_table(self, command: Command) -> None:
        record = self._record(command, Layout.TABLE)
        outputs, taps, *_ = record.dims
        start, count = command["first"], command["count"]
        expect(count > 0 and start + count <= outputs, _BEYOND)
        entries = self.dram.flat(record, outputs * taps, ENTRY)[start * taps : (start + count) * taps]
        self.sram.operand("sram", command["sram"], entries.nbytes, 4)
        self.sram.write(command["sram"] + np.arange(len(entries)) * ENTRY.itemsize, entries)
        self.dram_bytes[record.traffic] += entries.nbytes

    def _record(self, command: Command, *layouts: Layout) -> TensorRecord:
        expect(command["tensor"] < len(self.program.tensors), f"there is no tensor {command['tensor']}")
        record = self.program.tensors[command["tensor"]]
        expect(record.layout in layouts, f"a tensor of the layout {record.layout.name}")
        return record

    # Computing.

    def _conv(self, command: Command) -> None:
        flags = command.flags
        out_channels, out_dtype = command["out_channels"], NUMPY[Dtype(command["output_dtype"])]
        extents = (out_channels, command["out_map_rows"], command["out_map_cols"])
        phase = (slice(None), _phase(command, "row"), _phase(command, "col"))
        sum_dtype, block_bytes = NUMPY[Dtype(command["accumulator_dtype"])], command["out_block_bytes"]
        sum_block_bytes = block_bytes // out_dtype.itemsize * sum_dtype.itemsize
        target = self.sram.map("accumulators", command["accumulators"], extents, sum_block_bytes, sum_dtype)
        places = target.addresses()[phase]
        sums = np.zeros(places.shape, sum_dtype) if flags & CONV_FIRST else self.sram.read(places, sum_dtype)
        self._add_products(command, sums)
        if flags & CONV_BIAS:
            bias = self.sram.vector("bias", command["bias"], out_channels, sum_dtype)
            sums += self.sram.read(bias.addresses(), sum_dtype)
        if flags & CONV_CLIP:
            sums = np.minimum(np.maximum(sums, command.real("clip_low")), command.real("clip_high"))
        if flags & CONV_LAST:
            self.sram.forget(places, sum_dtype)
            self.sram.forget(target.lanes_past_the_last()[phase], sum_dtype)
            target = self.sram.map("output", command["output"], extents, block_bytes, out_dtype)
        self._put(target, sums, phase)

    def _add_products(self, command: Command, sums: Array) -> None:
        """Add the products of the taps that lie within the input map to the sums [output channel, row, col]."""
        groups = command["groups"]
        expect(command["in_channels"] % groups == 0 and len(sums) % groups == 0, "groups cut channels")
        shape = (len(sums), command["in_channels"] // groups, command["kernel_rows"], command["kernel_cols"])
        self.macs += sums[0].size * int(np.prod(shape))
        if command["in_rows"] and command["in_cols"] and shape[2] and shape[3]:
            inputs = self._map(command, "input", "in", "in_channels", NUMPY[Dtype(command["input_dtype"])])
            dtype = NUMPY[Dtype(command["weight_dtype"])]
            weights = self.sram.weights("weights", command["weights"], shape, dtype)[: shape[0]]
            read = self.sram.read(inputs.addresses(), inputs.dtype)
            convolve(command, read, self.sram.read(weights, dtype), sums)

    def _pool(self, command: Command) -> None:
        target = self._map(command, "output", "out", "channels")
        inputs = np.empty((target.channels, 0, 0), _FLOAT)
        if command["in_rows"] and command["in_cols"]:
            inputs = self.sram.read(self._map(command, "input", "in", "channels").addresses(), _FLOAT)
        self._put(target, pool(command, inputs, (target.channels, target.rows, target.cols)))

    def _resize(self, command: Command) -> None:
        target = self._map(command, "output", "out", "channels")
        inputs = self.sram.read(self._map(command, "input", "in", "channels").addresses(), _FLOAT)
        rows, cols = (
            self._entries(command, axis, count) for axis, count in (("row", target.rows), ("col", target.cols))
        )
        try:
            self._put(target, resize(inputs, rows, cols, command["in_row"], command["in_col"]))
        except IndexError as error:
            raise ProgramError(str(error)) from None

    def _entries(self, command: Command, axis: str, outputs: int) -> Entries:
        """A table's entries in SRAM, [output, tap]."""
        base, taps = command[f"{axis}_table"], command[f"{axis}_taps"]
        self.sram.operand(f"{axis}_table", base, outputs * taps * ENTRY.itemsize, 4)
        return self.sram.read(base + np.arange(outputs * taps).reshape(outputs, taps) * ENTRY.itemsize, ENTRY)

    def _eltwise(self, command: Command) -> None:
        function, kind = Function(command["function"]), Partner(command["partner_kind"])
        expect((kind is Partner.NONE) == (function in UNARY), f"{function.name} of the partner {kind.name}")
        extents = [command[axis] for axis in ("channels", "rows", "cols")]
        maps = [self.sram.map("input", command["input"], extents, command["in_block_bytes"], _FLOAT)]
        if kind in (Partner.MAP, Partner.VECTOR):
            sizes = extents if kind is Partner.MAP else (extents[0], 1, 1)
            maps.append(self.sram.map("partner", command["partner"], sizes, command["partner_block_bytes"], _FLOAT))
        first, *second = [self.sram.read(each.addresses(), _FLOAT) for each in maps]
        value0, value1 = np.float32(command.real("value0")), np.float32(command.real("value1"))
        with np.errstate(all="ignore"):
            if function in UNARY:
                values = UNARY[function](first, value0, value1)
            else:
                values = BINARY[function](first, second[0] if second else np.full_like(first, value0))
        self._put(self.sram.map("output", command["output"], extents, command["out_block_bytes"], _FLOAT), values)

    def _map(self, command: Command, name: str, side: str, channels: str, dtype: np.dtype[Any] = _FLOAT) -> SramMap:
        """The operand whose extents are the fields of the ``in`` or ``out`` side."""
        extents = (command[channels], command[f"{side}_rows"], command[f"{side}_cols"])
        return self.sram.map(name, command[name], extents, command[f"{side}_block_bytes"], dtype)

    def _put(self, target: SramMap, values: Array, phase: tuple[slice, ...] = ()) -> None:
        """Write a result, or a phase of it; the lanes past the last channel become undefined."""
        self.sram.forget(target.lanes_past_the_last()[phase], target.dtype)
        self.sram.write(target.addresses()[phase], values.astype(target.dtype))


def _phase(command: Command, axis: str) -> slice:
    """The positions of the output map along an axis that CONV computes."""
    start, count, step = command[f"out_{axis}"], command[f"out_{axis}s"], command[f"out_{axis}_step"]
    stop = start + (count - 1) * step + 1
    expect(count > 0 and step > 0 and stop <= command[f"out_map_{axis}s"], "the outputs lie beyond the output map")
    return slice(start, stop, step)
