"""The reported faults that are none of a graph: readers, kinds of weights, threads, two libraries, halos, messages.

The tests of both suites; each gives the fixture ``tvm_of``.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from conformance.cases import CASES
from conformance.deployed import (
    LARGE,
    LARGE_BYTES,
    LOADS,
    ONE_POSITION,
    THREADS,
    TWO,
    Generation,
    first_calls,
    interleaved_in_a_new_process,
    result_of,
)
from conformance.grammar import Case

from tvm_sramtile.errors import DoesNotFit
from tvm_sramtile.options import Options

BY_NAME = {case.name: case for case in CASES}


def exported(tvm_of: Generation, case: Case, directory: Path) -> Path:
    path = directory / f"{case.name}.so"
    front = tvm_of.front
    front.export_library(front.partition_for_sramtile(tvm_of.graphs.case_module(case), case.spec), str(path))
    return path


def test_a15_an_operator_with_several_readers_runs_once(tvm_of: Generation) -> None:
    case = BY_NAME["a15_three_consumers"]
    partitioned = tvm_of.front.partition_for_sramtile(tvm_of.graphs.case_module(case), case.spec)
    assert tvm_of.graphs.ops_of(partitioned).count("sramtile_conv2d_0") == 1
    split = tvm_of.front.SplitOversized(case.spec, ops=["nn.conv2d"])(tvm_of.graphs.case_module(case))
    assert tvm_of.graphs.ops_of(split).count("nn.conv2d") == case.chunks[0]


@pytest.mark.parametrize("bound", [True, False])
def test_a16_weights_are_loaded_once_bound_or_not(tvm_of: Generation, bound: bool) -> None:
    case = BY_NAME["a16_parameter"]
    values = case.values()
    params = {"w": values["w"]} if bound else None
    partitioned = tvm_of.front.partition_for_sramtile(tvm_of.graphs.case_module(case), case.spec, params=params)
    run = tvm_of.front.run_accelerator(partitioned, {"x": values["x"]} if bound else values)
    tvm_of.graphs.assert_close(run.outputs, case.expected(), case.tolerance)
    (region,) = run.regions.values()
    assert region.measured.weight_bytes == values["w"].nbytes
    assert len(region.inputs) == (1 if bound else 2)


def test_a17_first_calls_from_many_threads(tvm_of: Generation, tmp_path: Path) -> None:
    results = first_calls(
        exported(tvm_of, TWO[0], tmp_path), lambda path: [*map(tvm_of.call_of, [tvm_of.load(path)] * THREADS)]
    )
    assert len(results) == LOADS * THREADS
    for result in results:
        tvm_of.graphs.assert_close((result,), (result_of(TWO[0]),), TWO[0].tolerance)


def test_a18_two_libraries_in_a_new_process_without_the_package(tvm_of: Generation, tmp_path: Path) -> None:
    paths = [exported(tvm_of, case, tmp_path) for case in TWO]
    results = interleaved_in_a_new_process(tvm_of.load_source, paths, tmp_path)
    for result, case in zip(results, TWO * 2, strict=True):
        tvm_of.graphs.assert_close((result,), (result_of(case),), case.tolerance)


def test_a18_large_weights_are_compiled_quickly_and_stored_once(tvm_of: Generation, tmp_path: Path) -> None:
    start = time.perf_counter()
    path = exported(tvm_of, LARGE, tmp_path)
    assert time.perf_counter() - start < 30
    assert LARGE_BYTES <= path.stat().st_size < 1.2 * LARGE_BYTES
    found = tvm_of.call_of(tvm_of.load(path))(LARGE.values()["x"])
    tvm_of.graphs.assert_close((found,), LARGE.expected(), LARGE.tolerance)


def test_a20_the_skip_tensor_is_read_without_halo(tvm_of: Generation) -> None:
    case = BY_NAME["a20_residual"]
    regions = tvm_of.front.regions(tvm_of.front.partition_for_sramtile(tvm_of.graphs.case_module(case), case.spec))
    (conv,), (joined,) = (region.plan.steps for region in regions)
    assert len(conv.rows) > 1
    assert all(len(row.read) > len(row.out) for row in conv.rows)
    assert len(joined.rows) > 1
    assert all(row.read == row.out for row in joined.rows)


def test_a21_a_row_that_cannot_fit_is_an_error_with_all_numbers(tvm_of: Generation) -> None:
    case = BY_NAME["one_position_too_much"]
    with pytest.raises(DoesNotFit) as caught:
        tvm_of.front.partition_for_sramtile(tvm_of.graphs.case_module(case), case.spec, Options(on_refusal="error"))
    assert str(caught.value) == f"conv2d {tvm_of.convolution} {ONE_POSITION}"
