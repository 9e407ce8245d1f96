"""Random regions of every operator, cut along every axis: three executions agree, and the figures hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import count, islice
from typing import Any

import numpy as np
import pytest
import relax_graphs as graphs
from relax_three_ways import check_all, check_read, drawn
from three_ways import KINDS_OF_CUT, KINDS_OF_OPERATOR, Drawn, kinds
from tvm import relax

from tvm_sramtile import relax as front
from tvm_sramtile.hw import AcceleratorSpec

SHARES, SHARE = 12, 26
LEAST_REGIONS = 300  # must be run in all three ways
# TVM compiles a piece in some 100 ms: regions of many pieces come from the first seeds, of few from all the others.
MANY_PIECES, SEEDS_OF_MANY, FEW_PIECES = 24, 240, 6


@cache
def regions() -> tuple[Drawn, ...]:
    found = (
        one for seed in count() if (one := drawn(seed, MANY_PIECES if seed < SEEDS_OF_MANY else FEW_PIECES)) is not None
    )
    return tuple(islice(found, SHARES * SHARE))


@pytest.mark.parametrize("index", range(SHARES))
def test_three_executions_agree_and_measure_what_was_predicted(index: int) -> None:
    share = regions()[index::SHARES]
    assert len(share) * SHARES >= LEAST_REGIONS
    check_all(share)


@pytest.mark.parametrize("index", range(8))
def test_a_module_with_the_same_operators_is_read_and_verified(index: int) -> None:
    check_read(regions()[index])


def test_every_kind_of_cut_is_among_them() -> None:
    seen = kinds(regions())
    assert min(seen[kind] for kind in (*KINDS_OF_CUT, *KINDS_OF_OPERATOR)) >= 5, seen


def test_what_is_concatenated_is_finished() -> None:
    """Claim 10: below a concatenation are chunks, never a sum of concatenations; none is of one part, none is empty."""
    concatenations = 0
    for one in regions():
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
