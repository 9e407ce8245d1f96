"""A small network and the command line, for the suites that have a TVM."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

SPEC = ("--spec", "tiny-64k")


def write_network(path: Path) -> Path:
    """Two convolutions (the first of them too large for ``tiny-64k``), a bias, a relu, a softmax on the host."""
    generator = np.random.default_rng(7)
    arrays = {
        "w0": generator.standard_normal((16, 3, 3, 3)),
        "b0": generator.standard_normal(16),
        "w1": generator.standard_normal((4, 16, 1, 1)),
    }
    constants = [numpy_helper.from_array(value.astype("float32"), name) for name, value in arrays.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["y0"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["y0"], ["y1"]),
        helper.make_node("Conv", ["y1", "w1"], ["y2"]),
        helper.make_node("Softmax", ["y2"], ["out"], axis=1),
    ]
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, channels, 48, 32])
        for name, channels in (("x", 3), ("out", 4))
    ]
    graph = helper.make_graph(nodes, "small", ends[:1], ends[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def sramtile(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command line in this environment."""
    command = [sys.executable, "-m", "tvm_sramtile", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def sramtile_json(*arguments: str | Path) -> Any:
    """Its JSON; the command must succeed."""
    result = sramtile(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def check_verification(found: Any) -> None:
    """What ``verify`` must say of the network."""
    assert found["ok"] is True
    assert [output["name"] for output in found["outputs"]] == ["out"]
    assert all(output["ok"] for output in found["outputs"])
    first, second = found["regions"]
    assert first["executions"] == 3
    for region in (first, second):
        assert region["ok"]
        assert region["max_abs_diff"] <= region["tolerance"]
        for figure in ("dram_bytes", "sram_peak_bytes", "cycles"):
            assert region[figure]["predicted"] == region[figure]["measured"] > 0
    (step,) = first["steps"]
    assert step["chunks"] == len(step["marks"]) > 1
    rows = [row for mark in step["marks"] for row in range(*mark["out_rows"])]
    assert rows == list(range(48))
    assert found["macs"] == {"accelerator": 48 * 32 * (16 * 3 * 9 + 4 * 16), "host": 0}
    assert [op["op"] for op in found["host_ops"]] == ["nn.softmax"]


def check_listing(network: Path, frontend: tuple[str, ...]) -> None:
    """The listing has every command of every region, in text and in JSON, and names the steps."""
    result = sramtile("listing", network, *SPEC, *frontend)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    found = sramtile_json("listing", network, *SPEC, *frontend)["regions"]
    verified = sramtile_json("plan", network, *SPEC, *frontend)["regions"]
    assert [line for line in lines if line.startswith("; region ")] == [
        f"; region {region['name']}" for region in found
    ]
    assert [region["name"] for region in found] == [region["name"] for region in verified]
    assert sum(line.startswith("; step 0: ") for line in lines) == len(found)
    assert any(line.endswith(", conv2d 3x3 + bias + clip") for line in lines)
    commands = [command for region in found for part in ("prologue", "body") for command in region[part]]
    listed = [line.split() for line in lines if line[:6].strip().isdigit()]
    assert [command["opcode"] for command in commands] == [words[1] for words in listed]
    for command, words in zip(commands, listed, strict=True):
        assert words[2] == f"step={command['step']}"
        assert not command["opcode"].startswith("LOAD") or f"sram={command['sram']}" in words
    limits = {command["clip_high"] for command in commands if command["opcode"] == "CONV"}
    assert "inf" in limits  # the relu's; JSON itself has no infinity
    chunks = verified[0]["steps"][0]["chunks"]
    assert sum(command["opcode"] == "CONV" for command in found[0]["body"]) >= chunks > 1
