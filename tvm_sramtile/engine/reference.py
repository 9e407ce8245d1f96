"""A slow interpreter of programs in numpy: the living definition of each command.

It follows the table and nothing else, one command after the other in program order, and shares no code with the engine.
It checks what it needs to be exact about addresses; the engine's validator checks the rest of the preconditions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_sramtile.errors import ProgramError
from tvm_sramtile.ints import ceil_div, round_up
from tvm_sramtile.isa import Command, Dtype, Layout, Place, Program, TensorRecord, Traffic, memory_starts
from tvm_sramtile.isa.table import CONV_BIAS, CONV_CLIP, CONV_FIRST, CONV_LAST

Array = NDArray[Any]
Places = NDArray[np.int64]  # byte addresses or element indices

_NUMPY: Mapping[Dtype, np.dtype[Any]] = {Dtype.FLOAT32: np.dtype(np.float32)}
_UNWRITTEN = 0xFF  # fills memory that nothing wrote; as floats these bytes are NaN


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
    machine.run("prologue", program.prologue, image=0)
    for image in range(images):
        machine.run("body", program.body, image)
    return Measured(machine.dram_bytes, machine.macs, sum(machine.reached))


@dataclass(frozen=True, slots=True)
class _Map:
    """A feature map in SRAM."""

    base: int
    channels: int
    rows: int
    cols: int
    block_bytes: int
    row_bytes: int
    lanes: int
    dtype: np.dtype[Any]

    def addresses(self) -> Places:
        """The byte address of each element, [channel, row, col]."""
        channel, row, col = np.ogrid[: self.channels, : self.rows, : self.cols]
        elem = col * self.lanes + channel % self.lanes
        place = channel // self.lanes * self.block_bytes + row * self.row_bytes + elem * self.dtype.itemsize
        return np.asarray(self.base + place, dtype=np.int64)

    def lanes_past_the_last(self) -> Places:
        """Addresses as above, of the lanes of the last block that hold no channel."""
        return replace(self, channels=round_up(self.channels, self.lanes)).addresses()[self.channels :]


def _packed(shape: Sequence[int], lanes: int, *, full: bool) -> Places:
    """Where weight [o, i, row, col] lies in packed order, in elements; ``full``: with all lanes of the last block."""
    outs, ins, rows, cols = shape
    out, inp, row, col = np.ogrid[:outs, :ins, :rows, :cols]
    out_start, in_start = out // lanes * lanes, inp // lanes * lanes
    block_ins = np.minimum(lanes, ins - in_start)
    block_lanes = lanes if full else np.minimum(lanes, outs - out_start)
    within = in_start * rows * cols + (row * cols + col) * block_ins + inp - in_start
    return np.asarray(out_start * ins * rows * cols + within * block_lanes + out - out_start, dtype=np.int64)


class _Machine:
    """The accelerator while it runs: its memories, and what has been measured so far."""

    def __init__(self, program: Program, arguments: Sequence[Array], checked: bool) -> None:
        self.program, self.arguments, self.checked = program, arguments, checked
        self.sram = np.full(memory_starts(program.memories)[-1], _UNWRITTEN, np.uint8)
        self.written = np.zeros(len(self.sram), np.bool_)
        self.workspace = np.full(program.workspace_bytes, _UNWRITTEN, np.uint8)
        self.reached = [0] * len(program.memories)
        self.dram_bytes = dict.fromkeys(Traffic, 0)
        self.macs = 0
        self.where = ""

    def run(self, part: str, commands: Sequence[Command], image: int) -> None:
        execute = {"LOAD": self._load, "LOAD_WEIGHTS": self._load_weights, "STORE": self._store, "CONV": self._conv}
        for index, command in enumerate(commands):
            self.where = f"{part} command {index} ({command.opcode.name})"
            execute[command.opcode.name](command, image)

    # The commands, in the order of the table.

    def _load(self, command: Command, image: int) -> None:
        _, source, sram = self._map_box(command, image)
        self._write(sram.addresses(), source)
        self._write(sram.lanes_past_the_last(), np.zeros((), sram.dtype))

    def _load_weights(self, command: Command, image: int) -> None:
        record, lanes = self._record(command), self.program.lanes
        names = ("out_channel", "in_channel", "kernel_row", "kernel_col")
        starts, shape = [command[name] for name in names], [command[f"{name}s"] for name in names]
        box = self._box(record, starts, shape)
        if record.layout is Layout.PACKED:
            whole = starts[1:] == [0, 0, 0] and shape[1:] == list(record.dims[1:])
            self._expect(whole and starts[0] % lanes == 0, "the box cuts packed weights")
            places = _packed(record.dims, lanes, full=False)[box]
        else:
            self._expect(record.layout is Layout.OIHW, f"weights in the layout {record.layout.name}")
            places = np.arange(math.prod(record.dims)).reshape(record.dims)[box]
        values = self._dram(record, image)[places]
        addresses = self._weights("sram", command["sram"], shape, values.dtype)
        self._write(addresses[: len(values)], values)
        self._write(addresses[len(values) :], np.zeros((), values.dtype))
        self.dram_bytes[record.traffic] += values.nbytes

    def _store(self, command: Command, image: int) -> None:
        record, target, sram = self._map_box(command, image)
        self._expect(record.place is not Place.CONSTANT, "a store to a constant")
        target[...] = self._read(sram.addresses(), sram.dtype)

    def _conv(self, command: Command, _image: int) -> None:
        flags, kernel = command.flags, (command["kernel_rows"], command["kernel_cols"])
        in_channels = command["in_channels"] // command["groups"]
        accumulators = self._conv_map(command, "accumulators", "out", "accumulator_dtype")
        if flags & CONV_FIRST:
            sums = np.zeros(accumulators.addresses().shape, accumulators.dtype)
        else:
            sums = self._read(accumulators.addresses(), accumulators.dtype)
        self.macs += sums.size * in_channels * math.prod(kernel)
        if command["in_rows"] and command["in_cols"]:
            inputs = self._conv_map(command, "input", "in", "input_dtype")
            dtype = _NUMPY[Dtype(command["weight_dtype"])]
            shape = (command["out_channels"], in_channels, *kernel)
            weights = self._weights("weights", command["weights"], shape, dtype)[: shape[0]]
            _convolve(command, self._read(inputs.addresses(), inputs.dtype), self._read(weights, dtype), sums)
        if flags & CONV_BIAS:
            bias = self._conv_map(command, "bias", "", "accumulator_dtype")
            sums += self._read(bias.addresses(), bias.dtype)
        if flags & CONV_CLIP:
            sums = np.minimum(np.maximum(sums, command.real("clip_low")), command.real("clip_high"))
        target = accumulators
        if flags & CONV_LAST:
            target = self._conv_map(command, "output", "out", "output_dtype")
            self._forget(accumulators)
        self._forget(target)  # the lanes past the last channel remain undefined
        self._write(target.addresses(), sums.astype(target.dtype))

    # Operands in SRAM.

    def _conv_map(self, command: Command, name: str, side: str, dtype_name: str) -> _Map:
        """An operand of CONV: a map of the ``in`` or ``out`` side, or else the bias."""
        dtype = _NUMPY[Dtype(command[dtype_name])]
        channels = command["in_channels" if side == "in" else "out_channels"]
        rows, cols = (command[f"{side}_rows"], command[f"{side}_cols"]) if side else (1, 1)
        row_bytes = self._row_bytes(cols, dtype)
        block_bytes = command[f"{side}_block_bytes"] if side else round_up(1, self.program.lines) * row_bytes
        if name == "accumulators":  # as many elements from block to block as in the output
            block_bytes = block_bytes // _NUMPY[Dtype(command["output_dtype"])].itemsize * dtype.itemsize
        operand = _Map(command[name], channels, rows, cols, block_bytes, row_bytes, self.program.lanes, dtype)
        return self._placed(name, operand)

    def _weights(self, name: str, base: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Places:
        """The byte addresses of packed weights [o, i, row, col], with all lanes of the last output block."""
        shape = (round_up(shape[0], self.program.lanes), *shape[1:])
        self._operand(name, base, math.prod(shape) * dtype.itemsize, dtype)
        return base + _packed(shape, self.program.lanes, full=True) * dtype.itemsize

    def _row_bytes(self, cols: int, dtype: np.dtype[Any]) -> int:
        return round_up(cols, self.program.column_align) * self.program.lanes * dtype.itemsize

    def _placed(self, name: str, sram: _Map) -> _Map:
        """The map itself, after its rules are checked."""
        self._expect(sram.row_bytes == self._row_bytes(sram.cols, sram.dtype), f"{name}: wrong row_bytes")
        rows_bytes = round_up(sram.rows, self.program.lines) * sram.row_bytes
        self._expect(sram.block_bytes >= rows_bytes, f"{name}: block_bytes hold fewer than the map's rows")
        whole_blocks = ceil_div(sram.channels, sram.lanes) - 1
        self._operand(name, sram.base, whole_blocks * sram.block_bytes + rows_bytes, sram.dtype)
        return sram

    def _operand(self, name: str, base: int, size_bytes: int, dtype: np.dtype[Any]) -> None:
        """Check an operand's address, and note how far it reaches."""
        self._expect(base % dtype.itemsize == 0, f"{name}: address {base} is no multiple of {dtype.itemsize}")
        starts = memory_starts(self.program.memories)
        for memory, (start, memory_bytes) in enumerate(zip(starts, self.program.memories, strict=False)):
            if start <= base and base + size_bytes <= start + memory_bytes:
                self.reached[memory] = max(self.reached[memory], base + size_bytes - start)
                return
        raise ProgramError(f"{self.where}: {name}: bytes {base}-{base + size_bytes} do not lie within one memory")

    def _read(self, addresses: Places, dtype: np.dtype[Any]) -> Array:
        every = addresses[..., np.newaxis] + np.arange(dtype.itemsize)
        if self.checked and not self.written[every].all():
            first = every[~self.written[every]].min()
            raise ProgramError(f"{self.where}: reads byte {first} of the SRAM, which nothing wrote")
        return np.asarray(self.sram[every].view(dtype)[..., 0])

    def _write(self, addresses: Places, values: Array) -> None:
        every = addresses[..., np.newaxis] + np.arange(values.dtype.itemsize)
        self.sram[every] = np.array(np.broadcast_to(values, addresses.shape))[..., np.newaxis].view(np.uint8)
        self.written[every] = True

    def _forget(self, sram: _Map) -> None:
        """Make the elements of a map undefined, with the lanes past the last channel."""
        for addresses in (sram.addresses(), sram.lanes_past_the_last()):
            every = addresses[..., np.newaxis] + np.arange(sram.dtype.itemsize)
            self.sram[every] = _UNWRITTEN
            self.written[every] = False

    # Tensors in DRAM.

    def _record(self, command: Command) -> TensorRecord:
        self._expect(command["tensor"] < len(self.program.tensors), f"there is no tensor {command['tensor']}")
        return self.program.tensors[command["tensor"]]

    def _dram(self, record: TensorRecord, image: int) -> Array:
        """The elements of one image's tensor, flat, in DRAM."""
        dtype, elems = _NUMPY[record.dtype], math.prod(record.dims)
        skip = image * elems if record.per_image else 0
        if record.place is Place.ARGUMENT:
            self._expect(record.offset < len(self.arguments), f"there is no argument {record.offset}")
            memory = self.arguments[record.offset]
            self._expect(memory.dtype == dtype and memory.flags.c_contiguous, "the argument's type or strides differ")
            start, flat = 0, memory.reshape(-1).view(np.uint8)
        else:
            constant = record.place is Place.CONSTANT
            start, flat = record.offset, np.frombuffer(self.program.constants, np.uint8) if constant else self.workspace
        start, stop = start + skip * dtype.itemsize, start + (skip + elems) * dtype.itemsize
        self._expect(stop <= len(flat), "the tensor is larger than its memory")
        return flat[start:stop].view(dtype)

    def _map_box(self, command: Command, image: int) -> tuple[TensorRecord, Array, _Map]:
        """Of a map's load or store: the tensor, its box in DRAM [channel, row, col], and the map in SRAM."""
        record = self._record(command)
        self._expect(record.layout is Layout.NCHW, f"a map in the layout {record.layout.name}")
        channels, rows, cols = command["channels"], command["rows"], command["cols"]
        box = self._box(record, (0, command["channel"], command["row"], command["col"]), (1, channels, rows, cols))
        values = self._dram(record, image).reshape(record.dims)[box][0]
        self.dram_bytes[record.traffic] += values.nbytes
        steps = (command["block_bytes"], command["row_bytes"], self.program.lanes)
        return record, values, self._placed("sram", _Map(command["sram"], channels, rows, cols, *steps, values.dtype))

    def _box(self, record: TensorRecord, starts: Sequence[int], counts: Sequence[int]) -> tuple[slice, ...]:
        for start, count, dim in zip(starts, counts, record.dims, strict=True):
            self._expect(count > 0 and start + count <= dim, "the box is empty or reaches beyond the tensor")
        return tuple(slice(start, start + count) for start, count in zip(starts, counts, strict=True))

    def _expect(self, condition: bool, otherwise: str) -> None:
        if not condition:
            raise ProgramError(f"{self.where}: {otherwise}")


def _convolve(command: Command, inputs: Array, weights: Array, sums: Array) -> None:
    """Add to the sums [output channel, row, col], tap by tap and group by group; taps outside the map are skipped."""

    def reads(axis: str, pad: str, tap: int) -> tuple[list[int], list[int]]:
        """The outputs along an axis whose tap lies within the map, and the positions that they read."""
        shift = tap * command[f"dilation_{axis}"] - command[pad]
        pairs = [(out, out * command[f"stride_{axis}"] + shift) for out in range(command[f"out_{axis}"])]
        pairs = [(out, position) for out, position in pairs if 0 <= position < command[f"in_{axis}"]]
        return [out for out, _ in pairs], [position for _, position in pairs]

    groups = command["groups"]
    ins, outs = len(inputs) // groups, len(sums) // groups
    for row, col in np.ndindex(command["kernel_rows"], command["kernel_cols"]):
        out_rows, in_rows = reads("rows", "pad_top", row)
        out_cols, in_cols = reads("cols", "pad_left", col)
        for group in range(groups):
            own = range(group * outs, (group + 1) * outs)
            read = inputs[np.ix_(range(group * ins, (group + 1) * ins), in_rows, in_cols)]
            sums[np.ix_(own, out_rows, out_cols)] += np.tensordot(weights[own, :, row, col], read, axes=1)
