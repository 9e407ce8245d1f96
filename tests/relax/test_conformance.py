"""Every conformance case: the original, the split graph and the accelerator, against numpy."""

from __future__ import annotations

from typing import Any

import pytest
import relax_graphs as graphs
from conformance.cases import CASES
from conformance.grammar import CUT, Case
from conformance.reported import ROWS_ONLY, check_rows
from tvm import relax

from tvm_sramtile import relax as front
from tvm_sramtile.compile import compile_region
from tvm_sramtile.options import Options
from tvm_sramtile.relax.codegen import compile_function

SEED = Options(strategy="seed")  # the numbers of chunks that the cases state are those of the formulas


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_three_executions_agree(case: Case) -> None:
    mod, inputs, expected = graphs.case_module(case), graphs.inputs_of(case), case.expected()
    partitioned = front.partition_for_sramtile(mod, case.spec, SEED)
    assert graphs.is_well_formed(partitioned)
    assert graphs.equal(front.partition_for_sramtile(partitioned, case.spec, SEED), partitioned)
    run = front.run_accelerator(partitioned, inputs)
    graphs.assert_close(run.outputs, expected, case.tolerance)

    split = front.SplitOversized(case.spec, SEED)(mod)
    assert graphs.is_well_formed(split)
    assert graphs.equal(front.SplitOversized(case.spec, SEED)(split), split)
    for module in (split,) if "relax" in case.not_built_by else (mod, split):
        graphs.assert_close(graphs.run_plain(module, *inputs.values()), expected, case.tolerance)

    regions = front.regions(partitioned)
    cut = [region for region in regions if region.region.steps[0].op.kind in CUT]
    assert tuple(region.plan.chunk_count for region in cut) == tuple(count for count in case.chunks if count)
    for region in regions:
        predicted = compile_region(region.region, region.spec, region.options, None, region.plan).predicted
        measured = run.regions[region.region.name].measured
        assert predicted.traffic.total_bytes == measured.dram_bytes
        assert predicted.sram_peak_bytes == measured.sram_peak_bytes <= case.sram_bytes
        assert predicted.time.cycles == measured.cycles
    refused = [op.reason for op in front.host_ops(partitioned) if op.op.rpartition(".")[2] in CUT]
    assert len(refused) == case.chunks.count(0)
    assert all(case.reason in reason for reason in refused)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_search_gives_the_same_values_for_no_more_traffic(case: Case) -> None:
    mod = graphs.case_module(case)
    run = front.run_accelerator(front.partition_for_sramtile(mod, case.spec), graphs.inputs_of(case))
    graphs.assert_close(run.outputs, case.expected(), case.tolerance)
    seeds = front.run_accelerator(front.partition_for_sramtile(mod, case.spec, SEED), graphs.inputs_of(case))
    moved = [sum(region.measured.dram_bytes for region in each.regions.values()) for each in (run, seeds)]
    assert moved[0] <= moved[1]
    assert all(region.measured.sram_peak_bytes <= case.sram_bytes for region in run.regions.values())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_fits_is_left_alone(case: Case) -> None:
    mod = graphs.case_module(case)
    split = front.SplitOversized(case.spec, SEED, ops=[f"nn.{CUT[0]}", f"nn.{CUT[1]}", f"image.{CUT[2]}"])(mod)
    regions = front.regions(front.partition_for_sramtile(mod, case.spec, SEED))
    cut = [step for region in regions for step in region.plan.steps if region.region.steps[0].op.kind in CUT]
    assert graphs.equal(split, mod) == (not any(step.is_split for step in cut))


@pytest.mark.parametrize("case", CASES[::3], ids=lambda case: case.name)
def test_the_body_does_not_change_the_program(case: Case) -> None:
    mod = graphs.case_module(case)
    programs = []
    for limit in (1, 1000):
        partitioned = front.partition_for_sramtile(mod, case.spec, SEED.replace(max_unrolled_chunks=limit))
        regions = graphs.functions_with(partitioned, "Codegen")
        assert any("concat" in graphs.ops_of(partitioned, name) for name in regions) == (
            limit == 1000 and any(count > 1 for count in case.chunks)
        )
        programs.append({name: compile_function(function).code for name, function in regions.items()})
    assert programs[0] == programs[1]


@pytest.mark.parametrize("case", ROWS_ONLY, ids=lambda case: case.name)
def test_what_is_reported_is_what_is_emitted(case: Case) -> None:
    """In the region's body and in the inline split."""
    mod = graphs.case_module(case)
    partitioned = front.partition_for_sramtile(mod, case.spec, SEED.replace(max_unrolled_chunks=1000))
    (region,) = front.regions(partitioned)
    split = front.SplitOversized(case.spec, ops=[f"nn.{CUT[0]}", f"nn.{CUT[1]}"])(mod)
    emitted = (partitioned[region.region.name], split["main"])
    check_rows(case, region, [(written(function), slices(function)) for function in emitted])


def written(function: relax.Function) -> list[int]:
    """The rows of what is concatenated."""
    (joined,) = [call for call in calls(function) if graphs.is_call(call, "concat")]
    assert int(joined.attrs.axis) == 2
    return [int(part.ty.shape.values[2]) for part in joined.args[0].fields]


def slices(function: relax.Function) -> set[tuple[int, int]]:
    """Where the rows that are read start and end."""
    found = set()
    for call in calls(function):
        if graphs.is_call(call, "strided_slice"):
            axes, begin, end = ([int(part.value) for part in argument.fields] for argument in call.args[1:4])
            found |= {(start, stop) for axis, start, stop in zip(axes, begin, end, strict=True) if axis == 2}
    return found


def calls(function: relax.Function) -> list[Any]:
    values = [binding.value for block in function.body.blocks for binding in block.bindings]
    return [value for value in values if isinstance(value, relax.Call)]
