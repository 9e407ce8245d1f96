"""The command line where no network is run: presets, help, and every wrong use as one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

onnx = pytest.importorskip("onnx", reason="the command line reads ONNX networks: install the extra 'cli'")


def sramtile(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tvm_sramtile", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def refused(status: int, text: str, *arguments: str | Path) -> None:
    result = sramtile(*arguments)
    assert (result.stderr, result.stdout, result.returncode) == (f"error: {text}\n", "", status)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    helper, kinds = onnx.helper, onnx.TensorProto
    node = helper.make_node("Relu", ["x"], ["y"])
    value = [helper.make_tensor_value_info(name, kinds.FLOAT, ["n", 4, "h", 8]) for name in "xy"]
    graph = helper.make_graph([node], "relu", value[:1], value[1:])
    path = tmp_path_factory.mktemp("network") / "relu.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def test_specs_lists_every_preset() -> None:
    lines = sramtile("specs").stdout.split("\n")
    assert [line.split()[0] for line in lines if "B a cycle" in line] == ["edge-256k", "mobile-1m", "tiny-64k"]


def test_specs_as_json_can_be_read_back() -> None:
    found = json.loads(sramtile("specs", "--json").stdout)
    assert [spec["name"] for spec in found] == ["edge-256k", "mobile-1m", "tiny-64k"]
    assert found[0]["sram_bytes"] == 262144


def test_help_names_the_commands() -> None:
    text = sramtile("--help").stdout
    assert all(command in text for command in ("specs", "plan", "run", "verify", "explain", "listing", "compile"))


def test_an_unknown_command_is_wrong_use() -> None:
    assert sramtile("shred").returncode == 2


def test_a_missing_model_is_named() -> None:
    text = "model file 'nowhere.onnx' does not exist: give the path of an ONNX file (.onnx)"
    refused(2, text, "plan", "nowhere.onnx")


def test_a_file_that_is_no_network_is_named(tmp_path: Path) -> None:
    path = tmp_path / "noise.onnx"
    path.write_bytes(b"no network")
    result = sramtile("run", path)
    assert result.returncode == 2
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert "noise.onnx" in result.stderr


def test_dynamic_shapes_ask_for_the_option(network: Path) -> None:
    text = (
        "input 'x' of 'relu.onnx' has dynamic dimensions (n, 4, h, 8): give its shape, for example --shape x=1,4,320,8"
    )
    refused(2, text, "plan", network)


def test_an_unknown_spec_names_the_presets(network: Path) -> None:
    text = "spec preset 'edge' is unknown (did you mean 'edge-256k'?): presets are edge-256k, mobile-1m, tiny-64k"
    refused(2, text, "plan", network, "--spec", "edge")


def test_a_spec_that_makes_no_sense_is_refused(network: Path) -> None:
    text = "spec edge-256k: key 'sram_bytes' = 0: input should be greater than 0"
    refused(2, text, "plan", network, "--set", "sram_bytes=0")


def test_a_spec_file_is_named_with_its_key(network: Path, tmp_path: Path) -> None:
    path = tmp_path / "chip.json"
    path.write_text('{"name": "chip", "sram_bytes": 65536, "channel_align": 0}')
    text = f"{path}: key 'channel_align' = 0: input should be greater than 0"
    refused(2, text, "plan", network, "--spec", path)


def test_an_unknown_key_lists_the_known() -> None:
    result = sramtile("plan", "x.onnx", "--set", "colour=red")
    assert result.returncode == 2
    assert result.stderr.startswith("error: option --set: key 'colour' is unknown: keys are name, sram_bytes, ")


@pytest.mark.parametrize("text", ["x", "=1,2", "x=", "x=1,-2", "x=1,two"])
def test_a_shape_that_is_none_shows_the_form(network: Path, text: str) -> None:
    refused(2, f"option --shape {text!r}: must be NAME=EXTENTS, e.g. x=1,3,320,320", "plan", network, "--shape", text)


def test_an_unknown_front_end_names_both(network: Path) -> None:
    refused(2, "option --frontend 'keras': must be relax or relay", "plan", network, "--frontend", "keras")


def test_a_library_without_a_folder_is_refused_before_anything_is_done(network: Path) -> None:
    text = "option --output nowhere/net.so: the folder nowhere does not exist"
    refused(2, text, "compile", network, "-o", "nowhere/net.so")


def test_a_folder_is_no_library(network: Path, tmp_path: Path) -> None:
    refused(
        2, f"option --output {tmp_path}: is a folder, must be the file to write", "compile", network, "-o", tmp_path
    )


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no folder that nobody can write to")
def test_a_folder_that_cannot_be_written_is_named(network: Path) -> None:
    text = "option --output /proc/net.so: cannot write to /proc: No such file or directory"
    refused(2, text, "compile", network, "-o", "/proc/net.so")


def test_a_negative_seed_is_wrong_use(network: Path) -> None:
    result = sramtile("run", network, "--seed", "-1")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
