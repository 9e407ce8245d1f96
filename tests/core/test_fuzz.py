"""What ``make fuzz`` says."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import fuzz
import pytest


def suite_that_fails(on: set[int]) -> fuzz.Suite:
    """Even seeds are cases; a group fails where it holds all of these."""

    def run(cases: Sequence[int]) -> None:
        if on <= set(cases):
            raise ValueError(f"wrong: {sorted(cases)}")

    return fuzz.Suite(6, 3, lambda seed: None if seed % 2 else seed, run)


def fuzz_with(monkeypatch: pytest.MonkeyPatch, on: set[int], *options: str) -> None:
    monkeypatch.setattr(fuzz, "suite", lambda name: suite_that_fails(on))
    monkeypatch.setattr(sys, "argv", ["fuzz.py", "relax", *options])
    fuzz.main()


def test_seeds_are_told_and_each_case_is_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fuzz_with(monkeypatch, {-1}, "--seed", "1", "--count", "5")
    lines = capsys.readouterr().out.splitlines()
    assert lines[:-1] == [
        "fuzz relax: SEED=1 COUNT=5",
        "  0 run; next: make fuzz SUITES=relax SEED=2 COUNT=3",
        "  3 run; next: make fuzz SUITES=relax SEED=8 COUNT=2",
    ]
    assert lines[-1].startswith("fuzz relax: 5 cases run in three ways, all right, in ")


def test_seeds_are_new_each_time(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    seeds = set()
    for _ in range(3):
        fuzz_with(monkeypatch, {-1})
        seeds.add(capsys.readouterr().out.splitlines()[0])
    assert len(seeds) == 3


@pytest.mark.parametrize(
    ("on", "wanted", "shown"),
    [({10}, "SEED=10 COUNT=1", "wrong: [10]"), ({8, 12}, "SEED=8 COUNT=3", "wrong: [8, 10, 12]")],
)
def test_a_failure_is_told_with_the_command_that_shows_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], on: set[int], wanted: str, shown: str
) -> None:
    with pytest.raises(SystemExit, match=f"^to see it again: make fuzz SUITES=relax {wanted}$"):
        fuzz_with(monkeypatch, on, "--seed", "1")
    assert shown in capsys.readouterr().err


def test_a_region_that_cannot_be_drawn_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(seed: int) -> int:
        raise ValueError(seed)

    monkeypatch.setattr(fuzz, "suite", lambda name: fuzz.Suite(6, 3, draw, lambda cases: None))
    monkeypatch.setattr(sys, "argv", ["fuzz.py", "core", "--seed", "4"])
    with pytest.raises(SystemExit, match=r"^to see it again: make fuzz SUITES=core SEED=4 COUNT=1$"):
        fuzz.main()
