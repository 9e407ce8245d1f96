"""Hand-made programs for the engine's tests: the few commands that one convolution needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_sramtile.engine import run
from tvm_sramtile.errors import EngineError
from tvm_sramtile.ints import ceil_div, round_up
from tvm_sramtile.isa import Command, Dtype, Layout, Place, Program, TensorRecord, Traffic, decode, encode
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


def argument(
    index: int, traffic: Traffic, layout: Layout, dims: tuple[int, ...], per_image: bool = False
) -> TensorRecord:
    return TensorRecord(
        Place.ARGUMENT, traffic, Dtype.FLOAT32, layout, per_image, (dims[0], dims[1], dims[2], dims[3]), index
    )


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
        "out_rows": op.out_rows,
        "out_cols": op.out_cols,
        "out_channels": op.outs,
        "groups": op.groups,
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
    tensors = [argument(0, Traffic.INPUTS, Layout.NCHW, (1, op.channels, op.rows, op.cols), per_image=True)]
    tensors += [argument(1 + index, Traffic.WEIGHTS, Layout.OIHW, dims) for index in range(passes)]
    if bias:
        tensors.append(argument(len(tensors), Traffic.WEIGHTS, Layout.NCHW, (1, op.outs, 1, 1)))
    tensors.append(
        argument(len(tensors), Traffic.OUTPUTS, Layout.NCHW, (1, op.outs, op.out_rows, op.out_cols), per_image=True)
    )
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


def patched(code: bytes, record: str, **fields: float) -> bytes:
    """The program with some fields of one record ("header", "tensor 2", "prologue 0", "body 1") overwritten."""
    kind, _, index = record.partition(" ")
    offset, layout = _place_of(code, kind, int(index or 0))
    values = list(record_struct(layout).unpack_from(code, offset))
    names = [field.name for field in layout]
    for name, value in fields.items():
        place = names.index(name)
        values[place] = value if layout[place].type == "f32" else int(value)
    changed = bytearray(code)
    record_struct(layout).pack_into(changed, offset, *values)
    return bytes(changed)


def _place_of(code: bytes, kind: str, index: int) -> tuple[int, tuple[Field, ...]]:
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


_EXTREMES = (0, 1, 2, 3, 4, 16, 64, 255, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 4, 2**32 - 1, 2**63 - 1, 2**64 - 1)


def run_damaged(seed: int, count: int) -> tuple[int, int]:
    """Run programs with random damage; returns how many were refused and how many ran."""
    rng = np.random.default_rng(seed)
    bases = [
        conv_program(Chip(lanes), op, bias=True, clip=(0.0, 6.0), passes=2)
        for lanes in (1, 4, 8, 16)
        for op in (Conv(8, 5, 6, 8), Conv(12, 6, 15, 12, groups=12), Conv(6, 4, 4, 10, groups=2))
    ]
    refused = 0
    for _ in range(count):
        base = bases[rng.integers(len(bases))]
        code = _damaged(rng, encode(base))
        arrays = [np.ones(4096, np.float32) for _ in range(base.argument_count)]
        try:
            run(code, arrays, int(rng.integers(0, 3)))
        except (EngineError, ValueError):
            refused += 1
    return refused, count - refused


def _damaged(rng: np.random.Generator, code: bytes) -> bytes:
    kind = rng.integers(10)
    if kind == 0:
        return rng.bytes(int(rng.integers(0, 2 * len(code))))
    changed = bytearray(code)
    if kind < 4:
        for _ in range(int(rng.integers(1, 4))):
            changed[rng.integers(len(changed))] ^= 1 << rng.integers(8)
        return bytes(changed)
    # One field after another, near its value or far from it: most of these get past the first checks.
    program = decode(code)
    records = [("header", HEADER), *((f"tensor {index}", TENSOR) for index in range(len(program.tensors)))]
    for part, commands in (("prologue", program.prologue), ("body", program.body)):
        records += [(f"{part} {index}", COMMAND + command.opcode.fields) for index, command in enumerate(commands)]
    record, fields = records[rng.integers(len(records))]
    damaged = code
    for _ in range(int(rng.integers(1, 3))):
        field = fields[rng.integers(len(fields))]
        if field.name in ("opcode", "magic", "version", "tensor_count", "prologue_commands", "body_commands"):
            continue
        offset, layout = _place_of(code, *_split(record))
        old = record_struct(layout).unpack_from(damaged, offset)[layout.index(field)]
        new = _other_value(rng, field, old)
        damaged = patched(damaged, record, **{field.name: new})
    return damaged


def _split(record: str) -> tuple[str, int]:
    kind, _, index = record.partition(" ")
    return kind, int(index or 0)


def _other_value(rng: np.random.Generator, field: Field, old: float) -> float:
    if field.type == "f32":
        return float(rng.choice([0.0, -1.0, np.inf, -np.inf, np.nan, 1e30]))
    near = int(old) + int(rng.integers(-3, 4)) * int(rng.choice([1, 1, 4, 16]))
    value = near if rng.integers(3) else int(_EXTREMES[rng.integers(len(_EXTREMES))])
    bits = {"u8": 8, "u16": 16, "u32": 32, "u64": 64, "i32": 32}[field.type]
    value %= 2**bits
    return value - 2**bits if field.type == "i32" and value >= 2 ** (bits - 1) else value
