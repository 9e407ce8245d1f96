"""The random regions of every operator, through compilation and encoding to the engine: results and all counters."""

from __future__ import annotations

import pytest
from core.regions import Case
from core.whole_chips import whole_case

from tvm_sramtile.compile import Compiled, compile_region
from tvm_sramtile.engine import Measured, run
from tvm_sramtile.isa import Traffic

SHARES, CASES = 8, 1200


def check(case: Case, compiled: Compiled) -> None:
    """The outputs are the oracle's; what the engine counts is what was predicted, without tolerance."""
    arguments = case.arguments()
    found = run(compiled.code, arguments, case.region.images)
    case.compare(arguments)
    wanted, time = case.measures(compiled.plan), compiled.predicted.time
    assert counted(found) == (
        *(wanted.dram_bytes[kind] for kind in Traffic),
        wanted.macs,
        wanted.sram_peak_bytes,
        *(time.cycles, time.load_busy_cycles, time.compute_busy_cycles, time.store_busy_cycles),
    )


def counted(found: Measured) -> tuple[int, ...]:
    traffic = (found.input_bytes, found.weight_bytes, found.output_bytes, found.partial_sum_bytes)
    cycles = (found.cycles, found.load_busy_cycles, found.compute_busy_cycles, found.store_busy_cycles)
    return (*traffic, found.macs, found.sram_peak_bytes, *cycles)


@pytest.mark.parametrize("share", range(SHARES))
def test_the_whole_method_in_the_engine(share: int) -> None:
    for seed in range(share * CASES // SHARES, (share + 1) * CASES // SHARES):
        case, spec, options = whole_case(seed)
        try:
            check(case, compile_region(case.region, spec, options, case.constants))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {spec!r} {options!r}") from error
