"""Random regions of every operator, cut along every axis: three executions agree, and the figures hold.

Relay compiles slowly, and a function of many chunks more than in proportion: few regions are joined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import count, islice
from typing import Any

import numpy as np
import pytest
import relay_graphs as graphs
from relay_three_ways import check_all, check_read, drawn, typed
from three_ways import KINDS_OF_CUT, KINDS_OF_OPERATOR, Drawn, kinds
from tvm import relay

from tvm_sramtile import relay as front
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.relay.emit import region_function

GROUPS, GROUP = 8, 8
LEAST_REGIONS = 60  # must be run in all three ways
MOST_PIECES = 6  # TVM compiles one in some 100 ms
LAYOUTS = ("transpose", "squeeze", "expand_dims")


@cache
def regions() -> tuple[Drawn, ...]:
    found = (one for seed in count() if (one := drawn(seed, MOST_PIECES)) is not None)
    return tuple(islice(found, GROUPS * GROUP))


@pytest.mark.parametrize("index", range(GROUPS))
def test_three_executions_agree_and_measure_what_was_predicted(index: int) -> None:
    group = regions()[index::GROUPS]
    assert len(group) * GROUPS >= LEAST_REGIONS
    check_all(group)


@pytest.mark.parametrize("index", range(8))
def test_a_module_with_the_same_operators_is_read_and_verified(index: int) -> None:
    check_read(regions()[index])


def test_every_kind_of_cut_is_among_them() -> None:
    seen = kinds(regions())
    assert min(seen[kind] for kind in (*KINDS_OF_CUT, *KINDS_OF_OPERATOR)) >= 3, seen


def test_what_is_concatenated_is_finished() -> None:
    """Claim 10: below a concatenation are chunks, never a sum of concatenations; none is of one part, none is empty."""
    concatenations = 0
    for one in regions():
        writers = Counter(step.output.name for step in one.attributes.region.steps)
        body = typed(one.functions[True]).body
        for value in below(body):
            if graphs.is_call(value, "concatenate"):
                concatenations += 1
                assert len(value.args[0].fields) > 1
            elif graphs.is_call(value, "strided_slice"):
                assert all(int(extent) > 0 for extent in value.checked_type.shape)
        if len(one.attributes.region.steps) == 1 and max(writers.values()) == 1:
            check_concatenations(body)
    assert concatenations > 50


def below(body: Any) -> Iterator[Any]:
    """The calls that a value is made of."""
    found: list[Any] = []
    relay.analysis.post_order_visit(body, found.append)
    return (node for node in found if isinstance(node, relay.Call))


def check_concatenations(value: Any) -> None:
    """From the result down: changes of layout, then concatenations of concatenations, then what has none."""
    while any(graphs.is_call(value, name) for name in LAYOUTS):
        value = value.args[0]
    if graphs.is_call(value, "concatenate"):
        for part in value.args[0].fields:
            check_concatenations(part)
        return
    assert not any(graphs.is_call(call, "concatenate") for call in below(value))


SMALL = AcceleratorSpec(name="small", sram_bytes=2200, channel_align=4, unit_kernels=((2, 2),), mac_array=(4, 4))


def test_a_sum_of_sub_kernels_has_a_bias_and_limits_once() -> None:
    x = graphs.tensor("x", 1, 4, 9, 12)
    value = relay.nn.conv2d(x, graphs.constant(1, 8, 4, 5, 4), padding=(2, 2))
    mod = graphs.module([x], relay.tanh(relay.nn.relu(relay.nn.bias_add(value, graphs.constant(2, 8)))))
    partitioned = front.partition_for_sramtile(mod, SMALL)
    (region,) = front.regions(partitioned)
    plan = region.plan.steps[0]
    literals = {digest: relay.const(array) for digest, array in front.constants(partitioned).items()}
    ops = Counter(call.op.name for call in below(region_function(region, literals, chunked=True).body))
    chunks = plan.chunk_count
    assert chunks > 1
    assert len(plan.passes) == 6
    assert chunks < ops["nn.conv2d"] <= 6 * chunks
    assert ops["add"] == ops["nn.conv2d"] - chunks
    assert ops["nn.bias_add"] == ops["nn.relu"] == ops["tanh"] == chunks
    inputs = {"x": graphs.random(0, 1, 4, 9, 12)}
    graphs.assert_close(front.run_accelerator(partitioned, inputs).outputs, front.run_host(mod, inputs), 1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_padded_taps_do_not_read(bad: float) -> None:
    """What lies under the taps that pad a kernel up to a unit is not multiplied by their zeros."""
    data = graphs.random(0, 1, 4, 6, 7)
    data[0, 1, 2, 3] = bad
    x = graphs.tensor("x", 1, 4, 6, 7)
    mod = graphs.module([x], relay.nn.conv2d(x, graphs.constant(1, 4, 4, 4, 4), padding=(2, 2)))
    spec = SMALL.replace(sram_bytes=1 << 16, unit_kernels=((3, 3),))
    split = front.SplitOversized(spec)(mod)
    assert graphs.ops_of(split).count("nn.conv2d") == 4
    wanted = front.run_host(mod, {"x": data})
    assert 0 < np.isfinite(wanted[0]).sum() < wanted[0].size
    graphs.assert_close(front.run_host(split, {"x": data}), wanted, 1e-5)
    graphs.assert_close(
        front.run_accelerator(front.partition_for_sramtile(mod, spec), {"x": data}).outputs, wanted, 1e-5
    )
