"""All float32 networks of networks/networks.json in Relax, on two accelerators."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import pytest
from network_runs import SPECS, Network, Row, float_networks, load_network, run_network, table

from tvm_sramtile import relax as front


@lru_cache(maxsize=1)  # tests come network by network, and networks are large
def network(id: str) -> Network:
    return load_network(front, id)


@pytest.fixture(scope="module")
def rows(tables: list[str]) -> Iterator[list[Row]]:
    """What came of the networks, for the table at the end."""
    found: list[Row] = []
    yield found
    tables += ["", "Networks in Relax", *table(found)]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("id", float_networks())
def test_a_network_runs_on_the_accelerator_as_under_tvm(id: str, spec: str, rows: list[Row]) -> None:
    row = run_network(network(id), spec)
    rows.append(row)
    assert row.problems == []
