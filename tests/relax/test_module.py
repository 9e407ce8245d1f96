from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from numpy.typing import NDArray
from standin_engine import COUNTERS, ELEMENTS, ERROR_TEXT, program, write_sources
from tvm import relax
from tvm.script import relax as R  # noqa: N812 (what everyone calls it)

from tvm_sramtile.counting import counters_name, reset_name
from tvm_sramtile.engine import native, stubs
from tvm_sramtile.relax.module import RegionEntry, TensorType, runtime_modules
from tvm_sramtile.relax.pipeline import register

VECTOR = TensorType((ELEMENTS,), "float32")
X = np.arange(1, ELEMENTS + 1, dtype="float32")
BAD = np.full(ELEMENTS, 77, dtype="float32")


@pytest.fixture(scope="module", autouse=True)
def back_end(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """In the place of the real back end, one whose regions have their factor as an attribute."""
    sources = write_sources(tmp_path_factory.mktemp("engine"))

    def codegen(functions: Any, options: Any, constants: Any) -> list[Any]:
        directory = tmp_path_factory.mktemp("objects")
        names = [str(function.attrs["global_symbol"]) for function in functions]
        outputs = [int(function.attrs["outputs"]) for function in functions]
        programs = [program(float(function.attrs["factor"]), 1) for function in functions]
        regions = [
            stubs.RegionProgram(name, code, 1 + count, ("step",))
            for name, code, count in zip(names, programs, outputs, strict=True)
        ]
        objects = stubs.region_objects(regions, directory, sources)
        entries = [
            RegionEntry(name, (VECTOR,), (VECTOR,) * count, 3, COUNTERS, region)
            for name, count, region in zip(names, outputs, objects, strict=True)
        ]
        modules = runtime_modules(entries, native.engine_object(sources))
        objects[0].path.unlink()
        return modules

    name = "relax.ext.sramtile"
    before = tvm_ffi.get_global_func(name, allow_missing=True)
    tvm_ffi.register_global_func(name, codegen, override=True)
    register()
    yield
    if before is None:
        tvm_ffi.registry.remove_global_func(name)
    else:
        tvm_ffi.register_global_func(name, before, override=True)


def region(builder: relax.BlockBuilder, name: str, factor: float, outputs: int, weights: NDArray[Any]) -> None:
    """A region function; its body, TVM's version, also holds a constant that adds nothing."""
    x = relax.Var("x", R.Tensor(VECTOR.shape, VECTOR.dtype))
    attributes = {"Codegen": "sramtile", "global_symbol": name, "factor": str(factor), "outputs": str(outputs)}
    with builder.function(name, [x], attributes):
        with builder.dataflow():
            nothing = relax.op.multiply(relax.op.sum(relax.const(weights)), relax.const(np.float32(0)))
            values = [
                relax.op.add(relax.op.multiply(x, relax.const(np.float32(factor * (out + 1)))), nothing)
                for out in range(outputs)
            ]
            result = builder.emit_output(values[0] if outputs == 1 else relax.Tuple(values))
        builder.emit_func_output(result)


def network(*factors: float, outputs: int = 1, weights: NDArray[Any] | None = None) -> tvm.IRModule:
    """A main that calls one region a factor, one after the other."""
    builder = relax.BlockBuilder()
    for index, factor in enumerate(factors):
        region(builder, f"region_{index}", factor, outputs, np.ones(3, "float32") if weights is None else weights)
    names = {var.name_hint: var for var in builder.get().get_global_vars()}
    x = relax.Var("x", R.Tensor(VECTOR.shape, VECTOR.dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            value: Any = x
            for index in range(len(factors)):
                value = builder.emit(relax.Call(names[f"region_{index}"], [value]))
            result = builder.emit_output(relax.op.nn.relu(value) if outputs == 1 else value)
        builder.emit_func_output(result)
    return builder.get()


def compiled(module: tvm.IRModule) -> Any:
    return tvm.compile(module, "llvm", relax_pipeline="sramtile")


def tensor(values: NDArray[Any]) -> Any:
    return tvm.runtime.tensor(values)


def run(machine: Any, x: NDArray[np.float32] = X) -> NDArray[np.float32]:
    return machine["main"](tensor(x)).numpy()


def machine_of(executable: Any) -> Any:
    return relax.VirtualMachine(executable, tvm.cpu())


def counters(module: Any, name: str) -> list[int]:
    out = tensor(np.full(COUNTERS, -1, dtype="int64"))
    module.get_function(counters_name(name), query_imports=True)(out)
    return out.numpy().tolist()


@pytest.fixture(scope="module")
def two_regions(back_end: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library") / "deploy.so"
    compiled(network(3.0, 5.0)).export_library(path)
    return path


def load(path: Path) -> Any:
    return tvm.runtime.load_module(str(path))


def test_two_regions_and_their_counters_in_the_executable() -> None:
    executable = compiled(network(3.0, 5.0))
    machine = machine_of(executable)
    for _ in range(2):
        np.testing.assert_array_equal(run(machine), X * 15)
    # All three ways to reach a region's own functions.
    out = tensor(np.zeros(COUNTERS, dtype="int64"))
    executable[counters_name("region_0")](out)
    assert out.numpy().tolist() == [2, 6]
    executable[reset_name("region_0")]()
    assert counters(executable.jit(), "region_0") == [0, 0]
    assert counters(machine.module, "region_1") == [2, 6]


def test_one_region_by_itself() -> None:
    out = tensor(np.zeros(ELEMENTS, dtype="float32"))
    compiled(network(3.0, 5.0))["region_1"](tensor(X), out)
    np.testing.assert_array_equal(out.numpy(), X * 5)


def test_several_outputs() -> None:
    outputs = machine_of(compiled(network(3.0, outputs=2)))["main"](tensor(X))
    np.testing.assert_array_equal(outputs[0].numpy(), X * 3)
    np.testing.assert_array_equal(outputs[1].numpy(), X * 6)


@pytest.mark.parametrize("exported", [False, True])
def test_an_error_in_the_engine_reaches_the_caller_with_its_text(two_regions: Path, exported: bool) -> None:
    machine = machine_of(load(two_regions) if exported else compiled(network(3.0, 5.0)))
    with pytest.raises(RuntimeError) as caught:
        run(machine, BAD)
    assert str(caught.value) == f"sramtile region region_0: {ERROR_TEXT}"
    np.testing.assert_array_equal(run(machine), X * 15)


def test_an_error_in_a_later_region_names_that_region(two_regions: Path) -> None:
    with pytest.raises(RuntimeError) as caught:
        run(machine_of(load(two_regions)), np.full(ELEMENTS, 77 / 3, dtype="float32"))
    assert str(caught.value) == f"sramtile region region_1: {ERROR_TEXT}"


def test_wrong_tensors_are_refused_before_the_engine_runs(two_regions: Path) -> None:
    library = load(two_regions)
    entry = library.get_function("region_0", query_imports=True)
    right = tensor(X)
    library.get_function(reset_name("region_0"), query_imports=True)()
    with pytest.raises(ValueError, match="input0"):
        entry(tensor(np.ones(ELEMENTS - 1, dtype="float32")), right)
    with pytest.raises(TypeError, match="expected float32"):
        entry(tensor(np.ones(ELEMENTS, dtype="float64")), right)
    assert counters(library, "region_0") == [0, 0]


def test_a_tensor_that_starts_inside_its_memory(two_regions: Path) -> None:
    memory = tensor(np.arange(2 * ELEMENTS + 12, dtype="float32"))
    view = memory._create_view([ELEMENTS], dtype="float32", relative_byte_offset=64)
    out = tensor(np.zeros(ELEMENTS, dtype="float32"))
    load(two_regions).get_function("region_0", query_imports=True)(view, out)
    np.testing.assert_array_equal(out.numpy(), np.arange(16, 16 + ELEMENTS) * 3)


def test_the_same_names_in_two_modules() -> None:
    executables = [compiled(network(factor)) for factor in (3.0, 7.0)]
    machines = [machine_of(executable) for executable in executables]
    for _ in range(2):
        np.testing.assert_array_equal(run(machines[0]), X * 3)
        np.testing.assert_array_equal(run(machines[1]), X * 7)
    run(machines[1])
    assert counters(machines[0].module, "region_0") == [2, 6]
    assert counters(machines[1].module, "region_0") == [3, 9]


# The package is put out of reach, as if it were not installed.
FRESH = """
import sys
sys.modules["tvm_sramtile"] = None
import numpy as np
import tvm
from tvm import relax
machines = [relax.VirtualMachine(tvm.runtime.load_module(path), tvm.cpu()) for path in sys.argv[1:]]
x = tvm.runtime.tensor(np.arange(1, 11, dtype="float32"))
print(*(machine["main"](x).numpy()[0] for machine in machines))
try:
    machines[0]["main"](tvm.runtime.tensor(np.full(10, 77, dtype="float32")))
except RuntimeError as error:
    print(error)
out = tvm.runtime.tensor(np.zeros(2, dtype="int64"))
machines[1].module.get_function("region_0__counters", query_imports=True)(out)
print(*out.numpy())
"""


def test_a_fresh_process_without_the_package(two_regions: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.so"
    compiled(network(7.0)).export_library(other)
    result = subprocess.run(
        [sys.executable, "-c", FRESH, two_regions, other], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert result.stdout.splitlines() == ["15.0 7.0", f"sramtile region region_0: {ERROR_TEXT}", "1 3"]


def test_only_tvms_own_functions_are_visible_in_the_library(two_regions: Path) -> None:
    text = subprocess.run(["readelf", "--dyn-syms", "-W", two_regions], check=True, capture_output=True, text=True)
    # Number, value, size, type, binding, visibility, section, name. The linker lists hidden ends of sections, too.
    rows = [line.split() for line in text.stdout.splitlines()]
    seen = {row[7] for row in rows if len(row) == 8 and row[5] != "HIDDEN" and row[6] != "UND"}
    ours = {name for name in seen if "sramtile" in name or "region_" in name}
    suffixes = ("", "__counters", "__reset", "__mode")
    expected = {f"__tvm_ffi_region_{index}{suffix}" for index in range(2) for suffix in suffixes}
    assert ours == {*expected, "__tvm_ffi_sramtile__regions"}


def test_first_calls_from_many_threads(two_regions: Path) -> None:
    library = load(two_regions)
    shared = machine_of(library)

    def first_call(index: int) -> NDArray[np.float32]:
        return run(shared if index % 2 else machine_of(library))

    with ThreadPoolExecutor(8) as threads:
        for result in threads.map(first_call, range(32)):
            np.testing.assert_array_equal(result, X * 15)


def test_bodies_constants_are_not_stored(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).standard_normal(2**18, dtype="float32")  # 1 MiB
    path = tmp_path / "deploy.so"
    compiled(network(3.0, weights=weights)).export_library(path)
    assert path.stat().st_size < weights.nbytes // 2
    np.testing.assert_array_equal(run(machine_of(load(path))), X * 3)


def test_a_region_that_nothing_calls_is_not_run_on_the_host() -> None:
    module = network(3.0, 5.0)
    regions = {var: function for var, function in module.functions.items() if var.name_hint != "main"}
    executable = compiled(tvm.IRModule(regions))
    with pytest.raises(AttributeError):
        machine_of(executable)["region_1"](tensor(X))
    out = tensor(np.zeros(ELEMENTS, dtype="float32"))
    executable["region_1"](tensor(X), out)
    np.testing.assert_array_equal(out.numpy(), X * 5)


def test_other_constants_and_attributes_of_the_module_stay() -> None:
    module = network(3.0).with_attr("kept", "yes")
    before = relax.get_pipeline("sramtile").passes
    with tvm.target.Target("llvm"):
        after = tvm.transform.Sequential(list(before)[:2])(module)
    assert after.attrs["kept"] == "yes"
    assert "const_name_to_constant" not in after.attrs
    assert [var.name_hint for var in after.get_global_vars()] == ["main"]


def test_a_module_without_regions_is_compiled_as_ever() -> None:
    module = network(3.0, 5.0)
    host = tvm.IRModule(
        {
            var: function.without_attr("Codegen") if "Codegen" in (function.attrs or {}) else function
            for var, function in module.functions.items()
        }
    )
    machine = machine_of(compiled(host))
    np.testing.assert_allclose(run(machine), X * 15)
    np.testing.assert_allclose(machine["region_1"](tensor(X)).numpy(), X * 5)


def test_tensors_and_object_must_agree(tmp_path: Path) -> None:
    region = stubs.RegionObject("region", tmp_path / "region.o", 3, "region")
    with pytest.raises(ValueError, match="region 'region' has 2 tensors, its object 3"):
        RegionEntry("region", (VECTOR,), (VECTOR,), 1, COUNTERS, region)
