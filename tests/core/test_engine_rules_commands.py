"""The rules of the engine's validator for the commands that the small convolution does not use, each broken once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from core.engine_programs import Chip, argument, load, load_weights, patched, store, weights
from core.engine_random import ENTRY
from numpy.typing import NDArray

from tvm_sramtile.engine import run
from tvm_sramtile.errors import EngineError
from tvm_sramtile.isa import (
    Command,
    Dtype,
    Function,
    Layout,
    Partner,
    Place,
    Pooling,
    Program,
    TensorRecord,
    Traffic,
    encode,
)
from tvm_sramtile.isa.table import ELTWISE, LOAD_TABLE, POOL, RESIZE

CHIP = Chip(4)
BLOCK, MAP = CHIP.block_bytes(5, 6), CHIP.map_bytes(8, 5, 6)  # 480 and 960
DATA, ROWS, COLS, POOLED, RESIZED, RESULT, VECTOR, WEIGHTS = 0, 960, 1040, 1136, 2096, 3056, 4016, 4048
WEIGHT_DIMS = (12, 8, 3, 3)


def table(index: int, outputs: int) -> TensorRecord:
    dims = (outputs, 2, 1, 1, 1)
    return TensorRecord(Place.ARGUMENT, Traffic.WEIGHTS, Dtype.FLOAT32, Layout.TABLE, dims, (0,) * 5, 0, index)


def eltwise(function: Function, kind: Partner, **fields: Any) -> Command:
    values: dict[str, Any] = {"input": RESIZED, "output": RESULT, "partner": POOLED, "partner_block_bytes": BLOCK}
    values |= {"in_block_bytes": BLOCK, "out_block_bytes": BLOCK, "rows": 5, "cols": 6, "channels": 8}
    values |= {"value0": 0.0, "value1": 6.0, "function": function, "partner_kind": kind}
    return Command.make(ELTWISE, **{**values, **fields})


def window(**fields: int) -> dict[str, int]:
    sizes = {"kernel_rows": 3, "kernel_cols": 3, "stride_rows": 1, "stride_cols": 1, "dilation_rows": 1}
    return {**sizes, "dilation_cols": 1, "pad_top": 1, "pad_left": 1, **fields}


def commands_program() -> Program:
    """A map is pooled, resized, and goes through functions; weights of two groups, in order and packed."""
    extents = {"in_block_bytes": BLOCK, "in_rows": 5, "in_cols": 6, "channels": 8, "out_block_bytes": BLOCK}
    extents |= {"out_rows": 5, "out_cols": 6}
    taps = {"row_table": ROWS, "row_taps": 2, "col_table": COLS, "col_taps": 2, "in_row": 1, "in_col": 0}
    body = (
        load(CHIP, 0, 8, 5, 6, DATA),
        Command.make(LOAD_TABLE, tensor=1, first=1, count=5, sram=ROWS),
        Command.make(LOAD_TABLE, tensor=2, first=0, count=6, sram=COLS),
        load(CHIP, 3, 8, 1, 1, VECTOR),
        Command.make(POOL, input=DATA, output=POOLED, pooling=Pooling.AVERAGE_VALID, **extents, **window()),
        Command.make(RESIZE, input=POOLED, output=RESIZED, **extents, **taps),
        eltwise(Function.ADD, Partner.MAP),
        eltwise(Function.CLIP, Partner.NONE, input=RESULT),
        eltwise(Function.MULTIPLY, Partner.VECTOR, input=RESULT, partner=VECTOR, partner_block_bytes=16),
        store(CHIP, 5, 8, 5, 6, RESULT),
    )
    return Program(
        memories=(WEIGHTS + CHIP.weight_bytes(12, 8, 9),),
        lanes=4,
        lines=1,
        column_align=1,
        mac_array=(16, 4),
        dma_bytes_per_cycle=16,
        dma_setup_cycles=64,
        argument_count=7,
        tensors=(
            argument(0, Traffic.INPUTS, (8, 5, 6), per_image=True),
            table(1, 6),
            table(2, 6),
            argument(3, Traffic.WEIGHTS, (8, 1, 1)),
            weights(4, WEIGHT_DIMS, groups=2),
            argument(5, Traffic.OUTPUTS, (8, 5, 6), per_image=True),
            replace(weights(6, WEIGHT_DIMS, groups=2), layout=Layout.PACKED, strides=(0,) * 5),
        ),
        prologue=(load_weights(4, WEIGHT_DIMS, WEIGHTS), load_weights(6, WEIGHT_DIMS, WEIGHTS)),
        body=body,
    )


def commands_case() -> tuple[bytes, list[NDArray[Any]]]:
    entries = np.zeros((2, 6, 2), ENTRY)
    entries["position"] = [[[2]], [[0]]]
    entries["weight"] = 0.5
    sizes = (240, 0, 0, 8, 864, 240, 864)
    arrays: list[NDArray[Any]] = [np.ones(size, np.float32) for size in sizes]
    return encode(commands_program()), [*arrays[:1], *entries, *arrays[3:]]


def test_the_program_runs() -> None:
    code, arrays = commands_case()
    measured = run(code, arrays)
    assert (arrays[5] == 2).all()
    assert measured.weight_bytes == 4 * (2 * 864 + 8) + 8 * (10 + 12)
    assert measured.compute_busy_cycles == 2 * 30 * (9 + 4 + 1 + 1 + 1)


_IN_ORDER, _PACKED = "prologue command 0 (LOAD_WEIGHTS): ", "prologue command 1 (LOAD_WEIGHTS): "
_TABLE, _POOL, _RESIZE = "body command 1 (LOAD_TABLE): ", "body command 4 (POOL): ", "body command 5 (RESIZE): "
_MAP, _ALONE, _VECTOR = "body command 6 (ELTWISE): ", "body command 7 (ELTWISE): ", "body command 8 (ELTWISE): "
_POSITIVE = "must be positive"
_ALIGNED = "must be a multiple of the element size"
_OUTSIDE = "the operand does not lie within one memory"
_BLOCK = "is less than round_up(rows, lines)*row_bytes"
_OVERLAP = "the operand overlaps another one"
_BEYOND = "the box ends outside the tensor"
_GROUP = "the output channels must end with a whole group or lie within one"
_LIMITS = "both limits must be numbers, and the lower not above the upper"

Change = tuple[str, dict[str, float], int, str]


def each(record: str, where: str, fields: tuple[str, ...], value: int, status: int, text: str) -> list[Change]:
    return [(record, {field: value}, status, f"{where}{field} = {value}: {text}") for field in fields]


# Where the fields stand, the fields and their wrong values; code and text of the error.
RULES: list[Change] = [
    ("tensor 1", {"dim2": 3}, 15, "tensor 1: dim2 = 3: must be 1: the layout has no such dimension"),
    ("tensor 1", {"stride1": 7}, 34, "tensor 1: stride1 = 7: must be 0: the layout has no strides"),
    ("tensor 6", {"stride4": 1}, 34, "tensor 6: stride4 = 1: must be 0: the layout has no strides"),
    (
        "tensor 1",
        {"image_stride": 9},
        14,
        "tensor 1: image_stride = 9: must be 0: only of maps each image can have its own",
    ),
    # LOAD_WEIGHTS
    ("prologue 0", {"out_channels": 13}, 27, f"{_IN_ORDER}out_channels = 13: {_BEYOND}"),
    ("prologue 0", {"out_channels": 7}, 39, f"{_IN_ORDER}out_channels = 7: {_GROUP}"),
    ("prologue 0", {"out_channel": 5, "out_channels": 2}, 39, f"{_IN_ORDER}out_channels = 2: {_GROUP}"),
    ("prologue 0", {"kernel_row": 3}, 27, f"{_IN_ORDER}kernel_rows = 3: {_BEYOND}"),
    ("prologue 0", {"kernel_row": 2**32 - 1}, 27, f"{_IN_ORDER}kernel_rows = 3: {_BEYOND}"),
    ("prologue 0", {"kernel_row_step": -1}, 27, f"{_IN_ORDER}kernel_rows = 3: {_BEYOND}"),
    ("prologue 0", {"kernel_row_step": -(2**31)}, 27, f"{_IN_ORDER}kernel_rows = 3: {_BEYOND}"),
    ("prologue 0", {"kernel_col_step": 2}, 27, f"{_IN_ORDER}kernel_cols = 3: {_BEYOND}"),
    ("prologue 0", {"kernel_col": 2, "kernel_col_step": -2}, 27, f"{_IN_ORDER}kernel_cols = 3: {_BEYOND}"),
    ("prologue 0", {"tensor": 1}, 25, f"{_IN_ORDER}tensor = 1: the layout of the tensor does not suit the command"),
    (
        "prologue 1",
        {"out_channel": 2, "out_channels": 4},
        28,
        f"{_PACKED}out_channel = 2: must be a multiple of lanes for packed weights",
    ),
    (
        "prologue 1",
        {"in_channel": 2, "in_channels": 4},
        28,
        f"{_PACKED}in_channel = 2: must be a multiple of lanes for packed weights",
    ),
    # LOAD_TABLE
    ("body 1", {"flags": 1}, 21, f"{_TABLE}flags = 1: the command has no such flags"),
    ("body 1", {"tensor": 7}, 24, f"{_TABLE}tensor = 7: there is no such tensor"),
    ("body 1", {"tensor": 0}, 25, f"{_TABLE}tensor = 0: the layout of the tensor does not suit the command"),
    ("body 1", {"count": 0}, 9, f"{_TABLE}count = 0: {_POSITIVE}"),
    ("body 1", {"first": 2}, 27, f"{_TABLE}count = 5: {_BEYOND}"),
    ("body 1", {"sram": 962}, 20, f"{_TABLE}sram = 962: {_ALIGNED}"),
    ("body 1", {"sram": 2**32 - 4}, 33, f"{_TABLE}sram = {2**32 - 4}: {_OUTSIDE}"),
    # POOL
    ("body 4", {"flags": 1}, 21, f"{_POOL}flags = 1: the command has no such flags"),
    *each("body 4", _POOL, ("channels", "out_rows", "out_cols", "kernel_rows", "kernel_cols"), 0, 9, _POSITIVE),
    *each("body 4", _POOL, ("stride_rows", "stride_cols", "dilation_rows", "dilation_cols"), 0, 9, _POSITIVE),
    ("body 4", {"pooling": 3}, 13, f"{_POOL}pooling = 3: there is no such kind"),
    *each("body 4", _POOL, ("in_block_bytes", "out_block_bytes"), 476, 32, _BLOCK),
    *each("body 4", _POOL, ("in_block_bytes", "out_block_bytes"), 482, 20, _ALIGNED),
    *each("body 4", _POOL, ("input", "output"), 6, 20, _ALIGNED),
    *each("body 4", _POOL, ("input", "output"), 2**31, 33, _OUTSIDE),
    ("body 4", {"output": 956}, 38, f"{_POOL}output = 956: {_OVERLAP}"),
    ("body 4", {"output": DATA}, 38, f"{_POOL}output = 0: {_OVERLAP}"),
    # RESIZE
    ("body 5", {"flags": 1}, 21, f"{_RESIZE}flags = 1: the command has no such flags"),
    *each("body 5", _RESIZE, ("in_rows", "in_cols", "channels", "row_taps", "col_taps"), 0, 9, _POSITIVE),
    *each("body 5", _RESIZE, ("out_rows", "out_cols"), 0, 9, _POSITIVE),
    *each("body 5", _RESIZE, ("in_block_bytes", "out_block_bytes"), 476, 32, _BLOCK),
    *each("body 5", _RESIZE, ("in_block_bytes", "out_block_bytes"), 481, 20, _ALIGNED),
    *each("body 5", _RESIZE, ("input", "output", "row_table", "col_table"), 6, 20, _ALIGNED),
    *each("body 5", _RESIZE, ("input", "output", "row_table", "col_table"), 2**31, 33, _OUTSIDE),
    ("body 5", {"row_taps": 2**32 - 1}, 33, f"{_RESIZE}row_table = 960: {_OUTSIDE}"),
    ("body 5", {"output": POOLED}, 38, f"{_RESIZE}output = 1136: {_OVERLAP}"),
    ("body 5", {"row_table": RESIZED}, 38, f"{_RESIZE}output = 2096: {_OVERLAP}"),
    ("body 5", {"col_table": RESIZED + 956}, 38, f"{_RESIZE}output = 2096: {_OVERLAP}"),
    # ELTWISE
    ("body 6", {"flags": 1}, 21, f"{_MAP}flags = 1: the command has no such flags"),
    *each("body 6", _MAP, ("rows", "cols", "channels"), 0, 9, _POSITIVE),
    ("body 6", {"partner_kind": 4}, 13, f"{_MAP}partner_kind = 4: there is no such kind"),
    ("body 6", {"function": len(Function)}, 13, f"{_MAP}function = {len(Function)}: there is no such kind"),
    ("body 6", {"partner_kind": 0}, 42, f"{_MAP}partner_kind = 0: the function needs a partner"),
    ("body 7", {"partner_kind": 3}, 43, f"{_ALONE}partner_kind = 3: the function takes no partner"),
    ("body 6", {"function": Function.SILU}, 43, f"{_MAP}partner_kind = 1: the function takes no partner"),
    ("body 7", {"value0": 7}, 37, f"{_ALONE}value0 = 7: {_LIMITS}"),
    ("body 7", {"value1": float("nan")}, 37, f"{_ALONE}value0 = 0: {_LIMITS}"),
    *each("body 6", _MAP, ("in_block_bytes", "partner_block_bytes", "out_block_bytes"), 476, 32, _BLOCK),
    *each("body 6", _MAP, ("in_block_bytes", "partner_block_bytes", "out_block_bytes"), 486, 20, _ALIGNED),
    ("body 8", {"partner_block_bytes": 12}, 32, f"{_VECTOR}partner_block_bytes = 12: {_BLOCK}"),
    *each("body 6", _MAP, ("input", "partner", "output"), 3, 20, _ALIGNED),
    *each("body 6", _MAP, ("input", "partner", "output"), 2**31, 33, _OUTSIDE),
    ("body 6", {"output": RESIZED + 4}, 38, f"{_MAP}output = 2100: {_OVERLAP}"),
    ("body 6", {"output": POOLED - 4}, 38, f"{_MAP}output = 1132: {_OVERLAP}"),
    ("body 6", {"output": RESIZED, "out_block_bytes": 484}, 38, f"{_MAP}output = 2096: {_OVERLAP}"),
    ("body 8", {"partner": RESULT, "partner_block_bytes": 480}, 38, f"{_VECTOR}output = 3056: {_OVERLAP}"),
]


@pytest.mark.parametrize(("record", "fields", "status", "text"), RULES, ids=[f"{r[0]} {r[1]}" for r in RULES])
def test_each_rule_refuses_what_breaks_it(record: str, fields: dict[str, float], status: int, text: str) -> None:
    code, arrays = commands_case()
    arrays[5][:] = np.nan
    with pytest.raises(EngineError) as caught:
        run(patched(code, record, **fields), arrays)
    assert str(caught.value) == f"engine error {status}: {text}"
    assert np.isnan(arrays[5]).all(), "refused before the first command"


@pytest.mark.parametrize(
    ("record", "fields"),
    [
        ("body 6", {"output": RESIZED}),
        ("body 6", {"output": POOLED}),
        ("body 6", {"partner": RESIZED}),
        ("body 6", {"partner_kind": Partner.VALUE, "partner": 3, "partner_block_bytes": 1}),
        ("body 7", {"partner": 3, "partner_block_bytes": 1}),
        ("body 8", {"rows": 1, "cols": 1, "in_block_bytes": 16, "out_block_bytes": 16, "output": VECTOR}),
        ("body 4", {"in_rows": 0, "input": 3, "in_block_bytes": 1}),
        ("body 4", {"kernel_rows": 2**32 - 1, "dilation_rows": 2**32 - 1, "kernel_cols": 2**32 - 1}),
        ("body 4", {"pad_top": -(2**31), "pad_left": 2**31 - 1, "stride_rows": 2**32 - 1}),
    ],
)
def test_what_the_rules_allow_runs(record: str, fields: dict[str, float]) -> None:
    code, arrays = commands_case()
    assert run(patched(code, record, **fields), arrays).calls == 1


@pytest.mark.parametrize(
    ("table_index", "position", "text"),
    [
        (1, 0, "row position = 0"),
        (1, 6, "row position = 6"),
        (1, -2, "row position = -2"),
        (2, 6, "column position = 6"),
        (2, 2**31 - 1, f"column position = {2**31 - 1}"),
    ],
)
def test_a_position_outside_the_map_stops_the_run(table_index: int, position: int, text: str) -> None:
    code, arrays = commands_case()
    arrays[5][:] = np.nan
    arrays[table_index]["position"][4, 1] = position
    with pytest.raises(EngineError) as caught:
        run(code, arrays)
    assert str(caught.value) == f"engine error 44: {_RESIZE}{text}: the position lies outside the input map"
    assert np.isnan(arrays[5]).all(), "it stopped before the store"


def test_an_entry_without_a_tap_is_skipped() -> None:
    code, arrays = commands_case()
    arrays[1]["position"][:, 1] = -1
    arrays[1]["weight"][:, 1] = np.nan
    run(code, arrays)
    assert (arrays[5] == 1.5).all()


def test_a_table_is_an_array_of_entries() -> None:
    code, arrays = commands_case()
    with pytest.raises(ValueError, match=r"^tensor 1: ") as caught:
        run(code, [arrays[0], np.zeros(24, np.float32), *arrays[2:]])
    assert (
        str(caught.value)
        == "tensor 1: the array is float32, the program needs [('position', '<i4'), ('weight', '<f4')]"
    )
    with pytest.raises(ValueError, match=r"^tensor 2: ") as caught:
        run(code, [*arrays[:2], arrays[2][:5], *arrays[3:]])
    assert str(caught.value) == ("tensor 2: the array of shape (5, 2) has 10 elements, the program needs 6x2x1x1x1, 12")
