"""The ONNX package's own cases: each one that TVM gets right gives the same on an accelerator that must cut it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from onnx_suite.cases import FAMILIES, cases
from onnx_suite.known import RELAY, surprises
from onnx_suite.run import Outcome, run_cases, table

from tvm_sramtile import relay as front


@pytest.fixture(scope="module")
def outcomes(tables: list[str]) -> Iterator[list[Outcome]]:
    """What became of the cases, for the table at the end."""
    found: list[Outcome] = []
    yield found
    tables += ["", "Cases of the ONNX package in Relay", *table(found)]


@pytest.mark.parametrize("family", FAMILIES)
def test_cases_that_tvm_gets_right_are_right_on_the_accelerator(family: str, outcomes: list[Outcome]) -> None:
    found = run_cases(front, [case for case in cases() if case.family == family])
    outcomes += found
    assert found
    assert surprises(found, RELAY) == []
