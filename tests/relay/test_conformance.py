"""Every conformance case: the original, the split graph and the accelerator, against numpy.

Relay compiles slowly, so the graphs of many cases are joined, and each of the three is built once for all of them. (Of
twice as many, building takes more than twice as long.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import relay_graphs as graphs
import tvm
from conformance.cases import CASES
from conformance.grammar import CUT, Case
from conformance.reported import ROWS_ONLY, check_rows
from relay_graphs import Array
from tvm import relay

from tvm_sramtile import relay as front
from tvm_sramtile.compile import compile_region
from tvm_sramtile.engine.counters import Measured
from tvm_sramtile.options import Options
from tvm_sramtile.relay.codegen import compile_function
from tvm_sramtile.relay.runner import build_quickly, run_built

BY_NAME = {case.name: case for case in CASES}
SHARES = [[*BY_NAME][start : start + 32] for start in range(0, len(BY_NAME), 32)]


@dataclass(frozen=True)
class Results:
    """What one build gave for each case, and what each region measured."""

    outputs: Mapping[str, tuple[Array, ...]]
    measured: Mapping[str, Measured]


SEED = Options(strategy="seed")  # the numbers of chunks that the cases state are those of the formulas


def share_of(case: Case) -> int:
    return CASES.index(case) // 32


@cache
def original(name: str) -> tvm.IRModule:
    return graphs.case_module(BY_NAME[name])


@cache
def split(name: str) -> tvm.IRModule:
    return front.SplitOversized(BY_NAME[name].spec, SEED)(original(name))


@cache
def partitioned(name: str, options: Options = SEED) -> tvm.IRModule:
    return front.partition_for_sramtile(original(name), BY_NAME[name].spec, options)


def inputs(names: Sequence[str]) -> Mapping[str, Array]:
    return {f"{name}.{key}": value for name in names for key, value in graphs.inputs_of(BY_NAME[name]).items()}


def by_case(names: Sequence[str], values: Sequence[Array]) -> Mapping[str, tuple[Array, ...]]:
    rest = iter(values)
    return {name: tuple(next(rest) for _ in BY_NAME[name].flat_outputs) for name in names}


def without_tuples(module: tvm.IRModule) -> tvm.IRModule:
    """TVM builds what reads a tuple in a tuple only after this pass of its own, which ``build_quickly`` leaves out."""
    reads = any(isinstance(node, relay.TupleGetItem) for node in graphs.graph_of(module["main"].body).order)
    return relay.transform.FoldConstant()(module) if reads else module


@cache
def run_under_tvm(share: int, *, cut: bool) -> Mapping[str, tuple[Array, ...]]:
    names = [name for name in SHARES[share] if cut or "relay" not in BY_NAME[name].not_built_by]
    module = graphs.joined({name: without_tuples(split(name) if cut else original(name)) for name in names})
    return by_case(names, run_built(module, build_quickly(module), inputs(names)))


@cache
def run_on_accelerator(share: int, options: Options = SEED) -> Results:
    names = SHARES[share]
    run = front.run_accelerator(graphs.joined({name: partitioned(name, options) for name in names}), inputs(names))
    return Results(by_case(names, run.outputs), {name: region.measured for name, region in run.regions.items()})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_three_executions_agree(case: Case) -> None:
    share = share_of(case)
    runs = [run_under_tvm(share, cut=True), run_on_accelerator(share).outputs]
    if "relay" not in case.not_built_by:
        runs.append(run_under_tvm(share, cut=False))
    for outputs in runs:
        graphs.assert_close(outputs[case.name], case.expected(), case.tolerance)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_search_gives_the_same_values(case: Case) -> None:
    outputs = run_on_accelerator(share_of(case), Options()).outputs
    graphs.assert_close(outputs[case.name], case.expected(), case.tolerance)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_plan_predicts_what_is_measured(case: Case) -> None:
    regions = front.regions(partitioned(case.name))
    cut = [region for region in regions if region.region.steps[0].op.kind in CUT]
    assert tuple(region.plan.chunk_count for region in cut) == tuple(count for count in case.chunks if count)
    for region in regions:
        predicted = compile_region(region.region, region.spec, region.options, None, region.plan).predicted
        measured = run_on_accelerator(share_of(case)).measured[f"{case.name}__{region.region.name}"]
        assert predicted.traffic.total_bytes == measured.dram_bytes
        assert predicted.sram_peak_bytes == measured.sram_peak_bytes <= case.sram_bytes
        assert predicted.time.cycles == measured.cycles


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_passes_are_idempotent_and_refusals_explained(case: Case) -> None:
    module = partitioned(case.name)
    assert graphs.equal(front.partition_for_sramtile(module, case.spec, SEED), module)
    assert graphs.equal(front.SplitOversized(case.spec, SEED)(split(case.name)), split(case.name))
    refused = [op.reason for op in front.host_ops(module) if op.op.rpartition(".")[2] in CUT]
    assert len(refused) == case.chunks.count(0)
    assert all(case.reason in reason for reason in refused)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_fits_is_left_alone(case: Case) -> None:
    once = front.SplitOversized(case.spec, SEED, ops=[f"nn.{CUT[0]}", f"nn.{CUT[1]}", f"image.{CUT[2]}"])(
        original(case.name)
    )
    regions = front.regions(partitioned(case.name))
    cut = [step for region in regions for step in region.plan.steps if region.region.steps[0].op.kind in CUT]
    assert graphs.equal(once, original(case.name)) == (not any(step.is_split for step in cut))


@pytest.mark.parametrize("case", CASES[::3], ids=lambda case: case.name)
def test_the_body_does_not_change_the_program(case: Case) -> None:
    programs = []
    for limit in (1, 1000):
        module = front.partition_for_sramtile(original(case.name), case.spec, SEED.replace(max_unrolled_chunks=limit))
        regions = graphs.functions_with(module, "Compiler")
        assert any("concatenate" in graphs.ops_of(module, name) for name in regions) == (
            limit == 1000 and any(count > 1 for count in case.chunks)
        )
        programs.append({name: compile_function(function).program for name, function in regions.items()})
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


def written(function: Any) -> list[int]:
    """The rows of what is concatenated."""
    (joined,) = [node for node in graphs.graph_of(function.body).order if graphs.is_call(node, "concatenate")]
    assert int(joined.attrs.axis) == 2
    return [int(part.checked_type.shape[2]) for part in joined.args[0].fields]


def slices(function: Any) -> set[tuple[int, int]]:
    """Where the rows that are read start and end."""
    found = set()
    for node in graphs.graph_of(function.body).order:
        if graphs.is_call(node, "strided_slice"):
            axes, begin, end = ([*map(int, values)] for values in (node.attrs.axes, node.attrs.begin, node.attrs.end))
            found |= {(start, stop) for axis, start, stop in zip(axes, begin, end, strict=True) if axis == 2}
    return found
