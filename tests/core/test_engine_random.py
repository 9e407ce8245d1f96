"""The engine against the reference interpreter, on random programs of each command; all that both count is equal."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
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

from tvm_sramtile.engine import run
from tvm_sramtile.engine.reference import interpret
from tvm_sramtile.isa import Traffic, encode
from tvm_sramtile.lower.timeline import timeline

CASES = {
    "maps": map_case,
    "copies": copy_case,
    "weights": weights_case,
    "convolutions": conv_case,
    "pools": pool_case,
    "resizes": resize_case,
    "functions": eltwise_case,
}


def compare(case: RandomCase) -> None:
    """Run on both; equal outputs, traffic, MACs, SRAM peak and cycles."""
    wanted = [argument.copy() for argument in case.arguments]
    with np.errstate(all="ignore"):
        reference = interpret(case.program, wanted, case.images, checked=True)
    found = [argument.copy() for argument in case.arguments]
    measured = run(encode(case.program), found, case.images)
    for one, other in zip(found, wanted, strict=True):
        if case.relative and one.dtype == np.float32:
            np.testing.assert_allclose(one, other, rtol=case.relative, atol=case.absolute)
        else:
            np.testing.assert_array_equal(one, other)
    traffic = (measured.input_bytes, measured.weight_bytes, measured.output_bytes, measured.partial_sum_bytes)
    assert dict(zip(Traffic, traffic, strict=True)) == reference.dram_bytes
    assert (measured.macs, measured.sram_peak_bytes) == (reference.macs, reference.sram_peak_bytes)
    time = timeline(case.program, case.images)
    busy = (measured.load_busy_cycles, measured.compute_busy_cycles, measured.store_busy_cycles)
    assert (measured.cycles, *busy) == (
        time.cycles,
        time.load_busy_cycles,
        time.compute_busy_cycles,
        time.store_busy_cycles,
    )


@pytest.mark.parametrize("kind", CASES)
def test_random_programs_equal_the_reference(kind: str) -> None:
    make: Callable[[int], RandomCase] = CASES[kind]
    for seed in range(700):
        case = make(seed)
        try:
            compare(case)
        except Exception as error:
            raise AssertionError(f"{kind}, seed {seed}: {case.program.body}") from error
