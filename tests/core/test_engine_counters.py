"""What the engine counts: worked out by hand, by step and kind of command, without executing, and from many threads."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from core.engine_programs import Chip, Conv, argument, conv_program, load, normal, patched, program, small_case, store

from tvm_sramtile.engine import CommandCounters, Measured, count, run
from tvm_sramtile.engine.counters import value_count
from tvm_sramtile.engine.native import engine_library
from tvm_sramtile.errors import EngineError
from tvm_sramtile.isa import Traffic, encode
from tvm_sramtile.isa.table import Mode

ROOT = Path(__file__).parents[2]


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
    assert replace(run(encode(base), arrays, 2), steps=()) == Measured(
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
    assert replace(run(encode(base), arrays, 0), steps=()) == Measured(
        1, 0, prologue, prologue, 0, 0, 2, 0, 0, 0, 0, w_bytes + 32, 0, 0, base.memories[0]
    )


def test_queues_run_side_by_side_except_where_commands_wait() -> None:
    chip, shape = Chip(4), (4, 4, 4)
    tensors = [
        argument(0, Traffic.INPUTS, shape),
        argument(1, Traffic.OUTPUTS, shape),
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


def test_the_peak_adds_up_over_memories_and_ends_with_the_last_row() -> None:
    chip, shape = Chip(4), (6, 2, 2)
    tensors = [argument(0, Traffic.INPUTS, shape)]
    body = [load(chip, 0, 6, 2, 2, 16, block_bytes=100), load(chip, 0, 6, 2, 2, 512)]
    code = encode(program(chip, tensors, body, (510, 0, 300)))  # the third starts at the next multiple of 4, 512
    assert run(code, [np.zeros(shape, np.float32)]).sram_peak_bytes == (16 + 100 + 64) + 128


class Block(ctypes.Structure):
    """``struct sramtile_counters``."""

    _fields_ = (
        ("lock", ctypes.c_uint32),
        ("mode", ctypes.c_uint32),
        ("step_count", ctypes.c_uint32),
        ("values", ctypes.POINTER(ctypes.c_int64)),
    )

    @classmethod
    def of(cls, steps: int) -> Block:
        return cls(step_count=steps, values=(ctypes.c_int64 * value_count(steps))())

    def read(self) -> Measured:
        out = (ctypes.c_int64 * value_count(self.step_count))()
        library().sramtile_counters_read(ctypes.byref(self), out)
        return Measured.of(list(out))

    def call(self, code: bytes, pointers: Any, tensors: int) -> tuple[int, str]:
        text = ctypes.create_string_buffer(256)
        size, images = ctypes.c_uint64(len(code)), ctypes.c_int64(1)
        status = library().sramtile_run(code, size, pointers, tensors, images, ctypes.byref(self), text, 256)
        return int(status), text.value.decode()


def library() -> ctypes.CDLL:
    return ctypes.CDLL(str(engine_library()))


def test_counter_blocks_add_up_and_are_reset() -> None:
    code, arrays = small_case()
    block = Block.of(1)
    pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    once = run(code, arrays)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: block.call(code, pointers, len(arrays)), range(200))) == [(0, "")] * 200
    total = block.read()
    assert (total.calls, total.images, total.cycles) == (200, 200, 200 * once.cycles)
    assert (total.macs, total.dram_bytes) == (200 * once.macs, 200 * once.dram_bytes)
    assert total.sram_peak_bytes == once.sram_peak_bytes
    assert total.steps[0]["CONV"].macs == total.macs
    library().sramtile_counters_reset(ctypes.byref(block))
    assert block.read() == Measured(*[0] * 15, steps=({},))


def test_a_counter_block_is_for_the_steps_of_its_program() -> None:
    code, arrays = small_case()
    pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    text = "header: step_count = 1: differs from the steps of the counter block"
    assert Block.of(2).call(code, pointers, len(arrays)) == (46, text)
    with pytest.raises(EngineError) as caught:
        run(patched(code, "header", step_count=65537), arrays)
    assert str(caught.value) == (
        "engine error 45: header: step_count = 65537: is more than a command's step can name, 65536"
    )
    assert len(run(patched(code, "header", step_count=65536), arrays).steps) == 65536


def test_each_step_and_kind_of_command_is_counted_apart() -> None:
    code, arrays = small_case()
    code = patched(patched(patched(code, "header", step_count=4), "body 1", step=1), "body 3", step=3)
    measured = run(code, arrays)
    assert [list(step) for step in measured.steps] == [["LOAD", "LOAD_WEIGHTS", "CONV"], ["CONV"], [], ["STORE"]]
    macs, moved = 30 * 9 * 64, 8 * 30 * 4
    weights = 2 * 8 * 8 * 9 * 4
    assert measured.steps[0] == {
        "LOAD": CommandCounters(2, (64 + moved // 16) + (64 + 2), 0, moved, 8 * 4, 0, 0),
        "LOAD_WEIGHTS": CommandCounters(2, 2 * 64 + weights // 16, 0, 0, weights, 0, 0),
        "CONV": CommandCounters(1, 30 * 9, macs, 0, 0, 0, 0),
    }
    assert measured.steps[1] == {"CONV": CommandCounters(1, 30 * 9, macs, 0, 0, 0, 0)}
    assert measured.steps[3] == {"STORE": CommandCounters(1, 64 + moved // 16, 0, 0, 0, moved, 0)}
    assert measured.compute_busy_cycles == 2 * 30 * 9


def test_counting_only_needs_no_tensors_and_no_memory() -> None:
    op = Conv(64, 4000, 8000, 64)  # tensors of 8 GB, in an SRAM as large
    chip = Chip()
    base = replace(conv_program(chip, Conv(64, 40, 80, 64)), memories=(2**32 - 4,), workspace_bytes=2**60)
    measured = count(encode(base), 7)
    assert (measured.calls, measured.images, measured.macs) == (1, 7, 7 * Conv(64, 40, 80, 64).macs)
    body = [load(chip, 0, 3, op.rows, op.cols, 0)]
    huge = program(chip, [argument(0, Traffic.INPUTS, (op.channels, op.rows, op.cols))], body, (2**32 - 4,))
    assert count(encode(huge)).input_bytes == 3 * 4000 * 8000 * 4


def test_counting_only_leaves_outputs_alone_and_counts_the_same() -> None:
    code, arrays = small_case()
    arrays[4][:] = 7
    block = Block.of(1)
    pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    assert library().sramtile_counters_mode(ctypes.byref(block), ctypes.c_int64(Mode.COUNT_ONLY)) == 0
    for wrong in (3, -1, 2**32):
        assert library().sramtile_counters_mode(ctypes.byref(block), ctypes.c_int64(wrong)) != 0
    assert block.call(code, pointers, len(arrays)) == (0, "")
    assert (arrays[4] == 7).all()
    assert block.read() == run(code, arrays) == count(code)
    assert (arrays[4] == 6).all()
    with pytest.raises(EngineError) as caught:
        count(patched(code, "header", lanes=0))
    assert str(caught.value) == "engine error 8: header: lanes = 0: must be from 1 to 1024"
    with pytest.raises(EngineError, match=r"^engine error 5: header: program_bytes = 3: "):
        count(b"abc")
    with pytest.raises(ValueError, match=r"^images = -1: must not be negative$"):
        count(code, -1)


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


_FIRST_CALLS = """
import sys, threading
import numpy as np
from core.engine_programs import Chip, Conv, conv_program
from tvm_sramtile.engine import run
from tvm_sramtile.isa import encode

op = Conv(32, 14, 14, 32)
code = encode(conv_program(Chip(), op))
w = np.random.default_rng(0).standard_normal((32, 32, 3, 3)).astype(np.float32)
start, failed = threading.Barrier(8), []

def first_call(seed):
    x = np.random.default_rng(seed).standard_normal((32, 14, 14)).astype(np.float32)
    y = np.zeros((32, 14, 14), np.float32)
    start.wait()
    run(code, [x, w, y])
    if not np.allclose(y, op.expected(x, w), rtol=1e-4, atol=1e-4):
        failed.append(seed)

threads = [threading.Thread(target=first_call, args=(seed,)) for seed in range(1, 9)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(failed))
"""


def test_first_calls_that_race_each_get_their_own_result() -> None:
    engine_library()  # the build itself is no part of it
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", _FIRST_CALLS], env=environment, capture_output=True, text=True, timeout=120
        )
        assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_threads_that_share_a_block_count_every_call_whatever_is_reset_between() -> None:
    code, arrays = small_case()
    block, once, start = Block.of(1), run(code, arrays), Barrier(8)
    pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))

    def calls(reader: int) -> list[Measured]:
        start.wait()
        if reader == 0:
            return [block.read() for _ in range(200)]
        assert [block.call(code, pointers, len(arrays))[0] for _ in range(50)] == [0] * 50
        return []

    with ThreadPoolExecutor(8) as pool:
        seen = [measured for each in pool.map(calls, range(8)) for measured in each]
    for measured in [*seen, block.read()]:  # each of one moment
        assert measured.macs == measured.calls * once.macs
        assert measured.cycles == measured.calls * once.cycles
    assert block.read().calls == 7 * 50
