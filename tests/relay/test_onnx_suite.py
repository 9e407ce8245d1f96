"""A sample of the ONNX package's own cases; ``make networks`` runs all."""

from __future__ import annotations

import pytest
from onnx_suite.cases import FAMILIES, cases
from onnx_suite.known import RELAY, surprises
from onnx_suite.run import run_cases

from tvm_sramtile import relay as front

EVERY = 6
WITHOUT_FAULT = [case for case in cases() if case.name not in RELAY.faults]


@pytest.mark.parametrize("family", FAMILIES)
def test_cases_that_tvm_gets_right_are_right_on_the_accelerator(family: str) -> None:
    sample = [case for case in WITHOUT_FAULT if case.family == family][::EVERY]
    assert sample
    assert surprises(run_cases(front, sample), RELAY) == []
