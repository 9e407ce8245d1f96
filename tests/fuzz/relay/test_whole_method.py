"""Random regions of every operator, cut along every axis: three executions agree, and all that is said of them holds.

Relay compiles slowly: the regions are joined, and each of the three executions is built once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import relay_graphs as graphs
import tvm
from core.regions import Case
from core.whole_chips import whole_case
from tvm import relay

from tvm_sramtile import relay as front
from tvm_sramtile.attributes import RegionAttributes
from tvm_sramtile.errors import DoesNotFit
from tvm_sramtile.frontend import Array, NetworkRun
from tvm_sramtile.geometry import Resize2d
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Step
from tvm_sramtile.plan import plan_region
from tvm_sramtile.relay.codegen import compiled
from tvm_sramtile.relay.emit import cuts, region_function
from tvm_sramtile.relay.functions import as_region, with_constants, with_text_attrs
from tvm_sramtile.verify import max_abs_diff, region_tolerance

# TVM compiles a chunk in some 100 ms.
MOST_PIECES, SEEDS = 10, 200
LAYOUTS = ("transpose", "squeeze", "expand_dims")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A random region that is cut, its values, and its functions by whether their bodies are chunked."""

    name: str
    case: Case
    attributes: RegionAttributes
    functions: Mapping[bool, Any]


def of_relay(step: Step) -> Step:
    """Resizes as Relay's TVM computes them."""
    op = step.op
    return replace(step, op=replace(op, ties="away", whole_scale_floors=True)) if isinstance(op, Resize2d) else step


def drawn(seed: int) -> Drawn | None:
    """The region of a seed; ``None`` where nothing is cut, or into too much."""
    case, spec, options = whole_case(seed)
    name = f"region_{seed}"
    region = replace(case.region, name=name, steps=tuple(map(of_relay, case.region.steps)))
    try:
        attributes = RegionAttributes(region, plan_region(region, spec, options), spec, options)
    except DoesNotFit:  # the chip was made for the other rounding
        return None
    steps = list(zip(region.steps, attributes.plan.steps, strict=True))
    pieces = sum(plan.chunk_count * len(plan.in_channels) * max(1, len(plan.passes)) for _, plan in steps)
    if pieces > MOST_PIECES or not any(cuts(step, plan, spec.unit_kernels) for step, plan in steps):
        return None
    literals = {digest: relay.const(value) for digest, value in case.constants.items()}
    functions = {}
    for chunked in (False, True):
        function = with_text_attrs(region_function(attributes, literals, chunked=chunked), attributes.to_attrs())
        functions[chunked] = as_region(with_constants(function, literals.values()), name)
    return Drawn(name, replace(case, region=region), attributes, functions)


@cache
def regions() -> tuple[Drawn, ...]:
    return tuple(one for seed in range(SEEDS) if (one := drawn(seed)) is not None)


@cache
def module() -> tvm.IRModule:
    """All regions, called one after the other."""
    params: list[Any] = []
    results: list[Any] = []
    functions: dict[Any, Any] = {}
    for one in regions():
        var = relay.GlobalVar(one.name)
        functions[var] = one.functions[True]
        own = [
            relay.var(f"{one.name}.{tensor.name}", shape=tensor.shape, dtype=tensor.dtype)
            for tensor in one.attributes.region.inputs
        ]
        call = var(*own)
        count = len(one.attributes.region.outputs)
        results += [call] if count == 1 else [relay.TupleGetItem(call, index) for index in range(count)]
        params += own
    main = relay.Function(params, relay.Tuple(results))
    return relay.transform.InferType()(tvm.IRModule({**functions, relay.GlobalVar("main"): main}))


@cache
def on_the_accelerator() -> NetworkRun:
    inputs = {
        f"{one.name}.{tensor.name}": one.case.values[tensor.name]
        for one in regions()
        for tensor in one.attributes.region.inputs
    }
    return front.run_accelerator(module(), inputs)


@cache
def under_tvm(*, chunked: bool) -> Mapping[str, tuple[Array, ...]]:
    feeds = {name: one.inputs for name, one in on_the_accelerator().regions.items()}
    return front.run_regions(module(), feeds, chunked=chunked)


@pytest.mark.parametrize("one", regions(), ids=lambda one: one.name)
def test_three_executions_agree_and_measure_what_was_predicted(one: Drawn) -> None:
    made = [compiled(one.name, typed(function), one.attributes) for function in one.functions.values()]
    assert made[0].code == made[1].code
    run = on_the_accelerator().regions[one.name]
    results = [run.outputs, *(under_tvm(chunked=chunked)[one.name] for chunked in (False, True))]
    tolerance = region_tolerance(made[0].region, run.inputs, run.outputs, one.case.constants)
    for at, result in enumerate(results):
        one.case.compare([*run.inputs, *result])
        for other in results[:at]:
            diff = max(map(max_abs_diff, result, other))
            assert diff <= tolerance, (at, diff, tolerance)
    predicted = made[0].predicted
    assert run.measured.dram_bytes == predicted.traffic.total_bytes
    assert run.measured.sram_peak_bytes == predicted.sram_peak_bytes
    assert run.measured.cycles == predicted.time.cycles


def typed(function: Any) -> Any:
    return relay.transform.InferType()(tvm.IRModule({relay.GlobalVar("main"): function}))["main"]


def test_every_kind_of_cut_is_among_them() -> None:
    seen: Counter[str] = Counter()
    for one in regions():
        for step, plan in zip(one.attributes.region.steps, one.attributes.plan.steps, strict=True):
            if plan.is_split:
                seen[step.op.kind] += 1
            kinds = {
                "rows": len(plan.rows) > 1,
                "columns": len(plan.cols) > 1,
                "channels": len(plan.channels) > 1,
                "input channels": len(plan.in_channels) > 1,
                "sub-kernels": plan.has_sub_kernels,
            }
            seen.update(kind for kind, holds in kinds.items() if holds)
    assert len(regions()) >= 60
    wanted = ("rows", "columns", "channels", "input channels", "sub-kernels")
    assert min(seen[kind] for kind in wanted) >= 3, seen
    assert min(seen[k] for k in ("conv2d", "conv2d_transpose", "pool2d", "resize2d", "elementwise")) >= 3, seen


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
