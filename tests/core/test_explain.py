"""Explanations: what is said of a cut is true."""

from __future__ import annotations

import pytest
from core.test_search import LAYERS, step_of

from tvm_sramtile.errors import DoesNotFit
from tvm_sramtile.geometry import Conv2d, Operator
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Step
from tvm_sramtile.options import Options
from tvm_sramtile.plan import cut_step
from tvm_sramtile.plan.explain import KIB, Explanation, explain_step
from tvm_sramtile.plan.planner import plan_of_cut

TINY = AcceleratorSpec.preset("tiny-64k")
EDGE = AcceleratorSpec.preset("edge-256k")


def moved(step: Step, spec: AcceleratorSpec, options: Options | None = None) -> int:
    return plan_of_cut(step, cut_step(step, spec, options or Options()), spec).traffic.total_bytes


@pytest.mark.parametrize("spec", [TINY, EDGE], ids=lambda spec: spec.name)
@pytest.mark.parametrize("op", LAYERS, ids=lambda op: op.kind)
def test_all_that_is_said_of_real_layers_holds(op: Operator, spec: AcceleratorSpec) -> None:
    step = step_of(op)
    found = explain_step(step, spec, Options())
    assert found.bound_bytes <= found.chosen.dram_bytes == moved(step, spec)
    costs = [(one.dram_bytes, one.cycles) for one in found.alternatives]
    assert costs == sorted(costs)
    assert found.runner_up == (found.alternatives[0] if found.alternatives else None)
    assert all(one.dram_bytes >= found.chosen.dram_bytes for one in found.alternatives)
    memory, limit, terms = found.memory
    assert (memory, limit) == ("pool", spec.sram_bytes)
    used = plan_of_cut(step, cut_step(step, spec, Options()), spec).used_bytes("pool")
    assert sum(size for _, size in terms) == used <= limit
    larger = spec.replace(sram_bytes=spec.sram_bytes + KIB)  # type: ignore[operator]
    assert found.one_more_kib == (("pool", found.chosen.dram_bytes - moved(step, larger)),)
    if found.next_bytes is not None:
        size, then = found.next_bytes
        assert moved(step, spec.replace(sram_bytes=size)) == then < found.chosen.dram_bytes
        assert moved(step, spec.replace(sram_bytes=size - 1)) == found.chosen.dram_bytes


def explained(op: Operator, spec: AcceleratorSpec, **options: object) -> Explanation:
    return explain_step(step_of(op), spec, Options(**options))  # type: ignore[arg-type]


def test_alternatives_differ_in_one_choice_each() -> None:
    found = explained(Conv2d(64, 56, 56, 64, (5, 5), padding=(2, 2, 2, 2)), EDGE.replace(sram_bytes=400_000))
    names = [one.what for one in found.alternatives]
    assert len(set(names)) == len(names)
    assert {"rows loaded again", "kernel_split=seed", "the seed's strategy"} <= set(names)
    assert found.why_not.startswith(found.alternatives[0].what)


def test_what_fits_has_no_runner_up_and_wants_no_more_sram() -> None:
    found = explained(Conv2d(4, 8, 8, 4, (3, 3)), EDGE)
    assert (found.chosen.what, found.alternatives, found.why_not) == ("one piece", (), "nothing else was tried")
    assert (found.next_bytes, found.one_more_kib) == (None, (("pool", 0),))


def test_the_seeds_strategy_compares_nothing() -> None:
    assert explained(LAYERS[0], TINY, strategy="seed").alternatives == ()


def test_memories_of_their_own_are_each_made_larger() -> None:
    spec = EDGE.replace(sram_bytes=None, input_bytes=65536, weight_bytes=49152, output_bytes=65536)
    found = explained(LAYERS[0], spec)
    assert [memory for memory, _ in found.one_more_kib] == ["input", "weight", "output"]
    assert found.next_bytes is None


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(DoesNotFit):
        explained(LAYERS[0], EDGE.replace(sram_bytes=256))
