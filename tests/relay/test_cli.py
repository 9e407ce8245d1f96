"""The command line on a small network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cli_network import SPEC, check_listing, check_verification, sramtile, sramtile_json, write_network

FRONTEND = ("--frontend", "relay")


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


def test_explain_says_why(network: Path) -> None:
    found = sramtile_json("explain", network, *SPEC, *FRONTEND)
    assert " B left for it" in found["steps"][0]["reason"]
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
