"""The engine in C, through its binding: results, counters, every rule of its validator, damaged programs, threads."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core.engine_programs import (
    Array,
    Chip,
    Conv,
    argument,
    conv,
    conv_program,
    load,
    load_weights,
    patched,
    store,
)

from tvm_sramtile.engine import Measured, run
from tvm_sramtile.engine.native import engine_library
from tvm_sramtile.errors import EngineError
from tvm_sramtile.isa import Command, Dtype, Layout, Place, Program, TensorRecord, Traffic, encode
from tvm_sramtile.isa.table import CONV_BIAS, CONV_CLIP, CONV_FIRST, CONV_LAST, COUNTERS

ROOT = Path(__file__).parents[2]


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


# Results


def random_conv(rng: np.random.Generator, groups: str) -> Conv:
    """A small convolution, odd in every way; pads may be negative (rows and columns that are not used)."""
    while True:
        if groups == "one":
            count, channels, outs = 1, int(rng.integers(1, 40)), int(rng.integers(1, 80))
        elif groups == "depthwise":
            count = channels = outs = int(rng.integers(1, 40))
        else:
            count = int(rng.integers(2, 7))
            channels, outs = count * int(rng.integers(1, 20)), count * int(rng.integers(1, 20))
        pads = [int(pad) for pad in rng.integers(-1, 5, 4)]
        op = Conv(
            channels,
            int(rng.integers(1, 20)),
            int(rng.integers(1, 34)),
            outs,
            (int(rng.integers(1, 5)), int(rng.integers(1, 6))),
            (int(rng.integers(1, 4)), int(rng.integers(1, 4))),
            (int(rng.integers(1, 4)), int(rng.integers(1, 4))),
            (pads[0], pads[1], pads[2], pads[3]),
            count,
        )
        if op.out_rows > 0 and op.out_cols > 0:
            return op


@pytest.mark.parametrize("groups", ["one", "depthwise", "some"])
@pytest.mark.parametrize("lanes", [1, 3, 4, 8, 12, 16, 32])
def test_convolutions_equal_the_oracle(lanes: int, groups: str) -> None:
    rng = np.random.default_rng([lanes, len(groups)])
    for _ in range(25):
        op = random_conv(rng, groups)
        chip = Chip(lanes, int(rng.integers(1, 4)), int(rng.integers(1, 4)))
        bias, clip = bool(rng.integers(2)), (-1.0, 2.0) if rng.integers(2) else None
        passes, images = int(rng.integers(1, 3)), int(rng.integers(1, 3))
        code = encode(conv_program(chip, op, bias=bias, clip=clip, passes=passes, in_place=bool(rng.integers(2))))
        x = normal(rng, images, op.channels, op.rows, op.cols)
        weights = [normal(rng, op.outs, op.ipg, *op.kernel) for _ in range(passes)]
        added = normal(rng, op.outs)
        y = np.full((images, op.outs, op.out_rows, op.out_cols), np.nan, np.float32)
        measured = run(code, [x, *weights, *([added] if bias else []), y], images)
        for image in range(images):
            expected = sum((op.expected(x[image], w) for w in weights), np.zeros(1))
            expected = expected + added[:, None, None] if bias else expected
            expected = np.clip(expected, *clip) if clip is not None else expected
            np.testing.assert_allclose(y[image], expected, rtol=1e-4, atol=1e-4, err_msg=f"{chip} {op}")
        assert measured.macs == op.macs * passes * images
        assert measured.input_bytes == x.nbytes
        assert measured.output_bytes == y.nbytes


def run_one(op: Conv, x: Array, w: Array, chip: Chip = Chip(), clip: tuple[float, float] | None = None) -> Array:  # noqa: B008
    y = np.zeros((op.outs, op.out_rows, op.out_cols), np.float32)
    run(encode(conv_program(chip, op, clip=clip)), [x, w, y])
    return y


def test_what_padding_would_multiply_is_skipped() -> None:
    op = Conv(16, 4, 4, 16)
    w = np.ones((16, 16, 3, 3), np.float32)
    w[:, :, 0, 0] = np.inf  # meets padding only for the outputs of the first row and column
    y = run_one(op, np.ones((16, 4, 4), np.float32), w)
    assert np.isfinite(y[:, 0, :]).all()
    assert np.isfinite(y[:, :, 0]).all()
    assert np.isinf(y[:, 1:, 1:]).all()


@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
def test_lanes_past_the_last_channel_are_not_multiplied(lanes: int) -> None:
    op = Conv(3, 4, 4, 5)
    w = np.ones((5, 3, 3, 3), np.float32)
    w[4] = np.inf
    y = run_one(op, np.ones((3, 4, 4), np.float32), w, Chip(lanes))
    assert (y[0, 1:3, 1:3] == 27).all()
    assert np.isinf(y[4]).all()


@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
@pytest.mark.parametrize("groups", [1, 16])
def test_a_nan_in_the_map_reaches_the_outputs_that_read_it_even_through_a_clip(lanes: int, groups: int) -> None:
    op = Conv(16, 9, 9, 16, groups=groups)
    x = np.ones((16, 9, 9), np.float32)
    x[3, 4, 4] = np.nan
    y = run_one(op, x, np.ones((16, 16 // groups, 3, 3), np.float32), Chip(lanes), clip=(0.0, 6.0))
    reads = np.zeros((16, 9, 9), np.bool_)
    reads[3 if groups == 16 else slice(None), 3:6, 3:6] = True
    assert np.isnan(y[reads]).all()
    assert (y[~reads] == 6).all() if groups == 1 else (y[~reads] >= 4).all()


def test_a_chunk_wholly_in_padding_is_bias() -> None:
    chip = Chip(4)
    op = Conv(8, 5, 6, 8)
    base = conv_program(chip, op, bias=True)
    inside = base.body[1]
    # Without input the fields of the input and of the weights are not used: they may hold anything.
    nothing = {"in_rows": 0, "in_cols": 0, "input": 3, "in_block_bytes": 1, "weights": 2**32 - 1, "in_channels": 2**31}
    values = [nothing.get(field.name, value) for field, value in zip(inside.opcode.fields, inside.values, strict=True)]
    changed = replace(base, body=(base.body[0], replace(inside, values=tuple(values)), base.body[2]))
    bias = np.arange(8, dtype=np.float32)
    y = np.full((8, op.out_rows, op.out_cols), np.nan, np.float32)
    run(encode(changed), [np.ones((8, 5, 6), np.float32), np.ones((8, 8, 3, 3), np.float32), bias, y])
    assert (y == bias[:, None, None]).all()


# DMA


@pytest.mark.parametrize("lanes", [1, 3, 4, 8, 16, 24])
def test_boxes_go_to_sram_and_back(lanes: int) -> None:
    rng = np.random.default_rng(lanes)
    for _ in range(40):
        chip = Chip(lanes, int(rng.integers(1, 4)), int(rng.integers(1, 4)))
        dims = [int(extent) for extent in rng.integers(1, 40, 3)]
        starts = [int(rng.integers(0, extent)) for extent in dims]
        sizes = [int(rng.integers(1, extent - start + 1)) for extent, start in zip(dims, starts, strict=True)]
        if rng.integers(2):
            starts[2], sizes[2] = 0, dims[2]  # whole rows
        box = dict(zip(("channel", "row", "col"), starts, strict=True))
        shape = (1, dims[0], dims[1], dims[2])
        body = [load(chip, 0, *sizes, 4, **box), store(chip, 1, *sizes, 4, **box, waits=(1, 0, 0))]
        tensors = [
            argument(0, Traffic.INPUTS, Layout.NCHW, shape),
            argument(1, Traffic.PARTIAL_SUMS, Layout.NCHW, shape),
        ]
        x, y = normal(rng, *shape), np.zeros(shape, np.float32)
        measured = run(encode(program(chip, tensors, body, (4 + chip.map_bytes(*sizes),))), [x, y])
        inside = tuple(slice(start, start + size) for start, size in zip(starts, sizes, strict=True))
        expected = np.zeros(shape, np.float32)
        expected[(0, *inside)] = x[(0, *inside)]
        np.testing.assert_array_equal(y, expected)
        moved = 4 * sizes[0] * sizes[1] * sizes[2]
        assert (measured.input_bytes, measured.partial_sum_bytes) == (moved, moved)
        assert measured.sram_peak_bytes == 4 + chip.map_bytes(*sizes)


@pytest.mark.parametrize("lanes", [1, 3, 4, 16])
def test_loads_zero_the_lanes_past_the_last_channel(lanes: int) -> None:
    chip, channels = Chip(lanes), 5
    blocks = -(-channels // lanes)
    sram_bytes = chip.map_bytes(channels, 3, 7)
    # Each lane as a channel of its own: what SRAM holds, in full.
    tensors = [
        argument(0, Traffic.INPUTS, Layout.NCHW, (1, blocks * lanes, 3, 7)),
        argument(1, Traffic.INPUTS, Layout.NCHW, (1, channels, 3, 7)),
        argument(2, Traffic.OUTPUTS, Layout.NCHW, (1, blocks * lanes, 3, 7)),
    ]
    body = [
        load(chip, 0, blocks * lanes, 3, 7, 0),
        load(chip, 1, channels, 3, 7, 0),
        store(chip, 2, blocks * lanes, 3, 7, 0),
    ]
    x, y = np.ones((channels, 3, 7), np.float32), np.full((blocks * lanes, 3, 7), 9, np.float32)
    run(encode(program(chip, tensors, body, (sram_bytes,))), [np.full((blocks * lanes, 3, 7), 5, np.float32), x, y])
    assert (y[:channels] == 1).all()
    assert (y[channels:] == 0).all()


def packed(w: Array, lanes: int) -> bytes:
    """Weights as layout PACKED has them."""
    pieces = []
    for out in range(0, w.shape[0], lanes):
        for ins in range(0, w.shape[1], lanes):
            pieces.append(w[out : out + lanes, ins : ins + lanes].transpose(2, 3, 1, 0).tobytes())
    return b"".join(pieces)


@pytest.mark.parametrize("lanes", [1, 3, 4, 16])
@pytest.mark.parametrize("layout", [Layout.OIHW, Layout.PACKED])
def test_weights_are_loaded_by_boxes(lanes: int, layout: Layout) -> None:
    rng = np.random.default_rng(lanes)
    chip = Chip(lanes)
    for _ in range(20):
        outs, ins = int(rng.integers(1, 40)), int(rng.integers(1, 40))
        w = normal(rng, outs, ins, 3, 2)
        first = int(rng.integers(0, outs)) // lanes * lanes
        count = int(rng.integers(1, outs - first + 1))
        in_first, taps = (0, (0, 0)) if layout is Layout.PACKED else (int(rng.integers(0, ins)), (1, 1))
        part = w[first : first + count, in_first:, taps[0] :, taps[1] :]
        op = Conv(ins - in_first, 4, 5, count, (3 - taps[0], 2 - taps[1]), pads=(0, 0, 0, 0))
        base = conv_program(chip, op)
        place = Place.CONSTANT if layout is Layout.PACKED else Place.ARGUMENT
        record = TensorRecord(
            place, Traffic.WEIGHTS, Dtype.FLOAT32, layout, False, (outs, ins, 3, 2), 0 if place else 1
        )
        dims = (part.shape[0], part.shape[1], part.shape[2], part.shape[3])
        box = {"out_channel": first, "in_channel": in_first, "kernel_row": taps[0], "kernel_col": taps[1]}
        code = encode(
            replace(
                base,
                tensors=(base.tensors[0], record, base.tensors[2]),
                prologue=(load_weights(1, dims, base.prologue[0]["sram"], **box),),
                constants=packed(w, lanes) if layout is Layout.PACKED else b"",
            )
        )
        x, y = normal(rng, ins - in_first, 4, 5), np.zeros((count, op.out_rows, op.out_cols), np.float32)
        measured = run(code, [x, w, y])
        np.testing.assert_allclose(y, op.expected(x, part), rtol=1e-4, atol=1e-4)
        assert measured.weight_bytes == part.size * 4


def test_the_workspace_keeps_a_map_for_each_image() -> None:
    chip, shape = Chip(4), (1, 4, 2, 2)
    tensors = [
        argument(0, Traffic.INPUTS, Layout.NCHW, shape, per_image=True),
        TensorRecord(Place.WORKSPACE, Traffic.OUTPUTS, Dtype.FLOAT32, Layout.NCHW, True, shape, 64),
        argument(1, Traffic.OUTPUTS, Layout.NCHW, shape, per_image=True),
    ]
    body = [
        load(chip, 0, 4, 2, 2, 0),
        store(chip, 1, 4, 2, 2, 0),
        load(chip, 1, 4, 2, 2, 64),
        store(chip, 2, 4, 2, 2, 64),
    ]
    x, y = np.arange(48, dtype=np.float32).reshape(3, 4, 2, 2), np.zeros((3, 4, 2, 2), np.float32)
    code = encode(program(chip, tensors, body, (128,), workspace_bytes=64 + 3 * 64))
    run(code, [x, y], 3)
    np.testing.assert_array_equal(x, y)
    with pytest.raises(EngineError) as caught:
        run(code, [np.tile(x, (2, 1, 1, 1)), np.tile(y, (2, 1, 1, 1))], 4)
    assert str(caught.value) == "engine error 19: tensor 1: offset = 64: the tensor lies outside the workspace"


# Counters


def test_counters_of_a_program_worked_out_by_hand() -> None:
    chip = Chip(4)
    op = Conv(8, 5, 6, 8)  # 30 positions; 9 taps; 2 blocks in and out
    base = conv_program(chip, op, bias=True, mac_array=(4, 4))
    x_bytes, w_bytes = 2 * 30 * 16, 8 * 8 * 9 * 4
    moved = 8 * 30 * 4
    assert base.memories == (x_bytes + w_bytes + x_bytes + 32,)
    arrays = [
        np.ones(8 * 30, np.float32),
        np.ones(8 * 8 * 9, np.float32),
        np.ones(8, np.float32),
        np.ones(8 * 30, np.float32),
    ]
    arrays = [np.tile(array, 2) if index in (0, 3) else array for index, array in enumerate(arrays)]
    prologue = (64 + w_bytes // 16) + (64 + 2)
    load_cycles = store_cycles = 64 + moved // 16
    conv_cycles = 30 * 9 * 2 * 2
    assert run(encode(base), arrays, 2) == Measured(
        calls=1,
        images=2,
        cycles=prologue + 2 * (load_cycles + conv_cycles + store_cycles),
        load_busy_cycles=prologue + 2 * load_cycles,
        compute_busy_cycles=2 * conv_cycles,
        store_busy_cycles=2 * store_cycles,
        load_commands=2 + 2,
        compute_commands=2,
        store_commands=2,
        macs=2 * 30 * 9 * 64,
        input_bytes=2 * moved,
        weight_bytes=w_bytes + 32,
        output_bytes=2 * moved,
        partial_sum_bytes=0,
        sram_peak_bytes=base.memories[0],
    )
    assert run(encode(base), arrays, 0) == Measured(
        1, 0, prologue, prologue, 0, 0, 2, 0, 0, 0, 0, w_bytes + 32, 0, 0, base.memories[0]
    )


def test_queues_run_side_by_side_except_where_commands_wait() -> None:
    chip, shape = Chip(4), (1, 4, 4, 4)
    tensors = [
        argument(0, Traffic.INPUTS, Layout.NCHW, shape),
        argument(1, Traffic.OUTPUTS, Layout.NCHW, shape),
    ]
    cost = 64 + 16
    free = [
        load(chip, 0, 4, 4, 4, 0),
        store(chip, 1, 4, 4, 4, 0),
        load(chip, 0, 4, 4, 4, 256),
        store(chip, 1, 4, 4, 4, 256),
    ]
    bound = [
        free[0],
        replace(free[1], waits=(1, 0, 0)),
        replace(free[2], waits=(0, 0, 1)),
        replace(free[3], waits=(2, 0, 0)),
    ]
    arrays = [np.zeros(shape, np.float32), np.zeros(shape, np.float32)]
    loads_first = [free[0], free[2], replace(free[1], waits=(1, 0, 0)), replace(free[3], waits=(2, 0, 0))]
    for body, steps in ((free, 2), (bound, 4), (loads_first, 3)):
        measured = run(encode(program(chip, tensors, body)), arrays)
        assert measured.cycles == steps * cost
        assert measured.load_busy_cycles == measured.store_busy_cycles == 2 * cost


@pytest.mark.parametrize(
    ("op", "array", "cycles"),
    [
        (Conv(32, 4, 4, 48), (16, 16), 16 * 9 * 2 * 3),
        (Conv(33, 4, 4, 49), (16, 16), 16 * 9 * 3 * 4),
        (Conv(32, 4, 4, 32, groups=32), (16, 16), 16 * 9 * 2),  # lane by lane
        (Conv(32, 4, 4, 64, groups=2), (16, 16), 16 * 9 * 2 * 2),
        (Conv(32, 4, 4, 32, groups=16), (16, 16), 16 * 9 * 2 * 2),
    ],
)
def test_cycles_of_convolutions(op: Conv, array: tuple[int, int], cycles: int) -> None:
    arrays = [
        np.zeros(op.channels * 16, np.float32),
        np.zeros(op.outs * op.ipg * 9, np.float32),
        np.zeros(op.outs * 16, np.float32),
    ]
    assert run(encode(conv_program(Chip(), op, mac_array=array)), arrays).compute_busy_cycles == cycles


def test_the_peak_adds_up_over_memories_and_leaves_out_what_follows_the_last_rows() -> None:
    chip, shape = Chip(4), (1, 6, 2, 2)
    tensors = [argument(0, Traffic.INPUTS, Layout.NCHW, shape)]
    body = [load(chip, 0, 6, 2, 2, 16, block_bytes=100), load(chip, 0, 6, 2, 2, 512)]
    code = encode(program(chip, tensors, body, (510, 0, 300)))  # the third starts at the next multiple of 4, 512
    assert run(code, [np.zeros(shape, np.float32)]).sram_peak_bytes == (16 + 100 + 64) + 128


def test_counter_blocks_add_up_and_are_reset() -> None:
    library = ctypes.CDLL(str(engine_library()))
    code, arrays = small_case()
    block = (ctypes.c_int64 * (1 + len(COUNTERS)))()
    pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    once = run(code, arrays)

    def call(_: int) -> int:
        return int(
            library.sramtile_run(
                code, ctypes.c_uint64(len(code)), pointers, len(arrays), ctypes.c_int64(1), block, None, 0
            )
        )

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(call, range(200))) == [0] * 200
    out = (ctypes.c_int64 * len(COUNTERS))()
    library.sramtile_counters_read(block, out)
    total = Measured.of(list(out))
    assert (total.calls, total.images, total.cycles) == (200, 200, 200 * once.cycles)
    assert (total.macs, total.dram_bytes) == (200 * once.macs, 200 * once.dram_bytes)
    assert total.sram_peak_bytes == once.sram_peak_bytes
    library.sramtile_counters_reset(block)
    library.sramtile_counters_read(block, out)
    assert list(out) == [0] * len(COUNTERS)


def test_eight_threads_on_one_program_each_get_their_own_result() -> None:
    op = Conv(32, 28, 28, 32)
    code = encode(conv_program(Chip(), op))
    rng = np.random.default_rng(8)
    w = normal(rng, 32, 32, 3, 3)
    cases = [(normal(rng, 32, 28, 28), np.zeros((32, 28, 28), np.float32)) for _ in range(32)]
    with ThreadPoolExecutor(8) as pool:
        counts = list(pool.map(lambda case: run(code, [case[0], w, case[1]]), cases))
    assert len(set(counts)) == 1
    for x, y in cases:
        np.testing.assert_allclose(y, op.expected(x, w), rtol=1e-4, atol=1e-4)


# The validator


def small_program() -> Program:
    """Two passes over one map; prologue: weights, weights, bias; body: LOAD, CONV, CONV, STORE."""
    return conv_program(Chip(4), Conv(8, 5, 6, 8), bias=True, clip=(0.0, 6.0), passes=2)


def small_case() -> tuple[bytes, list[Array]]:
    sizes = (8 * 30, 8 * 8 * 9, 8 * 8 * 9, 16, 8 * 30)
    return encode(small_program()), [np.ones(size, np.float32) for size in sizes]


def test_the_small_program_runs() -> None:
    code, arrays = small_case()
    assert run(code, arrays).calls == 1
    assert (arrays[4] == 6).all()


_CONV = "body command 1 (CONV): "
_LAST = "body command 2 (CONV): "
_LOAD = "body command 0 (LOAD): "
_STORE = "body command 3 (STORE): "
_WEIGHTS = "prologue command 0 (LOAD_WEIGHTS): "
_POSITIVE = "must be positive"

# Where the field stands, the field, its wrong value; code, text of the error.
RULES: list[tuple[str, str, float, int, str]] = [
    ("header", "magic", 1, 6, "header: magic = 1: this is no program of the instruction set"),
    ("header", "version", 9, 7, "header: version = 9: the engine executes another version of the instruction set"),
    ("header", "lanes", 0, 8, "header: lanes = 0: must be from 1 to 1024"),
    ("header", "lanes", 1025, 8, "header: lanes = 1025: must be from 1 to 1024"),
    *(
        ("header", field, 0, 9, f"header: {field} = 0: {_POSITIVE}")
        for field in ("lines", "column_align", "mac_in", "mac_out", "dma_bytes_per_cycle")
    ),
    ("header", "argument_count", 4, 2, "call: tensor_count = 5: differs from the argument_count of the program"),
    (
        "header",
        "tensor_count",
        99,
        5,
        "tensor 21: program_bytes = 768: the program ends before the end of this record",
    ),
    ("header", "step_count", 0, 22, "prologue command 0 (LOAD_WEIGHTS): step = 0: there is no such step"),
    (
        "header",
        "prologue_commands",
        2,
        10,
        "header: command_bytes = 512: differs from the bytes that the commands take",
    ),
    ("body 0", "opcode", 0, 13, "body command 0: opcode = 0: there is no such kind"),
    ("header", "command_bytes", 99, 10, "header: command_bytes = 99: differs from the bytes that the commands take"),
    (
        "header",
        "constants_bytes",
        8,
        11,
        "header: constants_bytes = 8: differs from the bytes that follow the commands",
    ),
    ("header", "workspace_bytes", 2**62, 4, f"call: workspace_bytes = {2**62}: the system has no memory for it"),
    (
        "header",
        "memory0_bytes",
        959,
        33,
        "prologue command 0 (LOAD_WEIGHTS): sram = 960: the operand does not lie within one memory",
    ),
    ("tensor 0", "place", 3, 13, "tensor 0: place = 3: there is no such kind"),
    ("tensor 0", "traffic", 4, 13, "tensor 0: traffic = 4: there is no such kind"),
    ("tensor 0", "dtype", 77, 13, "tensor 0: dtype = 77: there is no such kind"),
    ("tensor 0", "layout", 5, 13, "tensor 0: layout = 5: there is no such kind"),
    ("tensor 0", "per_image", 2, 14, "tensor 0: per_image = 2: must be 0 or 1, and 0 for weights"),
    ("tensor 1", "per_image", 1, 14, "tensor 1: per_image = 1: must be 0 or 1, and 0 for weights"),
    *(("tensor 1", f"dim{axis}", 0, 9, f"tensor 1: dim{axis} = 0: {_POSITIVE}") for axis in range(4)),
    ("tensor 3", "dim0", 2, 15, "tensor 3: dim0 = 2: must be 1 for a map"),
    ("tensor 0", "offset", 5, 17, "tensor 0: offset = 5: there is no such argument"),
    ("tensor 1", "place", 1, 20, "tensor 1: offset = 1: must be a multiple of the element size"),
    ("tensor 0", "place", 1, 18, "tensor 0: offset = 0: the tensor lies outside the constants"),
    ("tensor 0", "place", 2, 19, "tensor 0: offset = 0: the tensor lies outside the workspace"),
    ("body 0", "flags", 1, 21, f"{_LOAD}flags = 1: the command has no such flags"),
    ("prologue 0", "flags", 4, 21, f"{_WEIGHTS}flags = 4: the command has no such flags"),
    ("body 1", "flags", 17, 21, f"{_CONV}flags = 17: the command has no such flags"),
    ("body 1", "step", 1, 22, f"{_CONV}step = 1: there is no such step"),
    (
        "body 1",
        "wait_load",
        2,
        23,
        f"{_CONV}wait_load = 2: so many commands of that queue do not come before it in this part",
    ),
    (
        "body 1",
        "wait_compute",
        1,
        23,
        f"{_CONV}wait_compute = 1: so many commands of that queue do not come before it in this part",
    ),
    (
        "body 3",
        "wait_store",
        1,
        23,
        f"{_STORE}wait_store = 1: so many commands of that queue do not come before it in this part",
    ),
    ("body 0", "tensor", 5, 24, f"{_LOAD}tensor = 5: there is no such tensor"),
    ("prologue 0", "tensor", 99, 24, f"{_WEIGHTS}tensor = 99: there is no such tensor"),
    ("body 0", "tensor", 1, 25, f"{_LOAD}tensor = 1: the layout of the tensor does not suit the command"),
    ("prologue 0", "tensor", 3, 25, f"{_WEIGHTS}tensor = 3: the layout of the tensor does not suit the command"),
    (
        "prologue 2",
        "tensor",
        0,
        26,
        "prologue command 2 (LOAD): tensor = 0: the prologue cannot use a tensor of which each image has its own",
    ),
    *(("body 0", field, 0, 9, f"{_LOAD}{field} = 0: {_POSITIVE}") for field in ("channels", "rows", "cols")),
    ("body 0", "channel", 1, 27, f"{_LOAD}channels = 8: the box ends outside the tensor"),
    ("body 0", "row", 2**32 - 1, 27, f"{_LOAD}rows = 5: the box ends outside the tensor"),
    ("body 3", "col", 1, 27, f"{_STORE}cols = 6: the box ends outside the tensor"),
    (
        "body 3",
        "row_bytes",
        100,
        31,
        f"{_STORE}row_bytes = 100: differs from round_up(cols, column_align)*lanes*elem_bytes",
    ),
    ("body 0", "block_bytes", 476, 32, f"{_LOAD}block_bytes = 476: is less than round_up(rows, lines)*row_bytes"),
    ("body 0", "block_bytes", 482, 20, f"{_LOAD}block_bytes = 482: must be a multiple of the element size"),
    ("body 0", "sram", 2, 20, f"{_LOAD}sram = 2: must be a multiple of the element size"),
    ("body 0", "sram", 2**32 - 4, 33, f"{_LOAD}sram = {2**32 - 4}: the operand does not lie within one memory"),
    ("body 3", "tensor", 3, 30, f"{_STORE}tensor = 3: weights cannot be stored to"),
    *(
        ("prologue 0", field, 0, 9, f"{_WEIGHTS}{field} = 0: {_POSITIVE}")
        for field in ("out_channels", "in_channels", "kernel_rows", "kernel_cols")
    ),
    ("prologue 0", "out_channel", 1, 27, f"{_WEIGHTS}out_channels = 8: the box ends outside the tensor"),
    ("prologue 0", "in_channel", 1, 27, f"{_WEIGHTS}in_channels = 8: the box ends outside the tensor"),
    ("prologue 0", "kernel_row", 1, 27, f"{_WEIGHTS}kernel_rows = 3: the box ends outside the tensor"),
    ("prologue 0", "kernel_col", 1, 27, f"{_WEIGHTS}kernel_cols = 3: the box ends outside the tensor"),
    ("prologue 0", "sram", 1, 20, f"{_WEIGHTS}sram = 1: must be a multiple of the element size"),
    ("prologue 0", "sram", 9000, 33, f"{_WEIGHTS}sram = 9000: the operand does not lie within one memory"),
    ("body 1", "in_rows", 0, 34, f"{_CONV}in_rows = 0: in_rows and in_cols must both be positive or both be 0"),
    ("body 1", "in_cols", 0, 34, f"{_CONV}in_rows = 5: in_rows and in_cols must both be positive or both be 0"),
    *(
        ("body 1", field, 0, 9, f"{_CONV}{field} = 0: {_POSITIVE}")
        for field in (
            *("in_channels", "out_rows", "out_cols", "out_channels", "groups", "kernel_rows", "kernel_cols"),
            *("stride_rows", "stride_cols", "dilation_rows", "dilation_cols"),
        )
    ),
    ("body 1", "groups", 3, 35, f"{_CONV}groups = 3: must divide in_channels and out_channels"),
    ("body 1", "out_channels", 7, 13, ""),
    *(
        ("body 1", field, 200, 13, f"{_CONV}{field} = 200: there is no such kind")
        for field in ("input_dtype", "weight_dtype", "accumulator_dtype", "output_dtype")
    ),
    ("body 1", "in_block_bytes", 476, 32, f"{_CONV}in_block_bytes = 476: is less than round_up(rows, lines)*row_bytes"),
    (
        "body 1",
        "out_block_bytes",
        476,
        32,
        f"{_CONV}out_block_bytes = 476: is less than round_up(rows, lines)*row_bytes",
    ),
    ("body 1", "out_block_bytes", 481, 20, f"{_CONV}out_block_bytes = 481: must be a multiple of the element size"),
    *(
        ("body 2", field, 6, 20, f"{_LAST}{field} = 6: must be a multiple of the element size")
        for field in ("input", "weights", "bias", "accumulators", "output")
    ),
    *(
        ("body 2", field, 2**31, 33, f"{_LAST}{field} = {2**31}: the operand does not lie within one memory")
        for field in ("input", "weights", "bias", "accumulators", "output")
    ),
    ("body 1", "flags", 5, 36, f"{_CONV}flags = 5: BIAS and CLIP are allowed only with LAST"),
    ("body 1", "flags", 9, 36, f"{_CONV}flags = 9: BIAS and CLIP are allowed only with LAST"),
    (
        "body 2",
        "clip_high",
        -1,
        37,
        f"{_LAST}clip_low = 0: clip_low and clip_high must be numbers, and clip_low not above clip_high",
    ),
    (
        "body 2",
        "clip_low",
        7,
        37,
        f"{_LAST}clip_low = 7: clip_low and clip_high must be numbers, and clip_low not above clip_high",
    ),
    (
        "body 2",
        "clip_high",
        float("nan"),
        37,
        f"{_LAST}clip_low = 0: clip_low and clip_high must be numbers, and clip_low not above clip_high",
    ),
    ("body 2", "output", 4, 38, f"{_LAST}output = 4: the operand overlaps another one"),
    ("body 2", "output", 5572, 38, f"{_LAST}accumulators = 5568: the operand overlaps another one"),
    ("body 1", "accumulators", 956, 38, f"{_CONV}accumulators = 956: the operand overlaps another one"),
    ("body 2", "bias", 5568, 38, f"{_LAST}accumulators = 5568: the operand overlaps another one"),
]
RULES = [rule for rule in RULES if rule[4]]


@pytest.mark.parametrize(
    ("record", "field", "value", "status", "text"), RULES, ids=[f"{r[0]} {r[1]} {r[2]}" for r in RULES]
)
def test_each_rule_refuses_what_breaks_it(record: str, field: str, value: float, status: int, text: str) -> None:
    code, arrays = small_case()
    arrays[4][:] = np.nan
    with pytest.raises(EngineError) as caught:
        run(patched(code, record, **{field: value}), arrays)
    assert str(caught.value) == f"engine error {status}: {text}"
    assert np.isnan(arrays[4]).all(), "refused before the first command"


def test_every_error_of_the_engine_is_tested() -> None:
    header = (ROOT / "tvm_sramtile/engine/src/engine.h").read_text(encoding="utf-8")
    codes = {int(line.strip()[2:].split(",")[0]) for line in header.splitlines() if line.strip().startswith("X(")}
    elsewhere = {1, 3, 5, 12, 16, 28, 29}
    assert codes == {rule[3] for rule in RULES} | elsewhere


def refusal(code: bytes, arrays: list[Array], images: int = 1) -> str:
    with pytest.raises(EngineError) as caught:
        run(code, arrays, images)
    return str(caught.value)


def test_programs_that_end_early() -> None:
    code, arrays = small_case()
    ends = "the program ends before the end of this record"
    assert refusal(b"", arrays) == f"engine error 5: header: program_bytes = 0: {ends}"
    assert refusal(code[:95], arrays) == f"engine error 5: header: program_bytes = 95: {ends}"
    assert refusal(code[:100], arrays) == f"engine error 5: tensor 0: program_bytes = 100: {ends}"
    assert refusal(code[:256], arrays) == f"engine error 5: prologue command 0: program_bytes = 256: {ends}"
    assert (
        refusal(code[:300], arrays) == f"engine error 5: prologue command 0 (LOAD_WEIGHTS): program_bytes = 300: {ends}"
    )
    assert refusal(code[:480], arrays) == f"engine error 5: body command 1: program_bytes = 480: {ends}"
    for length in range(0, len(code), 7):
        refusal(code[:length], arrays)


def test_bytes_between_commands_and_constants_are_zeros() -> None:
    code = encode(conv_program(Chip(4), Conv(8, 5, 6, 8)))
    arrays: list[Array] = [np.ones(576, np.float32) for _ in range(3)]
    end = 96 + 3 * 32 + 56 + 2 * 56 + 116
    assert len(code) > end
    damaged = code[:end] + b"\x05" + code[end + 1 :]
    text = "engine error 12: header: filling = 5: bytes between commands and constants must be 0"
    assert refusal(damaged, arrays) == text


def test_tensors_that_no_address_reaches() -> None:
    code, arrays = small_case()
    huge = patched(code, "tensor 0", dim1=2**32 - 1, dim2=2**32 - 1, dim3=2**32 - 1, place=2)
    assert (
        refusal(huge, arrays) == f"engine error 16: tensor 0: dim1 = {2**32 - 1}: the tensor holds 2^63 bytes or more"
    )


def test_packed_weights_are_loaded_whole_and_constants_are_never_stored_to() -> None:
    code, arrays = small_case()
    layout = patched(code, "tensor 1", layout=2)
    text = "packed weights are loaded from a multiple of lanes, with all taps and inputs"
    for wrong in ({"kernel_rows": 2}, {"in_channels": 7}, {"kernel_cols": 1}, {"out_channel": 2, "out_channels": 4}):
        assert (
            refusal(patched(layout, "prologue 0", **wrong), arrays) == f"engine error 28: {_WEIGHTS}tensor = 1: {text}"
        )
    constant = replace(small_program(), constants=bytes(960))
    records = list(constant.tensors)
    records[4] = replace(records[4], place=Place.CONSTANT, offset=0, per_image=False)
    assert refusal(encode(replace(constant, tensors=tuple(records))), arrays) == (
        f"engine error 29: {_STORE}tensor = 4: a constant cannot be stored to"
    )


def raw_call(
    code: bytes | None, size: int, pointers: Any, count: int, images: int, space: int = 1024
) -> tuple[int, str]:
    library = ctypes.CDLL(str(engine_library()))
    message = ctypes.create_string_buffer(max(space, 1))
    status = library.sramtile_run(
        code, ctypes.c_uint64(size), pointers, count, ctypes.c_int64(images), None, message, space
    )
    return status, message.value.decode()


def test_calls_that_make_no_sense() -> None:
    code, arrays = small_case()
    pointers = (ctypes.c_void_p * 5)(*(array.ctypes.data for array in arrays))
    assert raw_call(None, 0, pointers, 5, 1) == (1, "header: program = 0: must not be a null pointer")
    assert raw_call(code, len(code), None, 5, 1) == (1, "tensor 0: pointer = 0: must not be a null pointer")
    assert raw_call(code, len(code), pointers, 4, 1)[0] == 2
    assert raw_call(code, len(code), pointers, -1, 1) == (
        2,
        "call: tensor_count = -1: differs from the argument_count of the program",
    )
    assert raw_call(code, len(code), pointers, 5, -1) == (3, "call: images = -1: must not be negative")
    assert raw_call(code, len(code), pointers, 5, -1, space=9) == (3, "call: im")
    assert raw_call(code, len(code), pointers, 5, -1, space=0) == (3, "")
    pointers[4] = None
    assert raw_call(code, len(code), pointers, 5, 1) == (1, "tensor 4: pointer = 0: must not be a null pointer")
    assert raw_call(code, len(code), pointers, 5, 0) == (0, "")


def test_arrays_are_checked_before_they_become_pointers() -> None:
    code, arrays = small_case()

    def message(index: int, array: Any) -> str:
        with pytest.raises(ValueError, match=f"^tensor {index}: ") as caught:
            run(code, [array if place == index else good for place, good in enumerate(arrays)])
        return str(caught.value)

    assert message(0, np.ones(240)) == "tensor 0: the array is float64, the program needs float32"
    assert message(0, np.ones((1, 8, 5, 5), np.float32)) == (
        "tensor 0: the array of shape (1, 8, 5, 5) has 200 elements, "
        "the program needs 1x8x5x6 for each of 1 images, 240"
    )
    assert message(1, np.ones(9, np.float32)) == (
        "tensor 1: the array of shape (9,) has 9 elements, the program needs 8x8x3x3, 576"
    )
    assert message(1, np.ones((24, 48), np.float32).T) == "tensor 1: the array of shape (48, 24) is not C-contiguous"
    frozen = np.ones(240, np.float32)
    frozen.flags.writeable = False
    assert message(4, frozen) == "tensor 4: the program writes to it, but the array is read-only"
    assert run(code, [frozen, *arrays[1:]]).calls == 1
    with pytest.raises(ValueError, match=r"^images = -1: must not be negative$"):
        run(code, arrays, -1)


# Damaged programs

_DAMAGE = """
import sys
from core.engine_programs import run_damaged
print(*run_damaged(int(sys.argv[1]), int(sys.argv[2])))
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_damaged_programs_are_refused_or_run(seed: int) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    done = subprocess.run(
        [sys.executable, "-c", _DAMAGE, str(seed), "2000"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    refused, ran = (int(word) for word in done.stdout.split())
    assert refused + ran == 2000
    assert min(refused, ran) > 50, "damage that never, or always, shows tests little"


def test_flags_are_those_of_the_table() -> None:
    assert (CONV_FIRST, CONV_LAST, CONV_BIAS, CONV_CLIP) == (1, 2, 4, 8)
    assert conv(Chip(), Conv(1, 1, 1, 1), CONV_FIRST, input=0, weights=0).flags == 1
