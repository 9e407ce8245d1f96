"""The command line on a small network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cli_network import SPEC, check_listing, check_verification, sramtile, sramtile_json, write_network

FRONTEND = ("--frontend", "relax")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_network(tmp_path_factory.mktemp("network") / "small.onnx")


def test_verify_runs_each_region_three_ways(network: Path) -> None:
    check_verification(sramtile_json("verify", network, *SPEC, *FRONTEND))


def test_run_prints_a_line_a_step(network: Path) -> None:
    result = sramtile("run", network, *SPEC, *FRONTEND)
    assert result.returncode == 0, result.stderr
    assert "conv2d 3x3 + bias + clip" in result.stdout
    assert "output out: ok" in result.stdout
    assert "2 of 2 ok" in result.stdout


def test_plan_predicts_what_verify_measures(network: Path) -> None:
    planned = sramtile_json("plan", network, *SPEC, *FRONTEND)
    verified = sramtile_json("run", network, *SPEC, *FRONTEND)
    for plan, run in zip(planned["regions"], verified["regions"], strict=True):
        for figure in ("dram_bytes", "sram_peak_bytes", "cycles"):
            assert plan[figure] == run[figure]["measured"]


def test_inputs_come_from_a_file(network: Path, tmp_path: Path) -> None:
    path = tmp_path / "inputs.npz"
    np.savez(path, x=np.zeros((1, 3, 48, 32), "float32"))
    assert sramtile_json("run", network, *SPEC, *FRONTEND, "--input", path)["ok"]


def test_wrong_inputs_are_refused(network: Path, tmp_path: Path) -> None:
    path = tmp_path / "inputs.npz"
    np.savez(path, x=np.zeros((1, 3, 48, 31), "float32"))
    result = sramtile("run", network, *SPEC, *FRONTEND, "--input", path)
    assert result.returncode == 2
    assert result.stderr.startswith("error: array 'x' in 'inputs.npz' is ")
    assert result.stderr.count("\n") == 1


def test_a_sweep_says_what_plans_for_each_size_say(network: Path) -> None:
    points = sramtile_json("plan", network, *FRONTEND, "--sweep", "sram_bytes=16K:64K:x2")
    assert [point["sram_bytes"] for point in points] == [16384, 32768, 65536]
    assert [point["refused"] for point in points] == [[], [], []]
    for point in points:
        planned = sramtile_json("plan", network, *FRONTEND, "--set", f"sram_bytes={point['sram_bytes']}")
        for figure in ("dram_bytes", "bound_bytes", "cycles"):
            assert point[figure] == planned[figure]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("sram_bytes=64K:1M", "must be KEY=START:STOP:xFACTOR or KEY=START:STOP:+STEP, e.g. sram_bytes=64K:1M:x2"),
        ("sram_bytes=64:128:x1", "x1 makes no progress: must be KEY=START:STOP:xFACTOR"),
        ("sram_bytes=2K:1K:x2", "must have 1 to 1000 values from START to STOP"),
        ("name=1:2:x2", "key 'name' is no number of edge-256k: keys are sram_bytes, "),
    ],
)
def test_a_wrong_sweep_is_refused(network: Path, text: str, fault: str) -> None:
    result = sramtile("plan", network, *FRONTEND, "--sweep", text)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: option --sweep")
    assert fault in result.stderr


def test_explain_says_why(network: Path) -> None:
    found = sramtile_json("explain", network, *SPEC, *FRONTEND)
    assert " B left for it" in found["steps"][0]["reason"]
    first = found["steps"][0]
    assert first["bound_bytes"] <= first["chosen"]["dram_bytes"]
    assert first["runner_up"]["why_not"].startswith(first["runner_up"]["what"])
    assert first["fullest"]["memory"] == "pool"
    assert [(op["op"], op["reason"]) for op in found["host_ops"]] == [
        ("nn.softmax", "no unit of the accelerator computes it")
    ]


def test_listing_shows_each_regions_program(network: Path) -> None:
    check_listing(network, FRONTEND)


def test_compile_writes_one_library(network: Path, tmp_path: Path) -> None:
    path = tmp_path / "small.so"
    result = sramtile("compile", network, "-o", path, *SPEC, *FRONTEND)
    assert result.returncode == 0, result.stderr
    assert sorted(tmp_path.iterdir()) == [path]
    assert path.read_bytes()[:4] == b"\x7fELF"


def test_a_network_that_does_not_fit_at_all_could_not_be_done(network: Path) -> None:
    result = sramtile("run", network, *FRONTEND, "--set", "sram_bytes=64")
    assert result.returncode == 1
    assert result.stderr.startswith("error: no operator of the network goes to edge-256k: ")
    assert result.stderr.count("\n") == 1
