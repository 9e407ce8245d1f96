"""Three small networks; ``make networks`` runs all."""

from __future__ import annotations

import pytest
from network_runs import SPECS, load_network, run_network

from tvm_sramtile import relax as front


@pytest.mark.parametrize("id", ["mtcnn_pnet", "mtcnn_onet", "ppocr_cls"])
def test_a_network_runs_on_the_accelerator_as_under_tvm(id: str) -> None:
    network = load_network(front, id)
    for spec in SPECS:
        assert run_network(network, spec).problems == []
