"""What both front ends' tests ask of the counters of a built network."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tvm_sramtile
from tvm_sramtile.compile import Compiled
from tvm_sramtile.errors import ModelError, OptionError

KINDS = ("input_bytes", "weight_bytes", "output_bytes", "partial_sum_bytes")


def check_counters(module: Any, run: Callable[[], NDArray[Any]], compiled: tuple[Compiled, ...]) -> None:
    """Counts of each region and step are those predicted; they add up over calls, are reset, and need no arithmetic."""
    tvm_sramtile.reset_counters(module)
    expected = run()
    once = tvm_sramtile.counters(module)
    assert sorted(once.regions) == sorted(item.region.name for item in compiled)
    for item in compiled:
        region, predicted = once.regions[item.region.name], item.predicted
        measured = region.measured
        assert (measured.calls, measured.images) == (1, item.region.images)
        assert (measured.cycles, measured.sram_peak_bytes) == (predicted.time.cycles, predicted.sram_peak_bytes)
        assert tuple(step.name for step in region.steps) == item.step_names
        for step, plan in zip(region.steps, item.plan.steps, strict=True):
            moved = [sum(getattr(kind, field) for kind in step.commands.values()) for field in KINDS]
            assert moved == [getattr(plan.traffic, field) for field in KINDS]
        assert sum(c.macs for step in region.steps for c in step.commands.values()) == measured.macs

    tvm_sramtile.reset_counters(module)
    tvm_sramtile.set_mode(module, "count-only")
    run()
    assert tvm_sramtile.counters(module) == once
    tvm_sramtile.reset_counters(module)
    tvm_sramtile.set_mode(module, "checked")
    np.testing.assert_array_equal(run(), expected)
    assert tvm_sramtile.counters(module) == once
    tvm_sramtile.set_mode(module, "run")
    np.testing.assert_array_equal(run(), expected)

    expected_lines = []
    for region in once.regions.values():
        expected_lines.append(f"{region.name}: 1 calls, {region.measured.cycles:,} cycles, ")
        expected_lines += [f"    {step.name} {kind}: " for step in region.steps for kind in step.commands]
        kinds = [kind for step in region.steps for kind in step.commands.values()]
        assert sum(kind.dram_bytes for kind in kinds) == region.measured.dram_bytes
    for line, start in zip(str(once).splitlines(), expected_lines, strict=True):
        assert line.startswith(start)

    for region in json.loads(tvm_sramtile.counters(module).to_json())["regions"]:
        single = once.regions[region["name"]]
        assert (region["calls"], region["cycles"]) == (2, 2 * single.measured.cycles)
        assert [step["name"] for step in region["steps"]] == [step.name for step in single.steps]
        for step, counted in zip(region["steps"], single.steps, strict=True):
            assert {kind: values["macs"] for kind, values in step["commands"].items()} == {
                kind: 2 * values.macs for kind, values in counted.commands.items()
            }


def check_refusals(module: Any, without_regions: Any) -> None:
    with pytest.raises(OptionError) as wrong:
        tvm_sramtile.set_mode(module, "fast")
    assert str(wrong.value) == "mode 'fast': must be one of run, count-only, checked"
    for ask in (tvm_sramtile.counters, tvm_sramtile.reset_counters):
        with pytest.raises(ModelError) as none:
            ask(without_regions)
        assert str(none.value) == (
            "the module has no function sramtile__regions: it must be a network with regions of sramtile that was "
            "compiled and, in Relay, exported and loaded"
        )
