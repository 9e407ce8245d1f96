"""The list itself: its graphs are well-formed, and its expectations agree with the planner."""

from __future__ import annotations

import numpy as np
import pytest
from conformance.cases import CASES
from conformance.grammar import CUT, Case


def test_names_differ() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_is_complete(case: Case) -> None:
    assert all(np.isfinite(value).all() for value in case.expected())
    assert len(case.chunks) == sum(node.op in CUT for node in case.all_nodes)
    assert bool(case.reason) == (0 in case.chunks)
