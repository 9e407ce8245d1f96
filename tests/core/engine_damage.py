"""Programs with random damage: the engine must refuse them or run them, and never crash."""

from __future__ import annotations

from typing import Any

import numpy as np
from core.engine_programs import Chip, Conv, conv_program, patched, place_of
from core.engine_random import (
    RandomCase,
    conv_case,
    copy_case,
    eltwise_case,
    map_case,
    pool_case,
    resize_case,
    weights_case,
)
from numpy.typing import NDArray

from tvm_sramtile.engine import run
from tvm_sramtile.errors import EngineError
from tvm_sramtile.isa import decode, encode
from tvm_sramtile.isa.code import record_struct
from tvm_sramtile.isa.table import COMMAND, HEADER, TENSOR, Field

_EXTREMES = (0, 1, 2, 3, 4, 16, 64, 255, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 4, 2**32 - 1, 2**63 - 1, 2**64 - 1)


_MAKERS = (map_case, copy_case, weights_case, conv_case, pool_case, resize_case, eltwise_case)
_ARGUMENT_ELEMS = 4096  # at least so many, so that damaged extents often find room


def run_damaged(seed: int, count: int) -> tuple[int, int]:
    """Run programs with random damage; returns how many were refused and how many ran."""
    rng = np.random.default_rng(seed)
    bases = [_by_hand(lanes, op) for lanes in (1, 4, 8, 16) for op in _CONVOLUTIONS]
    bases += [make(case) for make in _MAKERS for case in rng.integers(0, 10**6, 12)]
    refused = 0
    for _ in range(count):
        base = bases[rng.integers(len(bases))]
        code = _damaged(rng, encode(base.program))
        arrays = [_resized(argument) for argument in base.arguments]
        try:
            run(code, arrays, int(rng.integers(0, 3)))
        except (EngineError, ValueError):
            refused += 1
    return refused, count - refused


_CONVOLUTIONS = (Conv(8, 5, 6, 8), Conv(12, 6, 15, 12, groups=12), Conv(6, 4, 4, 10, groups=2))


def _by_hand(lanes: int, op: Conv) -> RandomCase:
    program = conv_program(Chip(lanes), op, bias=True, clip=(0.0, 6.0), passes=2)
    return RandomCase(program, [np.ones(1, np.float32) for _ in range(program.argument_count)], 1)


def _resized(argument: NDArray[Any]) -> NDArray[Any]:
    return np.resize(argument, max(_ARGUMENT_ELEMS, argument.size))


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
        offset, layout = place_of(code, *_split(record))
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
