"""Hand-made programs for the engine's tests: the few commands that one convolution needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_sramtile.ints import ceil_div, round_up
from tvm_sramtile.isa import Command, Dtype, Layout, Place, Program, TensorRecord, Traffic, encode
from tvm_sramtile.isa.code import record_struct
from tvm_sramtile.isa.table import (
    COMMAND,
    CONV,
    CONV_BIAS,
    CONV_CLIP,
    CONV_FIRST,
    CONV_LAST,
    HEADER,
    LOAD,
    LOAD_WEIGHTS,
    OPCODES,
    STORE,
    TENSOR,
    Field,
)

Array = NDArray[np.float32]
ELEM_BYTES = 4


@dataclass(frozen=True, slots=True)
class Chip:
    """What decides how maps lie in SRAM."""

    lanes: int = 16
    lines: int = 1
    column_align: int = 1

    def row_bytes(self, cols: int) -> int:
        return round_up(cols, self.column_align) * self.lanes * ELEM_BYTES

    def block_bytes(self, rows: int, cols: int) -> int:
        return round_up(rows, self.lines) * self.row_bytes(cols)

    def map_bytes(self, channels: int, rows: int, cols: int) -> int:
        return ceil_div(channels, self.lanes) * self.block_bytes(rows, cols)

    def weight_bytes(self, outs: int, ins: int, taps: int) -> int:
        return round_up(outs, self.lanes) * ins * taps * ELEM_BYTES


@dataclass(frozen=True, slots=True)
class Conv:
    """A convolution of one image: NCHW map without its batch, OIHW weights."""

    channels: int
    rows: int
    cols: int
    outs: int
    kernel: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)  # top, left, bottom, right
    groups: int = 1

    @property
    def out_rows(self) -> int:
        return self._out(self.rows, self.kernel[0], self.strides[0], self.dilation[0], self.pads[0] + self.pads[2])

    @property
    def out_cols(self) -> int:
        return self._out(self.cols, self.kernel[1], self.strides[1], self.dilation[1], self.pads[1] + self.pads[3])

    @property
    def ipg(self) -> int:
        return self.channels // self.groups

    @property
    def macs(self) -> int:
        return self.out_rows * self.out_cols * self.kernel[0] * self.kernel[1] * self.ipg * self.outs

    @staticmethod
    def _out(extent: int, kernel: int, stride: int, dilation: int, pads: int) -> int:
        return (extent + pads - dilation * (kernel - 1) - 1) // stride + 1

    def expected(self, x: Array, w: Array) -> NDArray[np.float64]:
        """The sums, tap by tap; positions outside the map are skipped."""
        out = np.zeros((self.outs, self.out_rows, self.out_cols))
        opg = self.outs // self.groups
        for p in range(self.kernel[0]):
            rows, in_rows = _positions(self.out_rows, self.strides[0], p * self.dilation[0] - self.pads[0], self.rows)
            for q in range(self.kernel[1]):
                cols, in_cols = _positions(
                    self.out_cols, self.strides[1], q * self.dilation[1] - self.pads[1], self.cols
                )
                for group in range(self.groups):
                    outs = slice(group * opg, (group + 1) * opg)
                    ins = slice(group * self.ipg, (group + 1) * self.ipg)
                    part = x[ins][:, in_rows][:, :, in_cols].astype(np.float64)
                    taps = w[outs, :, p, q].astype(np.float64)
                    out[np.ix_(range(outs.start, outs.stop), rows, cols)] += np.einsum("oi,irc->orc", taps, part)
        return out


def _positions(outs: int, stride: int, offset: int, extent: int) -> tuple[list[int], list[int]]:
    inside = [out for out in range(outs) if 0 <= out * stride + offset < extent]
    return inside, [out * stride + offset for out in inside]


class Sram:
    """Hands out addresses, one after the other."""

    def __init__(self, start: int = 0, align: int = ELEM_BYTES) -> None:
        self.end = start
        self.align = align

    def take(self, size: int) -> int:
        start = round_up(self.end, self.align)
        self.end = start + size
        return start


def argument(index: int, traffic: Traffic, dims: tuple[int, int, int], per_image: bool = False) -> TensorRecord:
    """A map (channels, rows, cols) as NCHW has it."""
    channels, rows, cols = dims
    image = channels * rows * cols if per_image else 0
    strides = (rows * cols, cols, 1, 0, 0)
    return TensorRecord(
        Place.ARGUMENT, traffic, Dtype.FLOAT32, Layout.MAP, (channels, rows, cols, 1, 1), strides, image, index
    )


def weights(index: int, dims: tuple[int, int, int, int], groups: int = 1) -> TensorRecord:
    """Weights as OIHW has them."""
    outs, ins, rows, cols = dims
    axes = (groups, outs // groups, ins, rows, cols)
    strides = (outs // groups * ins * rows * cols, ins * rows * cols, rows * cols, cols, 1)
    return TensorRecord(Place.ARGUMENT, Traffic.WEIGHTS, Dtype.FLOAT32, Layout.WEIGHTS, axes, strides, 0, index)


def load(chip: Chip, tensor: int, channels: int, rows: int, cols: int, sram: int, **fields: Any) -> Command:
    """A whole map, from its first channel, row and column if the fields do not say otherwise."""
    return _map(LOAD, chip, tensor, channels, rows, cols, sram, fields)


def store(chip: Chip, tensor: int, channels: int, rows: int, cols: int, sram: int, **fields: Any) -> Command:
    return _map(STORE, chip, tensor, channels, rows, cols, sram, fields)


def _map(
    opcode: Any, chip: Chip, tensor: int, channels: int, rows: int, cols: int, sram: int, fields: dict[str, Any]
) -> Command:
    waits = fields.pop("waits", (0, 0, 0))
    box = {"channel": 0, "row": 0, "col": 0, "block_bytes": chip.block_bytes(rows, cols), **fields}
    command = Command.make(
        opcode,
        tensor=tensor,
        channels=channels,
        rows=rows,
        cols=cols,
        sram=sram,
        row_bytes=chip.row_bytes(cols),
        **box,
    )
    return replace(command, waits=waits)


def load_weights(tensor: int, dims: tuple[int, int, int, int], sram: int, **fields: Any) -> Command:
    waits = fields.pop("waits", (0, 0, 0))
    box = {"out_channel": 0, "in_channel": 0, "kernel_row": 0, "kernel_col": 0}
    box |= {"kernel_row_step": 1, "kernel_col_step": 1}
    box |= dict(zip(("out_channels", "in_channels", "kernel_rows", "kernel_cols"), dims, strict=True))
    return replace(Command.make(LOAD_WEIGHTS, tensor=tensor, sram=sram, **{**box, **fields}), waits=waits)


def conv(chip: Chip, op: Conv, flags: int, waits: tuple[int, int, int] = (0, 0, 0), **fields: Any) -> Command:
    """The command of a whole convolution; addresses are fields."""
    values: dict[str, Any] = {
        "in_block_bytes": chip.block_bytes(op.rows, op.cols),
        "in_rows": op.rows,
        "in_cols": op.cols,
        "in_channels": op.channels,
        "bias": 0,
        "accumulators": 0,
        "output": 0,
        "out_block_bytes": chip.block_bytes(op.out_rows, op.out_cols),
        "out_map_rows": op.out_rows,
        "out_map_cols": op.out_cols,
        "out_row": 0,
        "out_rows": op.out_rows,
        "out_row_step": 1,
        "out_col": 0,
        "out_cols": op.out_cols,
        "out_col_step": 1,
        "out_channels": op.outs,
        "groups": op.groups,
        "unit_rows": op.kernel[0],
        "unit_cols": op.kernel[1],
        "kernel_rows": op.kernel[0],
        "kernel_cols": op.kernel[1],
        "stride_rows": op.strides[0],
        "stride_cols": op.strides[1],
        "dilation_rows": op.dilation[0],
        "dilation_cols": op.dilation[1],
        "pad_top": op.pads[0],
        "pad_left": op.pads[1],
        "clip_low": 0.0,
        "clip_high": 0.0,
        "input_dtype": Dtype.FLOAT32,
        "weight_dtype": Dtype.FLOAT32,
        "accumulator_dtype": Dtype.FLOAT32,
        "output_dtype": Dtype.FLOAT32,
    }
    return replace(Command.make(CONV, flags=flags, **{**values, **fields}), waits=waits)


def conv_program(
    chip: Chip,
    op: Conv,
    *,
    bias: bool = False,
    clip: tuple[float, float] | None = None,
    passes: int = 1,
    in_place: bool = False,
    align: int = ELEM_BYTES,
    mac_array: tuple[int, int] = (16, 16),
) -> Program:
    """Load everything, convolve, store. Arguments: the map, the weights of each pass, the bias (if any), the output.

    ``passes`` convolutions, each with weights of its own, add up; with ``in_place`` the output lies where the
    accumulators do, as it always does with one pass.
    """
    ipg = op.ipg
    dims = (op.outs, ipg, *op.kernel)
    tensors = [argument(0, Traffic.INPUTS, (op.channels, op.rows, op.cols), per_image=True)]
    tensors += [weights(1 + index, dims, op.groups) for index in range(passes)]
    if bias:
        tensors.append(argument(len(tensors), Traffic.WEIGHTS, (op.outs, 1, 1)))
    tensors.append(argument(len(tensors), Traffic.OUTPUTS, (op.outs, op.out_rows, op.out_cols), per_image=True))
    sram = Sram(align=align)
    x = sram.take(chip.map_bytes(op.channels, op.rows, op.cols))
    w = [sram.take(chip.weight_bytes(op.outs, ipg, op.kernel[0] * op.kernel[1])) for _ in range(passes)]
    out_bytes = chip.map_bytes(op.outs, op.out_rows, op.out_cols)
    sums = sram.take(out_bytes)
    y = sums if in_place or passes == 1 else sram.take(out_bytes)
    prologue = [load_weights(1 + index, dims, w[index]) for index in range(passes)]
    b = 0
    if bias:
        b = sram.take(chip.map_bytes(op.outs, 1, 1))
        prologue.append(load(chip, 1 + passes, op.outs, 1, 1, b))
    body = [load(chip, 0, op.channels, op.rows, op.cols, x, waits=(0, 0, 0))]
    for index in range(passes):
        flags = (CONV_FIRST if index == 0 else 0) | (CONV_LAST if index == passes - 1 else 0)
        if index == passes - 1:
            flags |= (CONV_BIAS if bias else 0) | (CONV_CLIP if clip is not None else 0)
        low, high = clip if clip is not None else (0.0, 0.0)
        body.append(
            conv(
                chip,
                op,
                flags,
                waits=(1, 0, 0),
                input=x,
                weights=w[index],
                bias=b,
                accumulators=sums,
                output=y,
                clip_low=low,
                clip_high=high,
            )
        )
    body.append(store(chip, len(tensors) - 1, op.outs, op.out_rows, op.out_cols, y, waits=(0, passes, 0)))
    return Program(
        memories=(sram.end,),
        lanes=chip.lanes,
        lines=chip.lines,
        column_align=chip.column_align,
        mac_array=mac_array,
        dma_bytes_per_cycle=16,
        dma_setup_cycles=64,
        argument_count=len(tensors),
        tensors=tuple(tensors),
        prologue=tuple(prologue),
        body=tuple(body),
    )


def program(
    chip: Chip,
    tensors: list[TensorRecord],
    body: list[Command],
    memories: tuple[int, ...] = (4096,),
    prologue: tuple[Command, ...] = (),
    **fields: Any,
) -> Program:
    return Program(
        memories=memories,
        lanes=chip.lanes,
        lines=chip.lines,
        column_align=chip.column_align,
        mac_array=(16, 16),
        dma_bytes_per_cycle=16,
        dma_setup_cycles=64,
        argument_count=sum(tensor.place is Place.ARGUMENT for tensor in tensors),
        tensors=tuple(tensors),
        prologue=prologue,
        body=tuple(body),
        **fields,
    )


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def patched(code: bytes, record: str, **fields: float) -> bytes:
    """The program with some fields of one record ("header", "tensor 2", "prologue 0", "body 1") overwritten."""
    kind, _, index = record.partition(" ")
    offset, layout = place_of(code, kind, int(index or 0))
    values = list(record_struct(layout).unpack_from(code, offset))
    names = [field.name for field in layout]
    for name, value in fields.items():
        place = names.index(name)
        values[place] = value if layout[place].type == "f32" else int(value)
    changed = bytearray(code)
    record_struct(layout).pack_into(changed, offset, *values)
    return bytes(changed)


def place_of(code: bytes, kind: str, index: int) -> tuple[int, tuple[Field, ...]]:
    """Where a record starts, and its fields; of a damaged program too, if its counts and opcodes are whole."""
    head = record_struct(HEADER)
    header = dict(zip((field.name for field in HEADER), head.unpack_from(code), strict=True))
    if kind == "header":
        return 0, HEADER
    tensor_bytes = record_struct(TENSOR).size
    if kind == "tensor":
        return head.size + index * tensor_bytes, TENSOR
    offset = head.size + header["tensor_count"] * tensor_bytes
    for _ in range(index + (header["prologue_commands"] if kind == "body" else 0)):
        offset += record_struct(COMMAND + OPCODES[code[offset]].fields).size
    return offset, COMMAND + OPCODES[code[offset]].fields


def small_program() -> Program:
    """Two passes over one map; prologue: weights, weights, bias; body: LOAD, CONV, CONV, STORE."""
    return conv_program(Chip(4), Conv(8, 5, 6, 8), bias=True, clip=(0.0, 6.0), passes=2)


def small_case() -> tuple[bytes, list[Array]]:
    sizes = (8 * 30, 8 * 8 * 9, 8 * 8 * 9, 16, 8 * 30)
    return encode(small_program()), [np.ones(size, np.float32) for size in sizes]
