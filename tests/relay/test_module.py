from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import relay_standin as standin
import tvm
from numpy.typing import NDArray
from standin_engine import COUNTERS, ELEMENTS, ERROR_TEXT, write_sources
from tvm.contrib import graph_executor

X = np.arange(1, ELEMENTS + 1, dtype="float32")
W = np.full(ELEMENTS, 2, dtype="float32")
BAD = np.full(ELEMENTS, 77, dtype="float32")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sources(tmp_path_factory.mktemp("engine"))


@pytest.fixture(scope="module")
def two_regions(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    standin.register(sources)
    return standin.build(standin.network(3.0, 5.0), tmp_path_factory.mktemp("library") / "deploy.so")


def run(executor: Any, x: NDArray[np.float32] = X) -> NDArray[np.float32]:
    executor.run(x=x, w=W)
    return executor.get_output(0).numpy()


def counters(library: Any, region: str) -> list[int]:
    out = tvm.nd.array(np.full(COUNTERS, -1, dtype="int64"))
    library.get_function(f"{region}__counters", query_imports=True)(out)
    return out.numpy().tolist()


def test_two_regions_in_one_library(two_regions: Path) -> None:
    _, executor = standin.load(two_regions)
    np.testing.assert_array_equal(run(executor), X * 2 * 3 * 2 * 5)


def test_a_region_that_is_all_of_main(sources: Path, tmp_path: Path) -> None:
    standin.register(sources)
    _, executor = standin.load(standin.build(standin.network(3.0, outputs=2), tmp_path / "deploy.so"))
    np.testing.assert_array_equal(run(executor), X * 6)
    np.testing.assert_array_equal(executor.get_output(1).numpy(), X * 12)


def test_an_error_in_the_engine_reaches_the_caller_with_its_text(two_regions: Path) -> None:
    _, executor = standin.load(two_regions)
    with pytest.raises(tvm.TVMError) as caught:
        run(executor, BAD)
    text = str(caught.value)
    assert text.rstrip().endswith(f"sramtile region region_0: {ERROR_TEXT}")
    np.testing.assert_array_equal(run(executor), X * 60)


def test_an_error_in_a_later_region_names_that_region(two_regions: Path) -> None:
    _, executor = standin.load(two_regions)
    with pytest.raises(tvm.TVMError) as caught:
        executor.run(x=np.full(ELEMENTS, 77 / 6, dtype="float32"), w=W)
    assert str(caught.value).rstrip().endswith(f"sramtile region region_1: {ERROR_TEXT}")


def test_wrong_tensors_are_refused_before_the_engine_runs(two_regions: Path) -> None:
    library, _ = standin.load(two_regions)
    entry = library.get_function("region_0", query_imports=True)
    before = counters(library, "region_0")
    right, short = (tvm.nd.array(np.ones(size, dtype="float32")) for size in (ELEMENTS, ELEMENTS - 1))
    with pytest.raises(
        tvm.TVMError, match=r"region_0: argument 1 must have the shape \(10,\): extent of axis 0 differs"
    ):
        entry(right, short, right)
    with pytest.raises(tvm.TVMError, match="dtype is expected to be float32"):
        entry(right, right, tvm.nd.array(np.ones(ELEMENTS, dtype="int32")))
    shifted = tvm.nd.array(np.ones(ELEMENTS, dtype="float32"))
    shifted.handle.contents.byte_offset = 4
    with pytest.raises(tvm.TVMError, match="region_0: argument 0 must start at its data, without a byte offset"):
        entry(shifted, right, right)
    assert counters(library, "region_0") == before


def test_counters_are_per_region_and_can_be_reset(two_regions: Path) -> None:
    library, executor = standin.load(two_regions)
    for region in ("region_0", "region_1"):
        library.get_function(f"{region}__reset", query_imports=True)()
    run(executor)
    run(executor)
    library.get_function("region_0__reset", query_imports=True)()
    assert counters(library, "region_0") == [0, 0]
    assert counters(library, "region_1") == [2, 2]


def test_the_engine_is_linked_once(sources: Path, tmp_path: Path) -> None:
    standin.register(sources)
    size = [
        standin.build(standin.network(*[2.0] * regions), tmp_path / f"{regions}.so").read_bytes() for regions in (1, 3)
    ]
    text = ERROR_TEXT.encode()
    assert [content.count(text) for content in size] == [1, 1]


def test_constants_are_stored_once(sources: Path, tmp_path: Path) -> None:
    weights = np.random.default_rng(0).standard_normal(2**21, dtype="float32")  # 8 MiB that do not compress
    standin.register(sources, weights.tobytes())
    path = standin.build(standin.network_with_weights(weights), tmp_path / "deploy.so")
    assert weights.nbytes < path.stat().st_size < 1.2 * weights.nbytes
    assert path.read_bytes().count(weights[:1024].tobytes()) == 1
    _, executor = standin.load(path)
    np.testing.assert_array_equal(run(executor), X * 6)


def test_the_same_names_in_two_loaded_libraries(sources: Path, tmp_path: Path) -> None:
    standin.register(sources)
    loaded = [standin.load(standin.build(standin.network(factor), tmp_path / f"{factor}.so")) for factor in (3.0, 7.0)]
    for _ in range(2):
        np.testing.assert_array_equal(run(loaded[0][1]), X * 6)
        np.testing.assert_array_equal(run(loaded[1][1]), X * 14)
    run(loaded[1][1])
    assert counters(loaded[0][0], "region_0") == [2, 2]
    assert counters(loaded[1][0], "region_0") == [3, 3]


FRESH = """
import sys
sys.modules["tvm_sramtile"] = None  # cannot be imported
import numpy as np
import tvm
from tvm.contrib import graph_executor
executors = [graph_executor.GraphModule(tvm.runtime.load_module(path)["default"](tvm.cpu())) for path in sys.argv[1:]]
x, w = np.arange(1, 11, dtype="float32"), np.full(10, 2, dtype="float32")
for executor in executors:
    executor.run(x=x, w=w)
print(*(executor.get_output(0).numpy()[0] for executor in executors))
try:
    executors[0].run(x=np.full(10, 77, dtype="float32"), w=w)
except tvm.TVMError as error:
    print(str(error).strip().splitlines()[-1])
"""


def test_a_fresh_process_without_the_package(sources: Path, tmp_path: Path) -> None:
    standin.register(sources)
    paths = [standin.build(standin.network(factor), tmp_path / f"{factor}.so") for factor in (3.0, 7.0)]
    result = subprocess.run(
        [sys.executable, "-c", FRESH, *map(str, paths)], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert result.stdout.splitlines() == ["6.0 14.0", f"TVMError: sramtile region region_0: {ERROR_TEXT}"]


def test_first_calls_from_many_threads(two_regions: Path) -> None:
    def first_call(_: int) -> NDArray[np.float32]:
        return run(standin.load(two_regions)[1])

    with ThreadPoolExecutor(8) as threads:
        for result in threads.map(first_call, range(32)):
            np.testing.assert_array_equal(result, X * 60)


def test_running_without_export_is_an_error_not_a_crash(sources: Path) -> None:
    standin.register(sources)
    library = tvm.relay.build(standin.network(3.0), standin.host_target())
    with pytest.raises(tvm.TVMError, match="no such function in module: region_0"):
        graph_executor.GraphModule(library["default"](tvm.cpu()))


def test_the_virtual_machine_runs_a_region(sources: Path, tmp_path: Path) -> None:
    standin.register(sources)
    code, library = tvm.relay.vm.compile(standin.network(3.0, 5.0), standin.host_target()).save()
    library.export_library(str(tmp_path / "deploy.so"))
    loaded = tvm.runtime.load_module(str(tmp_path / "deploy.so"))
    machine = tvm.runtime.vm.VirtualMachine(tvm.runtime.vm.Executable.load_exec(code, loaded), tvm.cpu())
    np.testing.assert_array_equal(machine.run(tvm.nd.array(X), tvm.nd.array(W)).numpy(), X * 60)
    with pytest.raises(tvm.TVMError, match="command 12"):
        machine.run(tvm.nd.array(BAD), tvm.nd.array(W))
