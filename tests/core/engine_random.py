"""Random programs of one kind of command each, for whatever executes programs: drawn from seeds, small, and odd."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from core.engine_programs import ELEM_BYTES, Array, Chip, Sram
from numpy.typing import NDArray

from tvm_sramtile.ints import ceil_div, round_up
from tvm_sramtile.isa import Command, Dtype, Function, Layout, Opcode, Partner, Place, Pooling, Program, Traffic
from tvm_sramtile.isa.code import TensorRecord
from tvm_sramtile.isa.table import (
    CONV,
    CONV_BIAS,
    CONV_CLIP,
    CONV_FIRST,
    CONV_LAST,
    COPY,
    ELTWISE,
    LOAD,
    LOAD_TABLE,
    LOAD_WEIGHTS,
    POOL,
    RESIZE,
    STORE,
)

Shape = tuple[int, int, int]
ENTRY = np.dtype([("position", "<i4"), ("weight", "<f4")])
UNARY = frozenset(
    {Function.COPY, Function.CLIP, Function.LEAKY_RELU, Function.SIGMOID, Function.TANH, Function.EXP, Function.SQRT}
    | {Function.ABS, Function.NEGATIVE, Function.SILU, Function.HARD_SWISH}
)
INEXACT = frozenset({Function.SIGMOID, Function.TANH, Function.EXP, Function.SILU})
SPECIAL = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1e-30, -3e38, 3e38, 88.0, -90.0, 100.0, -110.0], np.float32)


@dataclass(frozen=True, slots=True)
class RandomCase:
    """A program and its call, and how far its results may be from the reference's: not at all, or as stated."""

    program: Program
    arguments: list[NDArray[Any]]
    images: int
    relative: float = 0.0
    absolute: float = 0.0


@dataclass(slots=True)
class Maker:
    """Collects the parts of a program while it is drawn."""

    rng: np.random.Generator
    chip: Chip
    images: int
    sram: Sram
    tensors: list[TensorRecord] = field(default_factory=list)
    arguments: list[NDArray[Any]] = field(default_factory=list)
    body: list[Command] = field(default_factory=list)
    special: bool = False  # some values are no usual numbers

    @classmethod
    def of(cls, *seeds: int) -> Maker:
        rng = np.random.default_rng(seeds)
        chip = Chip(int(rng.choice([1, 3, 4, 8, 12, 16, 32])), int(rng.integers(1, 4)), int(rng.integers(1, 4)))
        return cls(rng, chip, int(rng.integers(1, 3)), Sram(ELEM_BYTES * int(rng.integers(0, 3))))

    def between(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def one_of(self, *choices: Any) -> Any:
        return choices[self.rng.integers(len(choices))]

    def channels(self) -> int:
        most = min(2 * self.chip.lanes + 3, 40)
        return int(self.one_of(1, self.between(1, 5), self.chip.lanes, self.between(1, most)))

    def values(self, count: int) -> Array:
        values = self.rng.standard_normal(count).astype(np.float32)
        if self.special:
            places = self.rng.integers(0, count, count // 6)
            values[places] = self.rng.choice(SPECIAL, len(places))
        return values

    def map_record(self, traffic: Traffic, shape: Shape) -> TensorRecord:
        """A tensor in any order of its axes, with some space between their positions, for each image or for all."""
        strides = [0, 0, 0, 0, 0]
        step = self.one_of(1, 1, 1, 2)
        for axis in self.one_of((2, 1, 0), (2, 1, 0), (0, 2, 1), (0, 2, 1), (1, 0, 2), (2, 0, 1)):
            strides[axis] = step
            step = step * shape[axis] + self.one_of(0, 0, 1)
        image = self.one_of(0, step, step + 2)
        offset = len(self.arguments)
        dims = (*shape, 1, 1)
        axes = (strides[0], strides[1], strides[2], 0, 0)
        return TensorRecord(Place.ARGUMENT, traffic, Dtype.FLOAT32, Layout.MAP, dims, axes, image, offset)

    def add(self, record: TensorRecord, value: NDArray[Any]) -> int:
        self.tensors.append(record)
        self.arguments.append(value)
        return len(self.tensors) - 1

    def add_map(self, traffic: Traffic, shape: Shape) -> int:
        record = self.map_record(traffic, shape)
        elems = 1 + sum((dim - 1) * stride for dim, stride in zip(record.dims, record.strides, strict=True))
        return self.add(record, self.values(elems + (self.images - 1) * record.image_stride))

    def place(self, shape: Shape) -> dict[str, int]:
        """Address and block bytes of a map; there may be some space behind the rows of a block."""
        channels, rows, cols = shape
        block = self.chip.block_bytes(rows, cols) + self.one_of(0, 0, ELEM_BYTES)
        return {"base": self.sram.take(ceil_div(channels, self.chip.lanes) * block), "block": block}

    def move(self, opcode: Opcode, tensor: int, shape: Shape, at: Mapping[str, int]) -> None:
        """A LOAD or STORE of a box of this shape, somewhere in the tensor."""
        starts = [self.between(0, dim - size) for dim, size in zip(self.tensors[tensor].dims, shape, strict=False)]
        fields = dict(zip(("channel", "row", "col", "channels", "rows", "cols"), (*starts, *shape), strict=True))
        fields |= {"block_bytes": at["block"], "row_bytes": self.chip.row_bytes(shape[2])}
        self.body.append(Command.make(opcode, tensor=tensor, sram=at["base"], **fields))

    def larger(self, shape: Shape) -> Shape:
        more = [self.one_of(0, 0, self.between(0, 3)) for _ in shape]
        return shape[0] + more[0], shape[1] + more[1], shape[2] + more[2]

    def load(self, shape: Shape) -> dict[str, int]:
        """A map in SRAM, loaded from a tensor of its own."""
        at = self.place(shape)
        self.move(LOAD, self.add_map(Traffic.INPUTS, self.larger(shape)), shape, at)
        return at

    def store(self, shape: Shape, at: Mapping[str, int]) -> None:
        self.move(STORE, self.add_map(Traffic.OUTPUTS, self.larger(shape)), shape, at)

    def case(self, relative: float = 0.0, absolute: float = 0.0) -> RandomCase:
        waits = [0, 0, 0]
        body = []
        for command in self.body:
            body.append(replace(command, waits=(waits[0], waits[1], waits[2])))
            waits[command.queue] += 1
        program = Program(
            memories=(self.sram.end,),
            lanes=self.chip.lanes,
            lines=self.chip.lines,
            column_align=self.chip.column_align,
            mac_array=(self.between(1, 16), self.between(1, 16)),
            dma_bytes_per_cycle=self.between(1, 16),
            dma_setup_cycles=self.between(0, 64),
            argument_count=len(self.arguments),
            tensors=tuple(self.tensors),
            prologue=(),
            body=tuple(body),
        )
        return RandomCase(program, self.arguments, self.images, relative, absolute)


def map_case(seed: int) -> RandomCase:
    """LOADs and STOREs of boxes; the lanes past the last channel, which held something, are stored too."""
    make = Maker.of(seed, 0)
    shape = (make.channels(), make.between(1, 6), make.between(1, 20))
    whole = (round_up(shape[0], make.chip.lanes), *shape[1:])
    at = make.load(whole)
    make.move(LOAD, make.add_map(Traffic.INPUTS, make.larger(shape)), shape, at)
    make.store(shape, at)
    make.store(whole, at)
    return make.case()


def copy_case(seed: int) -> RandomCase:
    """A COPY of some rows of a map to another place, which may have rows in common with them, or up or down in it."""
    make = Maker.of(seed, 6)
    shape = (make.channels(), make.between(1, 8), make.between(1, 12))
    at = make.load(shape)
    rows, channels = make.between(1, shape[1]), make.one_of(shape[0], make.between(1, shape[0]))
    row_bytes = make.chip.row_bytes(shape[2])
    source = at["base"] + make.between(0, shape[1] - rows) * row_bytes
    if make.one_of(True, False):
        target = at["base"] + make.between(0, shape[1] - rows) * row_bytes
        stored, kept = at, shape
    else:
        stored = make.place(shape)
        stored["block"] = at["block"]
        target = stored["base"]
        make.sram.take(ceil_div(shape[0], make.chip.lanes) * (at["block"] + ELEM_BYTES))
        kept = (channels, rows, shape[2])
    fields = {"block_bytes": at["block"], "channels": channels, "rows": rows, "cols": shape[2]}
    make.body.append(Command.make(COPY, source=source, target=target, **fields))
    make.store(kept, stored)
    return make.case()


def weight_record(make: Maker, dims: tuple[int, int, int, int, int], packed: bool) -> TensorRecord:
    strides = [0] * 5
    step = 1
    for axis in make.rng.permutation(5) if not packed else ():
        strides[axis] = step
        step = step * dims[axis] + make.one_of(0, 0, 1)
    layout = Layout.PACKED if packed else Layout.WEIGHTS
    axes = (strides[0], strides[1], strides[2], strides[3], strides[4])
    return TensorRecord(Place.ARGUMENT, Traffic.WEIGHTS, Dtype.FLOAT32, layout, dims, axes, 0, len(make.arguments))


def taps(make: Maker, extent: int) -> tuple[int, int, int]:
    """First, count and step of some taps along an axis."""
    count, step = make.between(1, extent), make.one_of(1, 1, -1, 2, -2, 0)
    count = min(count, (extent - 1) // abs(step) + 1) if step else count
    span = (count - 1) * abs(step)
    start = make.between(0, extent - 1 - span)
    return (start + span if step < 0 else start), count, step


def weights_case(seed: int) -> RandomCase:
    """A LOAD_WEIGHTS of any box, and a STORE of the words in SRAM."""
    make = Maker.of(seed, 1)
    lanes = make.chip.lanes
    groups, packed = make.one_of(1, 1, 2, 5), bool(make.between(0, 1))
    dims = (groups, make.between(1, 20), make.between(1, 36), make.between(1, 4), make.between(1, 4))
    outs = groups * dims[1]
    first = make.between(0, outs - 1)
    first = first // lanes * lanes if packed else first
    room = dims[1] - first % dims[1]
    count = make.one_of(make.between(1, room), room, outs - first, outs - first)
    in_first = make.between(0, dims[2] - 1)
    in_first = make.one_of(0, in_first // lanes * lanes if packed else in_first)
    ins = make.one_of(dims[2] - in_first, make.between(1, dims[2] - in_first))
    rows, cols = taps(make, dims[3]), taps(make, dims[4])
    if make.between(0, 1):
        rows, cols = (0, dims[3], 1), (0, dims[4], 1)
    record = weight_record(make, dims, packed)
    last = sum((dim - 1) * stride for dim, stride in zip(dims, record.strides, strict=True))
    size = int(np.prod(dims)) if packed else 1 + last
    tensor = make.add(record, make.values(size))
    words = ceil_div(count, lanes) * ins * rows[1] * cols[1]
    at = make.place((lanes, 1, words))
    fields = {"out_channel": first, "out_channels": count, "in_channel": in_first, "in_channels": ins}
    for axis, (start, number, step) in (("row", rows), ("col", cols)):
        fields |= {f"kernel_{axis}": start, f"kernel_{axis}s": number, f"kernel_{axis}_step": step}
    make.body.append(Command.make(LOAD_WEIGHTS, tensor=tensor, sram=at["base"], **fields))
    make.store((lanes, 1, words), at)
    return make.case()


@dataclass(frozen=True, slots=True)
class Window:
    """A window along one axis, and what it finds in an input of some extent."""

    extent: int
    outs: int
    kernel: int
    stride: int
    dilation: int
    pad: int

    @classmethod
    def draw(cls, make: Maker, size: int, least_kernel: int) -> Window:
        kernel, stride, dilation = make.between(least_kernel, 4), make.between(1, 3), make.between(1, 3)
        extent = make.one_of(0, make.between(1, size), make.between(1, size), make.between(1, size), size)
        return cls(extent, make.between(1, size), kernel, stride, dilation, make.between(-3, 5))


def window_fields(rows: Window, cols: Window) -> dict[str, int]:
    fields = {"pad_top": rows.pad, "pad_left": cols.pad, "in_rows": rows.extent, "in_cols": cols.extent}
    for axis, window in (("rows", rows), ("cols", cols)):
        fields |= {f"kernel_{axis}": window.kernel, f"stride_{axis}": window.stride}
        fields |= {f"dilation_{axis}": window.dilation, f"out_{axis}": window.outs}
    return fields


def conv_groups(make: Maker) -> tuple[int, int, int]:
    """Groups, and input and output channels of each."""
    kind = make.between(0, 2)
    if kind == 0:
        return 1, make.channels(), make.channels()
    if kind == 1:
        return make.channels(), 1, 1
    return make.between(2, 5), make.between(1, 9), make.between(1, 9)


def conv_case(seed: int) -> RandomCase:
    """A CONV with any window, groups and phase; the output map and the accumulators hold something before."""
    make = Maker.of(seed, 2)
    groups, ipg, opg = conv_groups(make)
    rows, cols = Window.draw(make, 6, 0), Window.draw(make, make.one_of(8, 32), 0)
    if seed % 4 == 0:  # 1x1 kernels have a way of their own, if nothing of this is in the way
        size = make.between(1, 7)
        rows = Window(size, make.between(1, size), 1, 1, 1, make.one_of(0, 0, -1, 1))
        cols = Window(cols.outs, cols.outs, 1, 1, 1, make.one_of(0, 0, 0, -1, 1))
    fields: dict[str, Any] = window_fields(rows, cols)
    outs = []
    for axis, window in (("row", rows), ("col", cols)):
        start, step = make.one_of((0, 1), (0, 1), (make.between(0, 2), make.between(1, 3)))
        outs.append(start + (window.outs - 1) * step + 1 + make.one_of(0, 0, make.between(0, 2)))
        fields |= {f"out_{axis}": start, f"out_{axis}_step": step, f"out_map_{axis}s": outs[-1]}
        fields[f"unit_{axis}s"] = window.kernel + make.between(0 if window.kernel else 1, 2)
    out_shape = (groups * opg, outs[0], outs[1])
    output = make.load(out_shape)
    sums = make.one_of(output, make.load(out_shape))
    sums = sums if sums["block"] == output["block"] else output
    fields |= {"output": output["base"], "accumulators": sums["base"], "out_block_bytes": output["block"]}
    fields |= {"input": 0, "in_block_bytes": 0, "weights": 0, "bias": 0}
    if rows.extent and cols.extent and rows.kernel and cols.kernel:
        source = make.load((groups * ipg, rows.extent, cols.extent))
        fields |= {"input": source["base"], "in_block_bytes": source["block"]}
        fields["weights"] = conv_weights(make, (groups, opg, ipg, rows.kernel, cols.kernel))
    flags = make.between(0, 1) * CONV_FIRST | make.one_of(0, CONV_LAST, CONV_LAST, CONV_LAST)
    flags |= make.one_of(0, CONV_BIAS, CONV_CLIP, CONV_BIAS | CONV_CLIP) if flags & CONV_LAST else 0
    if flags & CONV_BIAS:
        fields["bias"] = bias(make, groups * opg)
    fields |= {"in_channels": groups * ipg, "out_channels": groups * opg, "groups": groups}
    fields |= {"clip_low": -1.0, "clip_high": make.one_of(2.0, np.inf)}
    fields |= dict.fromkeys(("input_dtype", "weight_dtype", "accumulator_dtype", "output_dtype"), Dtype.FLOAT32)
    make.body.append(Command.make(CONV, flags=flags, **fields))
    if flags & CONV_LAST:
        make.store(out_shape, output)
    else:
        make.store(out_shape, sums)
    return make.case(1e-4, 1e-4)


def conv_weights(make: Maker, dims: tuple[int, int, int, int, int]) -> int:
    groups, opg, ipg, rows, cols = dims
    base = make.sram.take(round_up(groups * opg, make.chip.lanes) * ipg * rows * cols * ELEM_BYTES)
    tensor = make.add(weight_record(make, dims, packed=True), make.values(int(np.prod(dims))))
    fields = {"out_channel": 0, "out_channels": groups * opg, "in_channel": 0, "in_channels": ipg}
    fields |= {"kernel_row": 0, "kernel_rows": rows, "kernel_row_step": 1}
    fields |= {"kernel_col": 0, "kernel_cols": cols, "kernel_col_step": 1}
    make.body.append(Command.make(LOAD_WEIGHTS, tensor=tensor, sram=base, **fields))
    return base


def bias(make: Maker, channels: int) -> int:
    block = make.chip.block_bytes(1, 1)
    at = {"base": make.sram.take(ceil_div(channels, make.chip.lanes) * block), "block": block}
    make.move(LOAD, make.add_map(Traffic.WEIGHTS, (channels, 1, 1)), (channels, 1, 1), at)
    return at["base"]


def pool_case(seed: int) -> RandomCase:
    make = Maker.of(seed, 3)
    make.special = make.between(0, 3) == 0
    channels = make.channels()
    rows, cols = Window.draw(make, 6, 1), Window.draw(make, 12, 1)
    fields = window_fields(rows, cols)
    output = make.place((channels, rows.outs, cols.outs))
    fields |= {"output": output["base"], "out_block_bytes": output["block"], "input": 0, "in_block_bytes": 0}
    if rows.extent and cols.extent:
        source = make.load((channels, rows.extent, cols.extent))
        fields |= {"input": source["base"], "in_block_bytes": source["block"]}
    fields |= {"channels": channels, "pooling": make.one_of(*Pooling)}
    make.body.append(Command.make(POOL, **fields))
    make.store((channels, rows.outs, cols.outs), output)
    return make.case()


def resize_case(seed: int) -> RandomCase:
    make = Maker.of(seed, 4)
    channels = make.channels()
    extents, outs = (make.between(1, 6), make.between(1, 9)), (make.between(1, 6), make.between(1, 12))
    count = make.one_of(1, 2, 4)
    many = make.one_of((count, count), (make.between(1, 5), make.between(1, 5)))
    source = make.load((channels, *extents))
    output = make.place((channels, *outs))
    fields = {"input": source["base"], "in_block_bytes": source["block"], "channels": channels}
    fields |= {"output": output["base"], "out_block_bytes": output["block"]}
    for axis, extent, number, tap_count in zip(("row", "col"), extents, outs, many, strict=True):
        origin = make.between(0, 5)
        fields |= {f"in_{axis}s": extent, f"in_{axis}": origin, f"{axis}_taps": tap_count, f"out_{axis}s": number}
        fields[f"{axis}_table"] = table(make, number, tap_count, origin, extent)
    make.body.append(Command.make(RESIZE, **fields))
    make.store((channels, *outs), output)
    return make.case(1e-5, 1e-5)


def table(make: Maker, outputs: int, tap_count: int, origin: int, extent: int) -> int:
    """The address of some entries, loaded from a table that is larger."""
    before, after = make.between(0, 2), make.between(0, 2)
    entries = np.zeros((before + outputs + after, tap_count), ENTRY)
    entries["position"] = make.rng.integers(origin, origin + extent, entries.shape)
    entries["position"][make.rng.random(entries.shape) < 0.1] = -1
    entries["weight"] = make.rng.standard_normal(entries.shape)
    dims = (len(entries), tap_count, 1, 1, 1)
    offset = len(make.arguments)
    record = TensorRecord(Place.ARGUMENT, Traffic.WEIGHTS, Dtype.FLOAT32, Layout.TABLE, dims, (0,) * 5, 0, offset)
    tensor, base = make.add(record, entries), make.sram.take(outputs * tap_count * ENTRY.itemsize)
    make.body.append(Command.make(LOAD_TABLE, tensor=tensor, first=before, count=outputs, sram=base))
    return base


def eltwise_case(seed: int) -> RandomCase:
    make = Maker.of(seed, 5)
    function = Function(seed % len(Function))
    make.special = make.between(0, 2) == 0
    shape = (make.channels(), make.between(1, 5), make.between(1, 12))
    source = make.load(shape)
    kind = Partner.NONE if function in UNARY else make.one_of(Partner.MAP, Partner.VECTOR, Partner.VALUE)
    fields: dict[str, Any] = {"partner": 0, "partner_block_bytes": 0, "value1": 1.5}
    fields["value0"] = make.one_of(-0.5, 0.25) if kind is not Partner.VALUE else float(make.rng.choice(SPECIAL))
    outputs = [make.place(shape), source]
    if kind in (Partner.MAP, Partner.VECTOR):
        partner = make.load(shape if kind is Partner.MAP else (shape[0], 1, 1))
        fields |= {"partner": partner["base"], "partner_block_bytes": partner["block"]}
        outputs += [partner] if kind is Partner.MAP else []
    output = make.one_of(*outputs)
    fields |= {"input": source["base"], "in_block_bytes": source["block"], "partner_kind": kind}
    fields |= {"output": output["base"], "out_block_bytes": output["block"], "function": function}
    fields |= {"channels": shape[0], "rows": shape[1], "cols": shape[2]}
    make.body.append(Command.make(ELTWISE, **fields))
    make.store(shape, output)
    # Two roundings, or one more to the few digits of subnormal results.
    return make.case(4e-7, 3e-45) if function in INEXACT else make.case()
