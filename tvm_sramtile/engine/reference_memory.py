"""The memories of the numpy reference: SRAM by address, DRAM by tensor. Errors do not name the command yet."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_sramtile.errors import ProgramError
from tvm_sramtile.ints import ceil_div, round_up
from tvm_sramtile.isa import Dtype, Place, Program, TensorRecord, memory_starts

Array = NDArray[Any]
Places = NDArray[np.int64]  # byte addresses or element indices

NUMPY: Mapping[Dtype, np.dtype[Any]] = {Dtype.FLOAT32: np.dtype(np.float32)}
_UNWRITTEN = 0xFF  # fills memory that nothing wrote; as floats these bytes are NaN


def expect(condition: bool, otherwise: str) -> None:
    """Raise ``ProgramError`` with the text ``otherwise`` unless ``condition`` holds."""
    if not condition:
        raise ProgramError(otherwise)


@dataclass(frozen=True, slots=True)
class SramMap:
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
        return self._addresses(np.arange(self.channels))

    def lanes_past_the_last(self) -> Places:
        """Addresses as above, of the lanes of the last block that hold no channel."""
        return self._addresses(np.arange(self.channels, round_up(self.channels, self.lanes)))

    def _addresses(self, channel: Places) -> Places:
        elem_bytes = self.dtype.itemsize
        place = self.base + channel // self.lanes * self.block_bytes + channel % self.lanes * elem_bytes
        rows, cols = np.arange(self.rows) * self.row_bytes, np.arange(self.cols) * (self.lanes * elem_bytes)
        return np.asarray(place[:, np.newaxis, np.newaxis] + rows[:, np.newaxis] + cols)


def packed(shape: Sequence[int], lanes: int, *, full: bool) -> Places:
    """Where weight [o, i, row, col] lies in packed order, in elements; ``full``: with all lanes of the last block."""
    outs, ins, rows, cols = shape
    out, inp, row, col = np.ogrid[:outs, :ins, :rows, :cols]
    out_start, in_start = out // lanes * lanes, inp // lanes * lanes
    block_ins = np.minimum(lanes, ins - in_start)
    block_lanes = lanes if full else np.minimum(lanes, outs - out_start)
    within = in_start * rows * cols + (row * cols + col) * block_ins + inp - in_start
    return np.asarray(out_start * ins * rows * cols + within * block_lanes + out - out_start, dtype=np.int64)


class Sram:
    """SRAM, which of its bytes were written, and how far operands reached in each memory."""

    def __init__(self, program: Program, *, checked: bool) -> None:
        self.program, self.checked = program, checked
        self.starts = memory_starts(program.memories)
        self.bytes = np.full(self.starts[-1], _UNWRITTEN, np.uint8)
        self.written = np.zeros(self.starts[-1], np.bool_)
        self.reached = [0] * len(program.memories)

    def row_bytes(self, cols: int, dtype: np.dtype[Any]) -> int:
        """The bytes from one row of a map to the next."""
        return round_up(cols, self.program.column_align) * self.program.lanes * dtype.itemsize

    def map(self, name: str, base: int, extents: Sequence[int], block_bytes: int, dtype: np.dtype[Any]) -> SramMap:
        """An operand of a computation: a map of (channels, rows, cols)."""
        found = self._map(name, base, extents, block_bytes, dtype)
        self.operand(name, base, ceil_div(found.channels, found.lanes) * block_bytes, dtype.itemsize)
        return found

    def moved(self, name: str, base: int, extents: Sequence[int], block_bytes: int, dtype: np.dtype[Any]) -> SramMap:
        """An operand of a load, store or copy: a map that ends with its last row."""
        found = self._map(name, base, extents, block_bytes, dtype)
        before = (ceil_div(found.channels, found.lanes) - 1) * block_bytes
        self.operand(name, base, before + found.rows * found.row_bytes, dtype.itemsize)
        return found

    def _map(self, name: str, base: int, extents: Sequence[int], block_bytes: int, dtype: np.dtype[Any]) -> SramMap:
        channels, rows, cols = extents
        row_bytes = self.row_bytes(cols, dtype)
        rows_bytes = round_up(rows, self.program.lines) * row_bytes
        expect(block_bytes >= rows_bytes, f"{name}: block_bytes hold fewer than the map's rows")
        return SramMap(base, channels, rows, cols, block_bytes, row_bytes, self.program.lanes, dtype)

    def vector(self, name: str, base: int, channels: int, dtype: np.dtype[Any]) -> SramMap:
        """An operand: a map of one row and column, without space between its blocks."""
        return self.map(name, base, (channels, 1, 1), self.program.lines * self.row_bytes(1, dtype), dtype)

    def weights(self, name: str, base: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Places:
        """An operand: the byte addresses of packed weights [o, i, row, col], with all lanes of the last block."""
        shape = (round_up(shape[0], self.program.lanes), *shape[1:])
        self.operand(name, base, math.prod(shape) * dtype.itemsize, dtype.itemsize)
        return base + packed(shape, self.program.lanes, full=True) * dtype.itemsize

    def operand(self, name: str, base: int, size_bytes: int, align_bytes: int) -> None:
        """Check an operand's address, and note how far it reaches."""
        expect(base % align_bytes == 0, f"{name}: address {base} is no multiple of {align_bytes}")
        for memory, (start, memory_bytes) in enumerate(zip(self.starts, self.program.memories, strict=False)):
            if start <= base and base + size_bytes <= start + memory_bytes:
                self.reached[memory] = max(self.reached[memory], base + size_bytes - start)
                return
        raise ProgramError(f"{name}: bytes {base}-{base + size_bytes} do not lie within one memory")

    def read(self, addresses: Places, dtype: np.dtype[Any]) -> Array:
        """The elements at these byte addresses."""
        every = addresses[..., np.newaxis] + np.arange(dtype.itemsize)
        if self.checked and not self.written[every].all():
            first = every[~self.written[every]].min()
            raise ProgramError(f"reads byte {first} of the SRAM, which nothing wrote")
        return np.asarray(self.bytes[every].view(dtype)[..., 0])

    def write(self, addresses: Places, values: Array) -> None:
        """Write ``values``, broadcast to the addresses."""
        every = addresses[..., np.newaxis] + np.arange(values.dtype.itemsize)
        self.bytes[every] = np.array(np.broadcast_to(values, addresses.shape))[..., np.newaxis].view(np.uint8)
        self.written[every] = True

    def transfer(self, source: Places, target: Places, dtype: np.dtype[Any]) -> None:
        """Copy the elements at ``source`` to ``target``, with what is known of them."""
        each, to = (places[..., np.newaxis] + np.arange(dtype.itemsize) for places in (source, target))
        self.bytes[to], self.written[to] = self.bytes[each], self.written[each]

    def forget(self, addresses: Places, dtype: np.dtype[Any]) -> None:
        """Make the elements at these addresses undefined."""
        every = addresses[..., np.newaxis] + np.arange(dtype.itemsize)
        self.bytes[every] = _UNWRITTEN
        self.written[every] = False


class Dram:
    """The tensors of a call: arguments, constants, workspace."""

    def __init__(self, program: Program, arguments: Sequence[Array]) -> None:
        self.program, self.arguments = program, arguments
        self.workspace = np.full(program.workspace_bytes, _UNWRITTEN, np.uint8)

    def strided(self, record: TensorRecord, image: int) -> Array:
        """The tensor of one image by its dims and strides; writing to it writes to DRAM."""
        dtype = NUMPY[record.dtype]
        elems = 1 + sum((dim - 1) * stride for dim, stride in zip(record.dims, record.strides, strict=True))
        flat = self.flat(record, elems, dtype, image * record.image_stride)
        return np.ndarray(record.dims, dtype, flat, strides=[stride * dtype.itemsize for stride in record.strides])

    def flat(self, record: TensorRecord, elems: int, dtype: np.dtype[Any], skip: int = 0) -> Array:
        """``elems`` elements of a tensor in the order of DRAM, after the first ``skip``."""
        if record.place is Place.ARGUMENT:
            expect(record.offset < len(self.arguments), f"there is no argument {record.offset}")
            memory = self.arguments[record.offset]
            expect(memory.dtype == dtype and memory.flags.c_contiguous, "the argument's type or strides differ")
            start, stored = 0, memory.reshape(-1).view(np.uint8)
        else:
            constant = record.place is Place.CONSTANT
            start = record.offset
            stored = np.frombuffer(self.program.constants, np.uint8) if constant else self.workspace
        start, stop = start + skip * dtype.itemsize, start + (skip + elems) * dtype.itemsize
        expect(stop <= len(stored), "the tensor is larger than its memory")
        return stored[start:stop].view(dtype)
