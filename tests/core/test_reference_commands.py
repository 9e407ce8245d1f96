"""The reference's newer commands by hand: strides, taps by steps, tables, phases, pooling, resizing, elementwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from core import oracle
from core.bench import Bench, Shape
from core.programs import SPEC, Float, Sram, pack, program, tensor, weight_tensor

from tvm_sramtile.engine.reference import interpret
from tvm_sramtile.errors import ProgramError
from tvm_sramtile.ints import Range
from tvm_sramtile.isa import Command, Dtype, Function, Layout, Partner, Pooling, TensorRecord, Traffic
from tvm_sramtile.isa.table import (
    CONV,
    CONV_BIAS,
    CONV_FIRST,
    CONV_LAST,
    ELTWISE,
    LOAD,
    LOAD_WEIGHTS,
    POOL,
    RESIZE,
    STORE,
)


def numbers(*shape: int) -> Float:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


# Loads


def test_a_map_in_any_order_of_axes() -> None:
    value = np.arange(2 * 5 * 4 * 6, dtype=np.float32).reshape(2, 5, 4, 6)  # NHWC: 6 channels, 5 rows, 4 columns
    source = tensor(Traffic.INPUTS, (6, 5, 4), 0, strides=(1, 24, 6, 0, 0), image_stride=120)
    target = tensor(Traffic.OUTPUTS, (6, 5, 4), 1, strides=(20, 1, 5, 0, 0), image_stride=120)  # NCWH
    box = (Range(1, 6), Range(2, 5), Range(1, 4))
    commands = [Command.make(op, **Sram(SPEC).box(at, *box, 0)) for at, op in enumerate((LOAD, STORE))]
    output = np.zeros((2, 6, 4, 5), np.float32)
    measured = interpret(program([source, target], commands), [value, output], images=2, checked=True)
    expected = np.zeros_like(output)
    expected[:, 1:6, 1:4, 2:5] = value[:, 2:5, 1:4, 1:6].transpose(0, 3, 2, 1)
    assert np.array_equal(output, expected)
    assert measured.dram_bytes[Traffic.INPUTS] == measured.dram_bytes[Traffic.OUTPUTS] == 2 * 5 * 3 * 3 * 4
    far = replace(source, strides=(1, 24, 7, 0, 0))
    with pytest.raises(ProgramError) as caught:
        interpret(program([far, target], commands), [value[:1], output])
    assert str(caught.value) == "body command 0 (LOAD): the tensor is larger than its memory"


def test_the_prologue_has_no_image() -> None:
    box = [Range(0, 1)] * 3
    load = Command.make(LOAD, **Sram(SPEC).box(0, *box, 0))
    made = program([tensor(Traffic.INPUTS, (1, 1, 1))], [], prologue=[load])
    with pytest.raises(ProgramError) as caught:
        interpret(made, [np.zeros((1, 1, 1), np.float32)])
    assert str(caught.value) == "prologue command 0 (LOAD): the prologue has no image"


WEIGHT_BOX = {"out_channel": 0, "in_channel": 0, "kernel_row": 0, "kernel_col": 0}


def loaded(record: TensorRecord, value: Float, shape: Sequence[int], **fields: int) -> Float:
    """The words of SRAM after LOAD_WEIGHTS of a box of this shape (out, in, row, col), lane by lane."""
    names = ("out_channels", "in_channels", "kernel_rows", "kernel_cols")
    lanes = SPEC.channel_align
    words = -(-shape[0] // lanes) * int(np.prod(shape[1:]))
    values = {
        **WEIGHT_BOX,
        "kernel_row_step": 1,
        "kernel_col_step": 1,
        **dict(zip(names, shape, strict=True)),
        **fields,
    }
    body = [
        Command.make(LOAD_WEIGHTS, tensor=0, sram=0, **values),
        Command.make(STORE, **Sram(SPEC).box(1, Range(0, lanes), Range(0, 1), Range(0, words), 0)),
    ]
    output = np.full((lanes, 1, words), np.nan, np.float32)
    made = program([record, tensor(Traffic.OUTPUTS, (lanes, 1, words), 1)], body)
    assert interpret(made, [value, output], checked=True).dram_bytes[Traffic.WEIGHTS] == int(np.prod(shape)) * 4
    return output[:, 0].T.ravel()


def in_sram(box: Float) -> Float:
    """Weights as the table says they lie, the last block filled up with zeros."""
    outs = -(-len(box) // 4) * 4
    return pack(np.concatenate([box, np.zeros((outs - len(box), *box.shape[1:]), np.float32)]), 4)


def test_weights_by_steps_and_flipped() -> None:
    weight = numbers(5, 6, 7, 4)
    found = loaded(weight_tensor(weight.shape), weight, (5, 6, 3, 4), kernel_row=1, kernel_row_step=2)
    assert np.array_equal(found, in_sram(weight[:, :, 1:6:2]))
    flip = {"kernel_row": 6, "kernel_row_step": -3, "kernel_col": 3, "kernel_col_step": -1}
    found = loaded(weight_tensor(weight.shape), weight, (5, 6, 3, 4), **flip)
    assert np.array_equal(found, in_sram(weight[:, :, ::-3, ::-1]))
    packed = replace(weight_tensor(weight.shape), layout=Layout.PACKED, strides=(0,) * 5)
    found = loaded(packed, pack(weight, 4), (1, 2, 3, 4), out_channel=4, in_channel=4, **flip)
    assert np.array_equal(found, in_sram(weight[4:, 4:, ::-3, ::-1]))
    for fields in ({"kernel_row": 7}, {"kernel_row": 1}, {"kernel_row": 6, "kernel_col_step": 2}):
        with pytest.raises(ProgramError) as caught:
            loaded(weight_tensor(weight.shape), weight, (5, 6, 3, 4), **{"kernel_row_step": -1, **fields})
        assert str(caught.value) == "body command 0 (LOAD_WEIGHTS): the box is empty or reaches beyond the tensor"


def test_weights_in_any_order_of_axes_and_of_groups() -> None:
    weight = numbers(3, 2, 6, 4)  # HWIO
    record = replace(weight_tensor((4, 6, 3, 2)), strides=(0, 1, 4, 48, 24))
    assert np.array_equal(loaded(record, weight, (4, 6, 3, 2)), in_sram(weight.transpose(3, 2, 0, 1)))
    weight = numbers(6, 4, 1, 2)  # IOHW of a transposed convolution: 3 groups of 2 inputs and 4 outputs
    record = replace(weight_tensor((12, 2, 1, 2), groups=3), strides=(16, 2, 8, 2, 1))
    grouped = weight.reshape(3, 2, 4, 1, 2).transpose(0, 2, 1, 3, 4).reshape(12, 2, 1, 2)
    assert np.array_equal(loaded(record, weight, (12, 2, 1, 2)), in_sram(grouped))
    assert np.array_equal(loaded(record, weight, (8, 2, 1, 2), out_channel=4), in_sram(grouped[4:]))
    assert np.array_equal(loaded(record, weight, (2, 1, 1, 2), out_channel=5, in_channel=1), in_sram(grouped[5:7, 1:]))
    with pytest.raises(ProgramError) as caught:
        loaded(record, weight, (4, 2, 1, 2), out_channel=1)
    assert str(caught.value) == "body command 0 (LOAD_WEIGHTS): the box cuts a group"


# CONV: phases


def conv_fields(**fields: int | float) -> dict[str, Any]:
    """One channel in and out, a 1x1 kernel; what is not given."""
    values: dict[str, Any] = dict.fromkeys((field.name for field in CONV.fields), 1)
    values |= dict.fromkeys(("bias", "pad_top", "pad_left", "out_row", "out_col", "clip_low", "clip_high"), 0)
    values |= dict.fromkeys(("input_dtype", "weight_dtype", "accumulator_dtype", "output_dtype"), Dtype.FLOAT32)
    return {**values, **fields}


def test_a_transposed_convolution_by_phases() -> None:
    """Kernel 3, stride 2 along rows (phases of 2 and 1 taps); kernel 1, stride 2 along columns (1 tap and none)."""
    bench = Bench()
    data, weight = numbers(3, 4, 3), numbers(3, 5, 3, 1)
    source = bench.load(data)
    record = replace(weight_tensor((5, 3, 3, 1)), strides=(0, 3, 15, 1, 1))
    index = bench.argument(record, weight)
    output = bench.sram.place_map(5, 9, 6)
    commands = []
    for row, taps in ((0, (2, 0)), (1, (1,))):
        base = bench.sram.place_weights(5, 3, len(taps), 1)
        box = {**WEIGHT_BOX, "out_channels": 5, "in_channels": 3, "kernel_cols": 1, "kernel_col_step": 1}
        box |= {"kernel_row": taps[0], "kernel_rows": len(taps), "kernel_row_step": -2}
        bench.body.append(Command.make(LOAD_WEIGHTS, tensor=index, sram=base, **box))
        for col in (0, 1):
            fields = conv_fields(
                input=source["base"],
                in_block_bytes=source["block_bytes"],
                in_rows=4,
                in_cols=3,
                in_channels=3,
                out_channels=5,
                weights=base,
                accumulators=output,
                output=output,
                out_block_bytes=bench.sram.block_bytes(9, 6),
                out_map_rows=9,
                out_map_cols=6,
                out_row=row,
                out_rows=5 - row,
                out_row_step=2,
                out_col=col,
                out_cols=3,
                out_col_step=2,
                unit_rows=3,
                kernel_rows=len(taps),
                kernel_cols=1 - col,
                pad_top=len(taps) - 1,
            )
            commands.append(Command.make(CONV, flags=CONV_FIRST | CONV_LAST, **fields))
    found, measured = bench.run((5, 9, 6), *commands)
    expected = oracle.conv2d_transpose(data[np.newaxis], weight, strides=(2, 2), output_padding=(0, 1))
    np.testing.assert_allclose(found, expected[0], atol=1e-5)
    assert np.all(found[:, :, 1::2] == 0)
    assert measured.macs == 5 * 3 * 3 * (5 * 2 + 4)  # the phase of columns without a tap costs none


def test_a_phase_leaves_the_other_positions_alone() -> None:
    """Also their accumulators, in the same place; negative pads skip the first rows of the map."""
    bench = Bench()
    source = bench.load(np.arange(8, dtype=np.float32).reshape(1, 4, 2))
    index = bench.argument(weight_tensor((1, 1, 1, 1)), np.full((1, 1, 1, 1), 10, np.float32))
    base, output = bench.sram.place_weights(1, 1, 1, 1), bench.sram.place_map(1, 3, 2)
    box = {**WEIGHT_BOX, "kernel_row_step": 1, "kernel_col_step": 1}
    box |= dict.fromkeys(("out_channels", "in_channels", "kernel_rows", "kernel_cols"), 1)
    bench.body.append(Command.make(LOAD_WEIGHTS, tensor=index, sram=base, **box))
    fields = conv_fields(
        input=source["base"],
        in_block_bytes=source["block_bytes"],
        in_rows=4,
        in_cols=2,
        weights=base,
        accumulators=output,
        output=output,
        out_cols=2,
        out_block_bytes=bench.sram.block_bytes(3, 2),
        out_map_rows=3,
        out_map_cols=2,
    )
    first = Command.make(CONV, flags=CONV_FIRST, **{**fields, "out_rows": 3, "pad_top": -1})
    last = Command.make(CONV, flags=CONV_LAST, **{**fields, "out_rows": 2, "out_row_step": 2, "pad_top": -2})
    rest = Command.make(CONV, flags=CONV_LAST, **{**fields, "out_row": 1, "out_rows": 1, "pad_top": 4})
    found, _ = bench.run((1, 3, 2), first, last, rest)
    assert found[0].tolist() == [[20 + 40, 30 + 50], [40, 50], [60 + 60, 70 + 70]]
    beyond = Command.make(
        CONV, flags=CONV_FIRST | CONV_LAST, **{**fields, "out_rows": 2, "out_row": 1, "out_row_step": 2}
    )
    with pytest.raises(ProgramError) as caught:
        bench.run((1, 3, 2), beyond)
    assert str(caught.value) == "body command 2 (CONV): the outputs lie beyond the output map"


def test_no_taps_yield_the_bias_and_read_no_input() -> None:
    bench = Bench()
    bias = bench.load(np.array([3, 4], np.float32).reshape(2, 1, 1))
    output = bench.sram.place_map(2, 1, 2)
    fields = conv_fields(
        input=1 << 30,
        weights=1 << 30,
        kernel_cols=0,
        bias=bias["base"],
        accumulators=output,
        output=output,
        out_block_bytes=bench.sram.block_bytes(1, 2),
        out_map_cols=2,
        out_cols=2,
        out_channels=2,
    )
    found, measured = bench.run((2, 1, 2), Command.make(CONV, flags=CONV_FIRST | CONV_LAST | CONV_BIAS, **fields))
    assert found[:, 0].tolist() == [[3, 3], [4, 4]]
    assert (measured.macs, measured.sram_peak_bytes) == (0, bench.sram.used_bytes)


# POOL


@pytest.mark.parametrize("kind", Pooling)
def test_pooling(kind: Pooling) -> None:
    data = numbers(5, 7, 6)
    for kernel, strides, dilation, pads, extents in (
        ((2, 3), (2, 1), (1, 2), (1, 2), (4, 7)),
        ((7, 6), (1, 1), (1, 1), (0, 0), (1, 1)),
        ((1, 1), (4, 5), (1, 1), (0, 0), (3, 2)),  # rounded up: the last row lies beyond the map
    ):
        bench = Bench(SPEC.replace(lines=2, column_align=4))
        source = bench.load(data)
        output = bench.sram.place_map(5, *extents)
        fields = {"input": source["base"], "in_block_bytes": source["block_bytes"], "in_rows": 7, "in_cols": 6}
        fields |= {"channels": 5, "output": output, "out_block_bytes": bench.sram.block_bytes(*extents)}
        fields |= {"out_rows": extents[0], "out_cols": extents[1], "pooling": kind}
        fields |= dict(zip(("kernel_rows", "kernel_cols", "stride_rows", "stride_cols"), kernel + strides, strict=True))
        fields |= dict(zip(("dilation_rows", "dilation_cols", "pad_top", "pad_left"), dilation + pads, strict=True))
        found, measured = bench.run((5, *extents), Command.make(POOL, **fields))
        expected = oracle.pool2d(
            data[np.newaxis], kind.name.lower(), kernel, extents, strides=strides, padding=pads, dilation=dilation
        )
        np.testing.assert_allclose(found, expected[0], rtol=1e-6, atol=1e-6)
        assert (measured.macs, measured.sram_peak_bytes) == (0, bench.sram.used_bytes)


def test_a_window_wholly_in_padding_reads_nothing() -> None:
    expected = {Pooling.MAX: np.finfo(np.float32).min, Pooling.AVERAGE_ALL: 0, Pooling.AVERAGE_VALID: 0}
    for kind, value in expected.items():
        fields = dict.fromkeys((field.name for field in POOL.fields), 1)
        fields |= {"input": 1 << 30, "output": 0, "in_rows": 0, "out_block_bytes": 16, "pooling": kind}
        found, _ = Bench().run((1, 1, 1), Command.make(POOL, **fields))
        assert found.item() == value


# RESIZE


def resized(data: Float, rows: int, cols: int, shape: Shape, **fields: int) -> Float:
    """Rows 4-6 and columns 2-5 of a map are in SRAM; the tables' outputs from 1 on."""
    bench = Bench()
    row_table = bench.table([[(9, 9), (9, 9)], [(4, 0.25), (5, 0.75)], [(5, 2), (-1, np.nan)]], 1, rows)
    col_table = bench.table([[(9, 9)], [(4, 1)], [(2, -1)], [(3, 10)]], 1, cols)
    source = bench.load(data)
    output = bench.sram.place_map(*shape)
    values = {"input": source["base"], "in_block_bytes": source["block_bytes"], "in_rows": 2, "in_cols": 3}
    values |= {"in_row": 4, "in_col": 2, "channels": shape[0], "row_table": row_table, "row_taps": 2}
    values |= {"col_table": col_table, "col_taps": 1, "output": output}
    values |= {"out_block_bytes": bench.sram.block_bytes(*shape[1:]), "out_rows": rows, "out_cols": cols}
    found, measured = bench.run(shape, Command.make(RESIZE, **{**values, **fields}))
    assert measured.dram_bytes[Traffic.WEIGHTS] == (rows * 2 + cols) * 8
    assert measured.sram_peak_bytes == bench.sram.used_bytes
    return found


def test_resizing() -> None:
    data = numbers(5, 2, 3)
    found = resized(data, 2, 3, (5, 2, 3))
    rows = np.stack([data[:, 0] * 0.25 + data[:, 1] * 0.75, data[:, 1] * 2], axis=1)
    expected = np.stack([rows[:, :, 2], -rows[:, :, 0], rows[:, :, 1] * 10], axis=2)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_positions_outside_the_map_stop_the_run() -> None:
    with pytest.raises(ProgramError) as caught:
        resized(numbers(1, 2, 3), 2, 3, (1, 2, 3), in_row=5)
    assert str(caught.value) == "body command 3 (RESIZE): position 4: the map has 5-7"
    with pytest.raises(ProgramError) as caught:
        resized(numbers(1, 2, 3), 2, 3, (1, 2, 3), in_col=1)
    assert str(caught.value) == "body command 3 (RESIZE): position 4: the map has 1-4"


def test_a_table_is_not_loaded_beyond_its_end() -> None:
    with pytest.raises(ProgramError) as caught:
        resized(numbers(1, 2, 3), 3, 3, (1, 3, 3))
    assert str(caught.value) == "body command 0 (LOAD_TABLE): the box is empty or reaches beyond the tensor"


# ELTWISE


def eltwise(function: Function, kind: Partner, data: Float, partner: Float, values: tuple[float, float]) -> Float:
    bench = Bench(SPEC.replace(column_align=2))
    source = bench.load(data)
    other = bench.load(partner) if kind in (Partner.MAP, Partner.VECTOR) else {"base": 0, "block_bytes": 0}
    output = source["base"] if data.size % 2 else bench.sram.place_map(*data.shape)  # in place, or not
    command = Command.make(
        ELTWISE,
        input=source["base"],
        in_block_bytes=source["block_bytes"],
        partner=other["base"],
        partner_block_bytes=other["block_bytes"],
        partner_kind=kind,
        output=output,
        out_block_bytes=source["block_bytes"],
        function=function,
        value0=values[0],
        value1=values[1],
        **dict(zip(("channels", "rows", "cols"), data.shape, strict=True)),
    )
    return bench.run(data.shape, command)[0]


BINARY = tuple(f for f in Function if Function.ADD <= f <= Function.PRELU)


@pytest.mark.parametrize("function", BINARY)
@pytest.mark.parametrize("shape", [(5, 3, 3), (6, 2, 3)])
def test_functions_of_two(function: Function, shape: Shape) -> None:
    data, other = numbers(*shape), np.random.default_rng(1).standard_normal(shape, np.float32)
    name = function.name.lower()
    found = eltwise(function, Partner.MAP, data, other, (0, 0))
    np.testing.assert_allclose(found, oracle.elementwise(name, data, other), rtol=1e-6)
    found = eltwise(function, Partner.VECTOR, data, other[:, :1, :1], (0, 0))
    np.testing.assert_allclose(found, oracle.elementwise(name, data, other[:, :1, :1]), rtol=1e-6)
    found = eltwise(function, Partner.VALUE, data, other, (0.75, 0))
    np.testing.assert_allclose(found, oracle.elementwise(name, data, 0.75), rtol=1e-6)
    with pytest.raises(ProgramError) as caught:
        eltwise(function, Partner.NONE, data, other, (0, 0))
    assert str(caught.value) == f"body command 1 (ELTWISE): {function.name} of the partner NONE"


@pytest.mark.parametrize("function", [f for f in Function if f not in BINARY])
def test_functions_of_one(function: Function) -> None:
    data = 4 * numbers(5, 3, 3)
    data.flat[:4] = (0, -0.0, 200, -200)
    values = (-0.5, 0.75) if function is Function.CLIP else (0.125, 0.0)
    with np.errstate(over="ignore"):
        found = eltwise(function, Partner.NONE, data, data, values)
        expected = oracle.elementwise(function.name.lower(), data, *values)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-35)
    with pytest.raises(ProgramError) as caught:
        eltwise(function, Partner.VALUE, data, data, (0, 0))
    assert str(caught.value) == f"body command 1 (ELTWISE): {function.name} of the partner VALUE"
