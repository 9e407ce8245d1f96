"""Random regions of every operator, cut along every axis: three executions agree, and the figures hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import relax_graphs as graphs
import tvm
from core.regions import Case
from core.whole_chips import whole_case
from tvm import relax

from tvm_sramtile import relax as front
from tvm_sramtile.attributes import RegionAttributes
from tvm_sramtile.compile import Compiled
from tvm_sramtile.frontend import NetworkRun
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.plan import plan_region
from tvm_sramtile.relax.codegen import compile_function
from tvm_sramtile.relax.emit import cuts, region_function
from tvm_sramtile.relax.runner import run_regions
from tvm_sramtile.verify import max_abs_diff, region_tolerance

# TVM compiles a chunk in some 10 ms.
MOST_PIECES, SEEDS, SHARES = 24, 240, 6


@dataclass(frozen=True, slots=True)
class Drawn:
    """A random region that is cut, its values, and its functions by the kind of body."""

    name: str
    case: Case
    attributes: RegionAttributes
    functions: Mapping[bool, relax.Function]


def drawn(seed: int) -> Drawn | None:
    """The region of a seed; ``None`` where nothing is cut, or into too much."""
    case, spec, options = whole_case(seed)
    name = f"region_{seed}"
    region = replace(case.region, name=name)
    attributes = RegionAttributes(region, plan_region(region, spec, options), spec, options)
    steps = list(zip(region.steps, attributes.plan.steps, strict=True))
    pieces = sum(plan.chunk_count * len(plan.in_channels) * max(1, len(plan.passes)) for _, plan in steps)
    if pieces > MOST_PIECES or not any(cuts(step, plan, spec.unit_kernels) for step, plan in steps):
        return None
    literals = {digest: relax.const(value) for digest, value in case.constants.items()}
    functions = {
        chunked: region_function(attributes, literals, chunked=chunked, codegen=True) for chunked in (False, True)
    }
    return Drawn(name, case, attributes, functions)


@cache
def share(index: int) -> tuple[Drawn, ...]:
    return tuple(one for seed in range(index, SEEDS, SHARES) if (one := drawn(seed)) is not None)


@pytest.mark.parametrize("index", range(SHARES))
def test_three_executions_agree_and_measure_what_was_predicted(index: int) -> None:
    regions = share(index)
    assert len(regions) >= 10
    run = on_the_accelerator(regions)
    feeds = {name: one.inputs for name, one in run.regions.items()}
    mod = tvm.IRModule({one.name: one.functions[True] for one in regions})
    bodies = [run_regions(mod, feeds, chunked=chunked) for chunked in (False, True)]
    for one in regions:
        compiled = compile_function(one.functions[True])
        assert compile_function(one.functions[False]).code == compiled.code
        measured = run.regions[one.name]
        results = [measured.outputs, *(body[one.name] for body in bodies)]
        tolerance = region_tolerance(compiled.region, measured.inputs, measured.outputs, one.case.constants)
        for at, result in enumerate(results):
            one.case.compare([*measured.inputs, *result])
            for other in results[:at]:
                diff = max(map(max_abs_diff, result, other))
                assert diff <= tolerance, (one.name, at, diff, tolerance)
        check_figures(compiled, measured.measured)


def on_the_accelerator(regions: Sequence[Drawn]) -> NetworkRun:
    """All regions in one module, called one after the other."""
    builder = relax.BlockBuilder()
    params = {
        one.name: [graphs.tensor(f"{one.name}_{t.name}", *t.shape) for t in one.attributes.region.inputs]
        for one in regions
    }
    called = {one.name: builder.add_func(one.functions[True], one.name) for one in regions}
    with builder.function("main", [param for some in params.values() for param in some]):
        results = [builder.emit(relax.Call(called[one.name], params[one.name])) for one in regions]
        builder.emit_func_output(relax.Tuple(results))
    inputs = {
        f"{one.name}_{tensor.name}": one.case.values[tensor.name]
        for one in regions
        for tensor in one.attributes.region.inputs
    }
    return front.run_accelerator(builder.get(), inputs)


def check_figures(compiled: Compiled, measured: Any) -> None:
    predicted = compiled.predicted
    assert measured.dram_bytes == predicted.traffic.total_bytes
    assert measured.sram_peak_bytes == predicted.sram_peak_bytes
    assert measured.cycles == predicted.time.cycles


def test_every_kind_of_cut_is_among_them() -> None:
    seen: Counter[str] = Counter()
    for one in (one for index in range(SHARES) for one in share(index)):
        for step, plan in zip(one.attributes.region.steps, one.attributes.plan.steps, strict=True):
            if plan.is_split:
                seen[step.op.kind] += 1
            seen.update(
                kind
                for kind, holds in (
                    ("rows", len(plan.rows) > 1),
                    ("columns", len(plan.cols) > 1),
                    ("channels", len(plan.channels) > 1),
                    ("input channels", len(plan.in_channels) > 1),
                    ("sub-kernels", plan.has_sub_kernels),
                )
                if holds
            )
    assert min(seen[kind] for kind in ("rows", "columns", "channels", "input channels", "sub-kernels")) >= 5, seen
    kinds = ("conv2d", "conv2d_transpose", "pool2d", "resize2d", "elementwise")
    assert min(seen[kind] for kind in kinds) >= 5, seen


def test_what_is_concatenated_is_finished() -> None:
    """Claim 10: below a concatenation are chunks, never a sum of concatenations; none is of one part, none is empty."""
    concatenations = 0
    for one in (one for index in range(SHARES) for one in share(index)):
        writers = Counter(step.output.name for step in one.attributes.region.steps)
        tree = Tree.of(one.functions[True])
        for value in tree.values.values():
            if graphs.is_call(value, "concat"):
                concatenations += 1
                assert len(value.args[0].fields) > 1
            elif graphs.is_call(value, "strided_slice"):
                assert all(extent > 0 for extent in map(int, value.ty.shape.values))
        if len(one.attributes.region.steps) == 1 and max(writers.values()) == 1:
            check_concatenations(tree, one.functions[True].body.body)
    assert concatenations > 100


@dataclass(frozen=True, slots=True)
class Tree:
    """The values of a function's variables."""

    values: Mapping[int, Any]

    @staticmethod
    def of(function: relax.Function) -> Tree:
        return Tree({hash(b.var): b.value for block in function.body.blocks for b in block.bindings})

    def value(self, expr: Any) -> Any:
        while isinstance(expr, relax.Var) and hash(expr) in self.values:
            expr = self.values[hash(expr)]
        return expr

    def below(self, expr: Any) -> Iterator[Any]:
        """The calls that a value is made of."""
        waiting = [expr]
        while waiting:
            value = self.value(waiting.pop())
            if isinstance(value, relax.Call):
                yield value
                waiting += list(value.args)
            elif isinstance(value, relax.Tuple):
                waiting += list(value.fields)


LAYOUTS = ("permute_dims", "squeeze", "expand_dims")


def check_concatenations(tree: Tree, result: Any) -> None:
    """From the result down: changes of layout, then concatenations of concatenations, then what has none."""
    value = tree.value(result)
    while any(graphs.is_call(value, name) for name in LAYOUTS):
        value = tree.value(value.args[0])
    if graphs.is_call(value, "concat"):
        for part in value.args[0].fields:
            check_concatenations(tree, part)
        return
    assert not any(graphs.is_call(call, "concat") for call in tree.below(value))


SMALL = AcceleratorSpec(name="small", sram_bytes=3000, channel_align=4, unit_kernels=((2, 2),))


def test_a_sum_of_sub_kernels_has_its_epilogue_once() -> None:
    w, b = graphs.literal(1, 4, 4, 5, 4), graphs.literal(2, 1, 4, 1, 1)

    def layer(builder: Any, x: Any) -> Any:
        value = builder.emit(relax.op.nn.conv2d(x, w, padding=2))
        return relax.op.tanh(builder.emit(relax.op.nn.relu(builder.emit(relax.op.add(value, b)))))

    mod = graphs.module([graphs.tensor("x", 1, 4, 9, 12)], layer)
    partitioned = front.partition_for_sramtile(mod, SMALL)
    (region,) = front.regions(partitioned)
    plan = region.plan.steps[0]
    ops = graphs.ops_of(partitioned, region.region.name)
    chunks = plan.chunk_count
    assert chunks > 1
    assert len(plan.passes) == 6
    assert ops.count("nn.conv2d") <= 6 * chunks
    assert ops.count("add") == ops.count("nn.conv2d")  # one less for the sums, one more for the bias
    assert ops.count("nn.relu") == ops.count("tanh") == chunks
    inputs = {"x": graphs.random(0, 1, 4, 9, 12)}
    run = front.run_accelerator(partitioned, inputs)
    graphs.assert_close(run.outputs, front.run_host(mod, inputs), 1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_padded_taps_do_not_read(bad: float) -> None:
    """What lies under the taps that pad a kernel up to a unit is not multiplied by their zeros."""
    x = graphs.random(0, 1, 4, 6, 7)
    x[0, 1, 2, 3] = bad
    w = graphs.literal(1, 4, 4, 4, 4)
    mod = graphs.module([graphs.tensor("x", *x.shape)], lambda _, x: relax.op.nn.conv2d(x, w, padding=2))
    spec = SMALL.replace(sram_bytes=1 << 16, unit_kernels=((3, 3),))
    split = front.SplitOversized(spec)(mod)
    assert graphs.ops_of(split).count("nn.conv2d") == 4
    wanted = graphs.run_plain(mod, x)
    assert 0 < np.isfinite(wanted[0]).sum() < wanted[0].size
    graphs.assert_close(graphs.run_plain(split, x), wanted, 1e-5)
    run = front.run_accelerator(front.partition_for_sramtile(mod, spec), {"x": x})
    graphs.assert_close(run.outputs, wanted, 1e-5)
