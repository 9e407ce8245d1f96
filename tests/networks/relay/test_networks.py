"""Some networks in Relay, where TVM compiles slowly, on two accelerators."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import pytest
from network_runs import SPECS, Network, Row, load_network, run_network, table

from tvm_sramtile import relay as front

IDS = ("mtcnn_pnet", "mtcnn_onet", "centerface")


@lru_cache(maxsize=1)  # tests come network by network, and networks are large
def network(id: str) -> Network:
    return load_network(front, id)


@pytest.fixture(scope="module")
def rows(tables: list[str]) -> Iterator[list[Row]]:
    """What came of the networks, for the table at the end."""
    found: list[Row] = []
    yield found
    tables += ["", "Networks in Relay", *table(found)]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("id", IDS)
def test_a_network_runs_on_the_accelerator_as_under_tvm(id: str, spec: str, rows: list[Row]) -> None:
    row = run_network(network(id), spec)
    rows.append(row)
    assert row.problems == []
