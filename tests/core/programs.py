"""Small programs made by hand, without the planner and the lowering, for tests of whatever executes programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from core import oracle
from numpy.typing import NDArray

from tvm_sramtile.geometry import Conv2d
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ints import Range, cut, round_up
from tvm_sramtile.isa import Command, Dtype, Layout, Place, Program, TensorRecord, Traffic
from tvm_sramtile.isa.table import CONV, CONV_BIAS, CONV_CLIP, CONV_FIRST, CONV_LAST, LOAD, LOAD_WEIGHTS, STORE

Float = NDArray[np.float32]
ELEM_BYTES = 4

SPEC = AcceleratorSpec(name="test", sram_bytes=1 << 20, channel_align=4, mac_array=(4, 4))


def program(
    tensors: Sequence[TensorRecord],
    body: Sequence[Command],
    *,
    prologue: Sequence[Command] = (),
    spec: AcceleratorSpec = SPEC,
    constants: bytes = b"",
    workspace_bytes: int = 0,
) -> Program:
    """A program whose argument count is what its tensors ask for."""
    offsets = [tensor.offset for tensor in tensors if tensor.place is Place.ARGUMENT]
    return Program(
        **Program.chip(spec),
        argument_count=max(offsets, default=-1) + 1,
        tensors=tuple(tensors),
        prologue=tuple(prologue),
        body=tuple(body),
        constants=constants,
        workspace_bytes=workspace_bytes,
    )


def tensor(traffic: Traffic, dims: Sequence[int], offset: int = 0, **changes: Any) -> TensorRecord:
    """An argument: NCHW maps, one an image, of (channels, rows, cols), unless changed."""
    channels, rows, cols = dims
    strides = (rows * cols, cols, 1, 0, 0)
    image = channels * rows * cols
    record = TensorRecord(
        Place.ARGUMENT, traffic, Dtype.FLOAT32, Layout.MAP, (channels, rows, cols, 1, 1), strides, image, offset
    )
    return replace(record, **changes)


def weight_tensor(dims: Sequence[int], offset: int = 0, groups: int = 1, **changes: Any) -> TensorRecord:
    """An argument: OIHW weights, unless changed."""
    outs, ins, rows, cols = dims
    whole = (groups, outs // groups, ins, rows, cols)
    strides = tuple(math.prod(whole[axis + 1 :]) for axis in range(5))
    record = TensorRecord(
        Place.ARGUMENT, Traffic.WEIGHTS, Dtype.FLOAT32, Layout.WEIGHTS, whole, strides, image_stride=0, offset=offset
    )
    return replace(record, **changes)


@dataclass(slots=True)
class Sram:
    """Sizes of operands in a spec's SRAM, and a place for one after the other."""

    spec: AcceleratorSpec
    used_bytes: int = 0

    def row_bytes(self, cols: int) -> int:
        return self.spec.layout.row_elems(cols) * ELEM_BYTES

    def block_bytes(self, rows: int, cols: int) -> int:
        return self.spec.layout.block_elems(rows, cols) * ELEM_BYTES

    def place_map(self, channels: int, rows: int, cols: int) -> int:
        return self._place(self.spec.layout.footprint_bytes(rows, cols, channels, ELEM_BYTES))

    def place_weights(self, outs: int, ins: int, rows: int, cols: int) -> int:
        return self._place(round_up(outs, self.spec.channel_align) * ins * rows * cols * ELEM_BYTES)

    def _place(self, size_bytes: int) -> int:
        self.used_bytes += size_bytes
        return self.used_bytes - size_bytes

    def box(self, which: int, channels: Range, rows: Range, cols: Range, sram: int) -> dict[str, int]:
        """The fields of LOAD and STORE of a box of tensor ``which``."""
        sizes = {"channels": len(channels), "rows": len(rows), "cols": len(cols)}
        starts = {"channel": channels.start, "row": rows.start, "col": cols.start}
        steps = {"block_bytes": self.block_bytes(len(rows), len(cols)), "row_bytes": self.row_bytes(len(cols))}
        return {"tensor": which, **starts, **sizes, "sram": sram, **steps}


def conv(sram: Sram, op: Conv2d, flags: int, **fields: Any) -> Command:
    """A CONV of a whole operator whose operands lie at the given addresses; any field can be given another value.

    All of the output map is computed, also where ``out_map_rows`` or ``out_map_cols`` are given.
    """
    values: dict[str, Any] = {
        "in_block_bytes": sram.block_bytes(op.in_rows, op.in_cols),
        "in_rows": op.in_rows,
        "in_cols": op.in_cols,
        "in_channels": op.in_channels,
        "bias": 0,
        "accumulators": fields["output"],
        "out_block_bytes": sram.block_bytes(op.out_rows, op.out_cols),
        "out_channels": op.out_channels,
        "groups": op.groups,
        "clip_low": 0.0,
        "clip_high": 0.0,
        **dict.fromkeys(("input_dtype", "weight_dtype", "accumulator_dtype", "output_dtype"), Dtype.FLOAT32),
    }
    for axis, index in (("rows", 0), ("cols", 1)):
        outs = fields.pop(f"out_map_{axis}", (op.out_rows, op.out_cols)[index])
        values |= {f"out_map_{axis}": outs, f"out_{axis}": outs, f"out_{axis[:-1]}": 0, f"out_{axis[:-1]}_step": 1}
        values[f"unit_{axis}"] = values[f"kernel_{axis}"] = op.kernel[index]
        values[f"stride_{axis}"] = op.strides[index]
        values[f"dilation_{axis}"] = op.dilation[index]
        values["pad_top" if axis == "rows" else "pad_left"] = op.padding[index]
    return Command.make(CONV, flags=flags, **{**values, **fields})


@dataclass(frozen=True, slots=True)
class ConvCase:
    """A convolution, how it is cut, and its tensors.

    Attributes:
        chunk_rows: output rows of a chunk; the last chunk may be smaller.
        in_parts: the input channels are summed in this many commands (``groups == 1`` only).
        packed: the weights are a packed constant instead of an OIHW argument.
        clip: as the fields of CONV, or no CLIP.
    """

    op: Conv2d
    data: Float
    weight: Float
    bias: Float | None = None
    clip: tuple[float, float] | None = None
    chunk_rows: int = 1 << 20
    in_parts: int = 1
    packed: bool = False
    spec: AcceleratorSpec = field(default=SPEC)

    def expected(self) -> Float:
        op, clip = self.op, self.clip or (None, None)
        attributes: dict[str, Any] = {"strides": op.strides, "padding": op.padding, "dilation": op.dilation}
        return oracle.conv2d(self.data, self.weight, self.bias, groups=op.groups, clip=clip, **attributes)

    @property
    def tolerance(self) -> float:
        return oracle.tolerance(self.op.in_channels_per_group * self.op.kernel[0] * self.op.kernel[1])

    def arguments(self) -> list[Float]:
        """The tensors of a call: data, output (to be written), weight, bias."""
        op = self.op
        output = np.full((len(self.data), op.out_channels, op.out_rows, op.out_cols), np.nan, np.float32)
        return [self.data, output, self.weight, *([] if self.bias is None else [self.bias])]

    def dram_bytes(self) -> dict[Traffic, int]:
        """What must be moved, by a count of its own: whole maps out, weights and bias once, each chunk's rows in."""
        op, images = self.op, len(self.data)
        rows_in = 0
        cols_read = {p for o in range(op.out_cols) for p in _reads(o, 1, op)}
        width = max(cols_read) - min(cols_read) + 1 if cols_read else 0
        for rows in cut(op.out_rows, self.chunk_rows):
            read = {p for o in range(rows.start, rows.stop) for p in _reads(o, 0, op)}
            rows_in += max(read) - min(read) + 1 if read else 0
        return {
            Traffic.INPUTS: images * rows_in * width * op.in_channels * ELEM_BYTES,
            Traffic.WEIGHTS: self.weight.nbytes + (0 if self.bias is None else self.bias.nbytes),
            Traffic.OUTPUTS: images * op.out_channels * op.out_rows * op.out_cols * ELEM_BYTES,
            Traffic.PARTIAL_SUMS: 0,
        }

    def program(self) -> Program:
        """Weights and bias loaded in the prologue; then, an image, each chunk loaded, convolved and stored."""
        op = self.op
        tensors = [
            tensor(Traffic.INPUTS, (op.in_channels, op.in_rows, op.in_cols), 0),
            tensor(Traffic.OUTPUTS, (op.out_channels, op.out_rows, op.out_cols), 1),
            weight_tensor(op.weight_shape, 2, op.groups),
        ]
        if self.packed:
            packed = {"layout": Layout.PACKED, "place": Place.CONSTANT, "strides": (0,) * 5}
            tensors[2] = replace(tensors[2], offset=0, **packed)
        if self.bias is not None:
            tensors.append(tensor(Traffic.WEIGHTS, (op.out_channels, 1, 1), 3, image_stride=0))
        sram = Sram(self.spec)
        prologue, weights, bias = self._parameters(sram)
        start = sram.used_bytes
        body: list[Command] = []
        for rows in cut(op.out_rows, self.chunk_rows):
            sram.used_bytes = start
            body += self._chunk(sram, rows, weights, bias)
        constants = pack(self.weight, self.spec.channel_align).tobytes() if self.packed else b""
        made = program(tensors, body, prologue=prologue, spec=self.spec, constants=constants)
        return replace(made, argument_count=len(self.arguments()))

    def _parameters(self, sram: Sram) -> tuple[list[Command], list[int], int]:
        """Commands that load weights (one operand a part of the input channels) and bias; their addresses."""
        outs, ins, *kernel = self.op.weight_shape
        commands, weights = [], []
        for part in self._parts(ins):
            weights.append(sram.place_weights(outs, len(part), *kernel))
            fields = {"out_channel": 0, "out_channels": outs, "in_channel": part.start, "in_channels": len(part)}
            fields |= {"kernel_row": 0, "kernel_rows": kernel[0], "kernel_col": 0, "kernel_cols": kernel[1]}
            fields |= {"kernel_row_step": 1, "kernel_col_step": 1}
            commands.append(Command.make(LOAD_WEIGHTS, tensor=2, sram=weights[-1], **fields))
        bias = sram.place_map(outs, 1, 1)
        if self.bias is not None:
            commands.append(Command.make(LOAD, **sram.box(3, Range(0, outs), Range(0, 1), Range(0, 1), bias)))
        return commands, weights, bias

    def _parts(self, channels: int) -> tuple[Range, ...]:
        return cut(channels, -(-channels // self.in_parts))

    def _chunk(self, sram: Sram, rows: Range, weights: Sequence[int], bias: int) -> list[Command]:
        op, commands = self.op, []
        outs, out_cols = Range(0, op.out_channels), Range(0, op.out_cols)
        window_rows, window_cols = op.row_window(rows), op.col_window(out_cols)
        read_rows, read_cols = window_rows.read, window_cols.read
        if not len(read_rows) or not len(read_cols):
            read_rows = read_cols = Range(0, 0)
        output = sram.place_map(len(outs), len(rows), len(out_cols))
        parts = self._parts(op.in_channels)
        for index, part in enumerate(parts):
            source = sram.place_map(len(part), len(read_rows), len(read_cols))
            if len(read_rows):
                commands.append(Command.make(LOAD, **sram.box(0, part, read_rows, read_cols, source)))
            flags = CONV_FIRST * (index == 0)
            if index == len(parts) - 1:
                flags |= CONV_LAST | CONV_BIAS * (self.bias is not None) | CONV_CLIP * (self.clip is not None)
            fields: dict[str, Any] = {"in_rows": len(read_rows), "in_cols": len(read_cols), "out_map_rows": len(rows)}
            fields |= {"in_block_bytes": sram.block_bytes(len(read_rows), len(read_cols)), "in_channels": len(part)}
            fields |= {"out_block_bytes": sram.block_bytes(len(rows), len(out_cols)), "bias": bias}
            fields |= {"pad_top": window_rows.pad_before, "pad_left": window_cols.pad_before}
            if flags & CONV_CLIP and self.clip is not None:
                fields |= {"clip_low": self.clip[0], "clip_high": self.clip[1]}
            commands.append(conv(sram, op, flags, input=source, weights=weights[index], output=output, **fields))
        commands.append(Command.make(STORE, **sram.box(1, outs, rows, out_cols, output)))
        return commands


def _reads(out: int, axis: int, op: Conv2d) -> set[int]:
    """The positions of the map that one output reads along an axis."""
    start = out * op.strides[axis] - op.padding[axis]
    taps = range(start, start + op.dilation[axis] * (op.kernel[axis] - 1) + 1, op.dilation[axis])
    return {position for position in taps if 0 <= position < (op.in_rows, op.in_cols)[axis]}


def pack(weight: Float, lanes: int) -> Float:
    """OIHW weights in packed order: output block, input block, row, col, input channel, lane."""
    outs, ins, rows, cols = weight.shape
    return np.array(
        [
            weight[out, channel, row, col]
            for outs_of_block in cut(outs, lanes)
            for ins_of_block in cut(ins, lanes)
            for row in range(rows)
            for col in range(cols)
            for channel in range(ins_of_block.start, ins_of_block.stop)
            for out in range(outs_of_block.start, outs_of_block.stop)
        ],
        np.float32,
    )


def _attributes(rng: np.random.Generator) -> Conv2d | None:
    """Attributes of a small convolution, or nothing when they leave no output."""
    groups = int(rng.choice([1, 1, 2, 3, 5]))
    ins, outs = int(rng.integers(1, 7 if groups > 1 else 21)), int(rng.integers(1, 4 if groups > 1 else 21))
    pairs = rng.integers(1, [[4, 4], [4, 4], [3, 3], [12, 12]], (4, 2)).tolist()
    kernel, strides, dilation, size = (tuple(pair) for pair in pairs)
    padding = rng.integers(0, int(rng.choice([1, 3, 6])), 4).tolist()
    op = Conv2d(ins * groups, *size, outs * groups, kernel, strides, tuple(padding), dilation, groups)
    return op if op.out_rows and op.out_cols else None


def conv_case(seed: int) -> ConvCase:
    """A small convolution drawn from a seed: any strides, pads, dilation and groups, cut into chunks."""
    rng = np.random.default_rng(seed)
    op = None
    while op is None:
        op = _attributes(rng)
    images = int(rng.choice([1, 1, 2, 3]))
    clip = [None, (0.0, np.inf), (0.0, 6.0), (-0.5, 0.25)][rng.integers(4)]
    whole = op.groups > 1 or op.in_channels < 2
    return ConvCase(
        op,
        data=rng.standard_normal((images, op.in_channels, op.in_rows, op.in_cols), np.float32),
        weight=rng.standard_normal(op.weight_shape, np.float32),
        bias=rng.standard_normal(op.out_channels, np.float32) if rng.integers(2) else None,
        clip=clip,
        chunk_rows=int(rng.integers(1, op.out_rows + 1)),
        in_parts=1 if whole else int(rng.integers(1, 4)),
        packed=bool(whole and rng.integers(2)),
        spec=SPEC.replace(
            channel_align=int(rng.choice([1, 4, 16])),
            lines=int(rng.choice([1, 2, 3])),
            column_align=int(rng.choice([1, 4])),
        ),
    )
