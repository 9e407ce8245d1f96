"""The engine in C, through its binding: results of convolutions, and of DMA commands."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from core.engine_programs import (
    Array,
    Chip,
    Conv,
    argument,
    conv_program,
    load,
    load_weights,
    normal,
    program,
    store,
    weights,
)

from tvm_sramtile.engine import run
from tvm_sramtile.errors import EngineError
from tvm_sramtile.isa import Command, Layout, Place, Traffic, encode
from tvm_sramtile.isa.table import COPY

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
        shape = (dims[0], dims[1], dims[2])
        body = [load(chip, 0, *sizes, 4, **box), store(chip, 1, *sizes, 4, **box, waits=(1, 0, 0))]
        tensors = [
            argument(0, Traffic.INPUTS, shape),
            argument(1, Traffic.PARTIAL_SUMS, shape),
        ]
        x, y = normal(rng, *shape), np.zeros(shape, np.float32)
        measured = run(encode(program(chip, tensors, body, (4 + chip.map_bytes(*sizes),))), [x, y])
        inside = tuple(slice(start, start + size) for start, size in zip(starts, sizes, strict=True))
        expected = np.zeros(shape, np.float32)
        expected[inside] = x[inside]
        np.testing.assert_array_equal(y, expected)
        moved = 4 * sizes[0] * sizes[1] * sizes[2]
        assert (measured.input_bytes, measured.partial_sum_bytes) == (moved, moved)
        # The last block ends with its last row.
        unused = chip.block_bytes(sizes[1], sizes[2]) - sizes[1] * chip.row_bytes(sizes[2])
        assert measured.sram_peak_bytes == 4 + chip.map_bytes(*sizes) - unused


@pytest.mark.parametrize("shift", [0, 1, 2])
def test_rows_are_copied_within_sram(shift: int) -> None:
    """Rows 2 to 4 of a map, to another one, or up or down within the same one."""
    chip, shape = Chip(4, lines=2), (6, 5, 3)
    tensors = [argument(0, Traffic.INPUTS, shape), argument(1, Traffic.OUTPUTS, (6, 2, 3))]
    row, block = 3 * 16, 6 * 3 * 16
    target = (2 * block, 0, row)[shift]
    body = [
        load(chip, 0, *shape, 0, block_bytes=block),
        Command.make(COPY, source=2 * row, target=target, block_bytes=block, channels=6, rows=2, cols=3),
        store(chip, 1, 6, 2, 3, target, block_bytes=block, waits=(2, 0, 0)),
    ]
    x, y = normal(np.random.default_rng(0), *shape), np.zeros((6, 2, 3), np.float32)
    made = program(chip, tensors, body, (4 * block,))
    measured = run(encode(made), [x, y])
    np.testing.assert_array_equal(y, x[:, 2:4])
    assert measured.dram_bytes == (x.size + y.size) * 4
    loaded = -(-x.size * 4 // made.dma_bytes_per_cycle)
    assert measured.load_busy_cycles == 2 * made.dma_setup_cycles + loaded + 2 * 3 * 2
    assert measured.sram_peak_bytes == (3 * block + 2 * row, block + 5 * row, block + 5 * row)[shift]


@pytest.mark.parametrize("lanes", [1, 3, 4, 16])
def test_loads_zero_the_lanes_past_the_last_channel(lanes: int) -> None:
    chip, channels = Chip(lanes), 5
    blocks = -(-channels // lanes)
    sram_bytes = chip.map_bytes(channels, 3, 7)
    # Each lane as a channel of its own: what SRAM holds, in full.
    tensors = [
        argument(0, Traffic.INPUTS, (blocks * lanes, 3, 7)),
        argument(1, Traffic.INPUTS, (channels, 3, 7)),
        argument(2, Traffic.OUTPUTS, (blocks * lanes, 3, 7)),
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
@pytest.mark.parametrize("layout", [Layout.WEIGHTS, Layout.PACKED])
def test_weights_are_loaded_by_boxes(lanes: int, layout: Layout) -> None:
    rng = np.random.default_rng(lanes)
    chip = Chip(lanes)
    for _ in range(20):
        outs, ins = int(rng.integers(1, 40)), int(rng.integers(1, 40))
        w = normal(rng, outs, ins, 3, 2)
        first = int(rng.integers(0, outs)) // lanes * lanes
        count = int(rng.integers(1, outs - first + 1))
        in_first = int(rng.integers(0, ins))
        in_first = in_first // lanes * lanes if layout is Layout.PACKED else in_first
        part = w[first : first + count, in_first:, 1:, 1:]
        op = Conv(ins - in_first, 4, 5, count, (2, 1), pads=(0, 0, 0, 0))
        base = conv_program(chip, op)
        place = Place.CONSTANT if layout is Layout.PACKED else Place.ARGUMENT
        record = replace(weights(1, (outs, ins, 3, 2)), layout=layout, place=place)
        if layout is Layout.PACKED:
            record = replace(record, strides=(0, 0, 0, 0, 0), offset=0)
        dims = (part.shape[0], part.shape[1], part.shape[2], part.shape[3])
        box = {"out_channel": first, "in_channel": in_first, "kernel_row": 1, "kernel_col": 1}
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
    chip, shape = Chip(4), (4, 2, 2)
    tensors = [
        argument(0, Traffic.INPUTS, shape, per_image=True),
        replace(argument(64, Traffic.OUTPUTS, shape, per_image=True), place=Place.WORKSPACE),
        argument(1, Traffic.OUTPUTS, shape, per_image=True),
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
