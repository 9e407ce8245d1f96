from __future__ import annotations

import sys
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
import relay_graphs as graphs
import relay_standin as standin
import tvm
from core import oracle
from onnx import TensorProto, helper, numpy_helper
from standin_engine import ELEMENTS, write_sources

from tvm_sramtile.errors import DoesNotFit, OptionError, SpecError
from tvm_sramtile.hw.spec import AcceleratorSpec
from tvm_sramtile.options import Options
from tvm_sramtile.relay import tvmc
from tvm_sramtile.relay.module import host_triple


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``y = relu(x * w)``, which the stand-in's partition replaces by its own region."""
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    vector = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [ELEMENTS]) for name in "xy"}
    weight = numpy_helper.from_array(np.full(ELEMENTS, 2, dtype="float32"), "w")
    nodes = [helper.make_node("Mul", ["x", "w"], ["xw"]), helper.make_node("Relu", ["xw"], ["y"])]
    graph = helper.make_graph(nodes, "main", [vector["x"]], [vector["y"]], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


@pytest.fixture
def calls(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Replaces partition and planner; what the partition was called with is collected."""
    standin.register(write_sources(tmp_path_factory.mktemp("engine")))
    seen: list[tuple[Any, ...]] = []

    def partition(module: Any, spec: Any = None, options: Any = None, *, params: Any = None) -> tvm.IRModule:
        seen.append((spec, options, sorted(params)))
        return standin.network(3.0)

    module = ModuleType("partition")
    module.partition_for_sramtile = partition  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tvm_sramtile.relay.partition", module)
    return seen


def test_compile_and_run(model: Path, calls: list[tuple[Any, ...]], tmp_path: Path) -> None:
    package, result = tmp_path / "out.tar", tmp_path / "result.npz"
    target = f"sramtile -spec=tiny-64k -sram_bytes=32768 -double_buffer=false, llvm -mtriple={host_triple()}"
    assert tvmc.main(["compile", str(model), "--target", target, "-o", str(package)]) == 0
    spec = AcceleratorSpec.preset("tiny-64k").replace(sram_bytes=32768)
    assert calls == [(spec, Options(double_buffer=False), [])]  # tvmc has made the weights constants
    with tarfile.open(package) as archive:
        assert {"mod.so", "mod.json", "mod.params"} <= {name.removeprefix("./") for name in archive.getnames()}

    x = np.arange(ELEMENTS, dtype="float32")
    np.savez(tmp_path / "in.npz", x=x, w=np.full(ELEMENTS, 2, dtype="float32"))
    assert tvmc.main(["run", "--inputs", str(tmp_path / "in.npz"), "-o", str(result), str(package)]) == 0
    np.testing.assert_array_equal(np.load(result)["output_0"], x * 6)


def test_a_spec_file_and_a_missing_triple(
    model: Path, calls: list[tuple[Any, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = AcceleratorSpec.preset("edge-256k").replace(name="mine", sram_bytes=77_777)
    file = tmp_path / "my spec, really.json"
    file.write_text(spec.to_json(), encoding="utf-8")
    output = tmp_path / "out.tar"
    assert tvmc.main(["compile", str(model), f'--target=sramtile -spec="{file}", llvm', "-o", str(output)]) == 0
    assert [call[0] for call in calls] == [spec]
    assert f"sramtile: llvm without -mtriple: taking this machine's, {host_triple()}" in capsys.readouterr().err
    assert output.exists()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("sramtile -sram_byte=1, llvm", "target sramtile: option 'sram_byte' is unknown (did you mean 'sram_bytes'?)"),
        ("sramtile -spec=edge, llvm", "spec preset 'edge' is unknown"),
        ("sramtile -spec=./none.json, llvm", "spec file ./none.json: cannot be read: No such file or directory"),
        ("sramtile -sram_bytes=0, llvm", "spec edge-256k: key 'sram_bytes' = 0: input should be greater than 0"),
        ("sramtile -strategy=best, llvm", "option strategy = 'best': must be one of"),
        ("sramtile edge-256k, llvm", "target 'sramtile edge-256k': 'edge-256k' is not of the form -option=value"),
        ("sramtile -lines=1 -lines=2, llvm", "target 'sramtile -lines=1 -lines=2': option 'lines' is given twice"),
        ('sramtile -spec="a, llvm', "No closing quotation"),
        ("sramtile", "The last target needs to be a TVM target"),
    ],
)
def test_a_wrong_target_is_one_line(
    target: str, message: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out.tar"
    assert tvmc.main(["compile", str(model), "--target", target, "-o", str(output)]) == 4
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("Error: ")
    assert message in error
    assert not output.exists()


def test_a_refusal_of_the_compiler_is_an_error_of_tvmc(
    model: Path,
    calls: list[tuple[Any, ...]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise DoesNotFit("nn.conv2d: 10 bytes short")

    monkeypatch.setattr(sys.modules["tvm_sramtile.relay.partition"], "partition_for_sramtile", refuse)
    output = tmp_path / "out.tar"
    assert tvmc.main(["compile", str(model), "--target", "sramtile, llvm", "-o", str(output)]) == 4
    assert capsys.readouterr().err.endswith("Error: nn.conv2d: 10 bytes short\n")
    assert not output.exists()
    assert calls == []


@pytest.mark.parametrize(
    ("target", "rewritten", "options"),
    [
        ("llvm -mtriple=a-b -mattr=+x,+y", "llvm -mtriple=a-b -mattr=+x,+y", {}),
        ("sramtile -spec=a/b.json, cmsis-nn -x=1, c", "sramtile, cmsis-nn -x=1, c", {"spec": "a/b.json"}),
        (
            "sramtile -unit_kernels=[[1,1],[3,3]] -strategy='seed', c",
            "sramtile, c",
            {"unit_kernels": "[[1,1],[3,3]]", "strategy": "seed"},
        ),
    ],
)
def test_only_the_section_of_sramtile_is_rewritten(target: str, rewritten: str, options: dict[str, str]) -> None:
    assert tvmc.split_arguments(["compile", "--target", target, "m"]) == (
        ["compile", "--target", rewritten, "m"],
        options,
    )


def test_settings_have_the_types_of_spec_and_options() -> None:
    settings = tvmc.read_settings(
        {"unit_kernels": "[[1,1],[5,5]]", "max_unrolled_chunks": "null", "on_refusal": "error"}
    )
    assert settings.spec.unit_kernels == ((1, 1), (5, 5))
    assert settings.options == Options(on_refusal="error")


def test_use_from_python(model: Path, calls: list[tuple[Any, ...]], tmp_path: Path) -> None:
    tvmc.register({"spec": "tiny-64k"})
    driver = tvm.driver.tvmc
    target = f"sramtile -sram_bytes=5000, llvm -mtriple={host_triple()}"
    driver.compile(driver.load(str(model)), target, package_path=str(tmp_path / "out.tar"))
    assert calls[0][0] == AcceleratorSpec.preset("tiny-64k").replace(sram_bytes=5000)
    with pytest.raises(driver.TVMCException, match="option 'linez' is unknown"):
        driver.compile(driver.load(str(model)), f"sramtile -linez=2, llvm -mtriple={host_triple()}")


def test_defaults_are_checked_when_they_are_registered() -> None:
    with pytest.raises(OptionError, match="'speck' is unknown"):
        tvmc.register({"speck": "x"})
    with pytest.raises(SpecError, match="preset 'x' is unknown"):
        tvmc.register({"spec": "x"})


def test_a_convolution_through_compile_and_run(tmp_path: Path) -> None:
    """Nothing stands in for anything here."""
    x, w, b = graphs.random(1, 1, 3, 20, 16), graphs.random(2, 8, 3, 3, 3), graphs.random(3, 8)
    values = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 3, 20, 16]), ("y", [1, 8, 20, 16]))
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    weights = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")]
    graph = helper.make_graph(nodes, "main", [values["x"]], [values["y"]], weights)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "conv.onnx"
    )
    np.savez(tmp_path / "in.npz", x=x)
    package, result = str(tmp_path / "out.tar"), str(tmp_path / "result.npz")
    target = f"sramtile -spec=tiny-64k -sram_bytes=32768, llvm -mtriple={host_triple()}"
    assert tvmc.main(["compile", str(tmp_path / "conv.onnx"), "--target", target, "-o", package]) == 0
    assert tvmc.main(["run", "--inputs", str(tmp_path / "in.npz"), "-o", result, package]) == 0
    expected = np.maximum(oracle.conv2d(x, w, b, padding=(1, 1, 1, 1)), 0)
    graphs.assert_close((np.load(result)["output_0"],), (expected.astype(np.float32),), 1e-4)
