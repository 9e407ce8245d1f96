"""The reported faults that are none of a graph: readers, kinds of weights, threads, two libraries, halos, messages."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import relay_graphs as graphs
import tvm
from conformance import deployed
from conformance.cases import CASES
from conformance.deployed import LARGE, LARGE_BYTES, LOADS, THREADS, TWO
from conformance.grammar import Array, Case
from tvm.contrib import graph_executor

from tvm_sramtile import relay as front
from tvm_sramtile.errors import DoesNotFit
from tvm_sramtile.options import Options

BY_NAME = {case.name: case for case in CASES}


def exported(case: Case, directory: Path) -> Path:
    path = directory / f"{case.name}.so"
    front.export_library(front.partition_for_sramtile(graphs.case_module(case), case.spec), str(path))
    return path


def call_of(library: Any) -> deployed.Call:
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))

    def call(x: Array) -> Array:
        executor.run(x=tvm.nd.array(x))
        return executor.get_output(0).numpy()

    return call


def load(path: Path) -> list[deployed.Call]:
    """An executor has one set of tensors, so each thread has one of its own; the library below is shared."""
    library = tvm.runtime.load_module(str(path))
    return [call_of(library) for _ in range(THREADS)]


def test_a15_an_operator_with_several_readers_runs_once() -> None:
    case = BY_NAME["a15_three_consumers"]
    partitioned = front.partition_for_sramtile(graphs.case_module(case), case.spec)
    assert graphs.ops_of(partitioned).count("sramtile_conv2d_0") == 1
    split = front.SplitOversized(case.spec, ops=["nn.conv2d"])(graphs.case_module(case))
    assert graphs.ops_of(split).count("nn.conv2d") == case.chunks[0]


@pytest.mark.parametrize("bound", [True, False])
def test_a16_weights_are_loaded_once_bound_or_not(bound: bool) -> None:
    case = BY_NAME["a16_parameter"]
    values = case.values()
    params = {"w": values["w"]} if bound else None
    partitioned = front.partition_for_sramtile(graphs.case_module(case), case.spec, params=params)
    run = front.run_accelerator(partitioned, {"x": values["x"]} if bound else values)
    graphs.assert_close(run.outputs, case.expected(), case.tolerance)
    (region,) = run.regions.values()
    assert region.measured.weight_bytes == values["w"].nbytes
    assert len(region.inputs) == (1 if bound else 2)


def test_a17_first_calls_from_many_threads(tmp_path: Path) -> None:
    results = deployed.first_calls(exported(TWO[0], tmp_path), load)
    assert len(results) == LOADS * THREADS
    for result in results:
        graphs.assert_close((result,), (deployed.result_of(TWO[0]),), TWO[0].tolerance)


LOAD = """
from tvm.contrib import graph_executor
def load(path):
    executor = graph_executor.GraphModule(tvm.runtime.load_module(path)["default"](tvm.cpu()))
    def call(x):
        executor.run(x=x)
        return executor.get_output(0).numpy()
    return call
"""


def test_a18_two_libraries_in_a_new_process_without_the_package(tmp_path: Path) -> None:
    paths = [exported(case, tmp_path) for case in TWO]
    results = deployed.interleaved_in_a_new_process(LOAD, paths, tmp_path)
    for result, case in zip(results, TWO * 2, strict=True):
        graphs.assert_close((result,), (deployed.result_of(case),), case.tolerance)


def test_a18_large_weights_are_compiled_quickly_and_stored_once(tmp_path: Path) -> None:
    start = time.perf_counter()
    path = exported(LARGE, tmp_path)
    assert time.perf_counter() - start < 30
    assert LARGE_BYTES <= path.stat().st_size < 1.2 * LARGE_BYTES
    call = call_of(tvm.runtime.load_module(str(path)))
    found: Array = call(LARGE.values()["x"])
    graphs.assert_close((found,), LARGE.expected(), LARGE.tolerance)


def test_a20_the_skip_tensor_is_read_without_halo() -> None:
    case = BY_NAME["a20_residual"]
    regions = front.regions(front.partition_for_sramtile(graphs.case_module(case), case.spec))
    (conv,), (joined,) = (region.plan.steps for region in regions)
    assert len(conv.rows) > 1
    assert all(len(row.read) > len(row.out) for row in conv.rows)
    assert len(joined.rows) > 1
    assert all(row.read == row.out for row in joined.rows)


def test_a21_a_row_that_cannot_fit_is_an_error_with_all_numbers() -> None:
    case = BY_NAME["one_position_too_much"]
    with pytest.raises(DoesNotFit) as caught:
        front.partition_for_sramtile(graphs.case_module(case), case.spec, Options(on_refusal="error"))
    assert str(caught.value) == f"conv2d conv2d_0 {deployed.ONE_POSITION}"
