"""The bounds of DRAM traffic: worked out by hand, and below every plan."""

from __future__ import annotations

import math

import pytest
from core.whole_chips import whole_case
from core.whole_layers import LAYERS, LIMITS, layer

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose, Elementwise, Resize2d
from tvm_sramtile.plan import plan_region
from tvm_sramtile.plan.bounds import bound_bytes, communication_bytes, compulsory_bytes, positions_read, unmoved_bytes
from tvm_sramtile.plan.plan import ALONE


@pytest.mark.parametrize("name", LAYERS)
def test_compulsory_traffic_of_six_layers(name: str) -> None:
    assert compulsory_bytes(layer(name)) == LIMITS[name]


@pytest.mark.parametrize(
    ("name", "kibibytes", "megabytes"),
    [("b", 128, 3.14), ("b", 256, 1.88), ("a", 128, 3.14), ("e", 1024, 0.0)],
)
def test_the_bound_for_a_given_sram(name: str, kibibytes: int, megabytes: float) -> None:
    step, sram = layer(name), kibibytes * 1024
    op = step.op
    exact = 2 * op.macs / math.sqrt(math.prod(op.kernel) / math.prod(op.strides) * sram) - 2 * sram  # type: ignore[union-attr]
    found = communication_bytes(step, sram)
    assert found == pytest.approx(max(0, exact), rel=1e-5)
    assert found / 1e6 == pytest.approx(megabytes, abs=0.005)


def test_rows_that_nothing_reads_do_not_count() -> None:
    assert positions_read(Conv2d(1, 10, 9, 1, (1, 2), (3, 4)), 0) == 4
    assert positions_read(Conv2d(1, 10, 9, 1, (1, 2), (3, 4)), 1) == 4
    assert positions_read(Conv2d(1, 5, 5, 1, (2, 2), dilation=(4, 3), padding=(1, 0, 0, 0)), 0) == 3
    assert positions_read(Conv2dTranspose(1, 4, 4, 1, (2, 2), (3, 3), padding=(3, 0, 0, 0)), 0) == 3
    assert positions_read(Elementwise(1, 7, 8, "add", "value", 1.0), 1) == 8
    assert positions_read(Resize2d(1, 8, 8, 4, 4, "nearest_neighbor", "asymmetric"), 0) == 4


def test_no_plan_moves_less() -> None:
    for seed in range(150):
        case, spec, options = whole_case(seed)
        for step, plan in zip(case.region.steps, plan_region(case.region, spec, options).steps, strict=True):
            assert compulsory_bytes(step) - unmoved_bytes(step, plan.around) <= plan.traffic.total_bytes
            assert bound_bytes(step, spec, plan.around) <= plan.traffic.total_bytes
            if plan.around == ALONE:
                assert compulsory_bytes(step) <= plan.traffic.total_bytes
                assert communication_bytes(step, sum(spec.memories.values())) <= plan.traffic.total_bytes
