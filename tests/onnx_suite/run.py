"""The cases run by a front end: what TVM gets right, how it fares on the accelerator, and a table of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx_suite.cases import FAMILIES, Array, SuiteCase, merged
from onnx_suite.sizing import ROOMY_BYTES, chip, must_be_cut, shared, sizes_of

from tvm_sramtile.options import Options
from tvm_sramtile.verify import Verification, verify

_LEAST_ATOL = 1e-5  # the package's own 1e-7 is below the rounding of sums


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case.

    Attributes:
        fault: why it is not for us: TVM does not import it, does not run it, or is wrong.
        host: operators left on the host, with reasons.
        steps: how many the accelerator did.
        uncut: steps that should have been cut and were not.
        problem: how the accelerator differs from TVM.
    """

    case: SuiteCase
    fault: str = ""
    host: tuple[str, ...] = ()
    steps: int = 0
    uncut: tuple[str, ...] = ()
    problem: str = ""


def run_cases(front: Any, cases: Sequence[SuiteCase], *, chunked: bool = True) -> list[Outcome]:
    """Run the cases that TVM gets right on accelerators so small that each is cut, and compare them with TVM."""
    faults = tvm_faults(front, cases)
    outcomes = [Outcome(case, fault=faults[case.name]) for case in cases if faults[case.name]]
    sizes = []
    for case in (case for case in cases if not faults[case.name]):
        regions = front.regions(front.partition_for_sramtile(_imported(front, case), chip(ROOMY_BYTES)))
        if regions:
            sizes.append(sizes_of(case, [each.region for each in regions]))
        else:
            outcomes.append(_partition(front, case, ROOMY_BYTES))
    for sram_bytes, group in shared(sizes):
        outcomes += _run_group(front, group, sram_bytes, chunked=chunked)
    return outcomes


def tvm_faults(front: Any, cases: Sequence[SuiteCase]) -> dict[str, str]:
    """What stock TVM does wrong with each case; empty where it is right."""
    faults = {case.name: _import_fault(front, case) for case in cases}
    for opset in sorted({case.opset for case in cases}):
        known = [case for case in cases if case.opset == opset and not faults[case.name]]
        faults |= _run_faults(front, known)
    return faults


def _import_fault(front: Any, case: SuiteCase) -> str:
    try:
        _imported(front, case)
    except Exception as error:  # importers raise errors of many types
        return f"TVM does not import it: {_one_line(error)}"
    return ""


def _run_faults(front: Any, cases: Sequence[SuiteCase]) -> dict[str, str]:
    """The same for cases that TVM imports: built together, and by halves where that fails."""
    if not cases:
        return {}
    together = merged(cases)
    try:
        outputs = front.run_host(_imported(front, together), together.inputs)
        if len(outputs) != len(together.expected):
            raise ValueError(f"{len(outputs)} outputs in place of {len(together.expected)}")
    except Exception as error:  # so does its compiler
        if len(cases) == 1:
            return {cases[0].name: f"TVM does not run it: {_one_line(error)}"}
        half = len(cases) // 2
        return _run_faults(front, cases[:half]) | _run_faults(front, cases[half:])
    found = iter(outputs)
    return {case.name: _difference(case, [next(found) for _ in case.expected]) for case in cases}


def _difference(case: SuiteCase, found: Iterable[Array]) -> str:
    for ours, wanted in zip(found, case.expected.values(), strict=True):
        if ours.shape != wanted.shape or ours.dtype != wanted.dtype:
            return f"TVM yields {ours.dtype} {ours.shape} in place of {wanted.dtype} {wanted.shape}"
        if not np.allclose(ours, wanted, rtol=case.rtol, atol=max(case.atol, _LEAST_ATOL), equal_nan=True):
            return "TVM yields other values"
    return ""


def _run_group(front: Any, cases: Sequence[SuiteCase], sram_bytes: int, *, chunked: bool) -> list[Outcome]:
    together, outcomes = merged(cases), [_partition(front, case, sram_bytes) for case in cases]
    mod = _imported(front, together)
    names = list(together.expected)
    found = verify(front, mod, together.inputs, names, chip(sram_bytes), Options(), chunked=chunked)
    problems = _problems(found)
    steps = len(found.report.steps)
    if steps != sum(outcome.steps for outcome in outcomes):
        problems[""] = f"{steps} steps in one module, {sum(outcome.steps for outcome in outcomes)} one by one"
    return [_with_problems(outcome, problems) for outcome in outcomes]


def _problems(found: Verification) -> dict[str, str]:
    """By the name of an output; that of no region is known, so any case of the group may be meant."""
    problems = {o.name: f"{o.max_abs_diff:.1e} > {o.tolerance:.1e}" for o in found.outputs if not o.ok}
    wrong = [str(region) for region in found.regions if not region.ok]
    return problems | ({"": "; ".join(wrong)} if wrong else {})


def _with_problems(outcome: Outcome, problems: Mapping[str, str]) -> Outcome:
    own = [text for name, text in problems.items() if not name or name.startswith(f"{outcome.case.name}__")]
    return Outcome(outcome.case, "", outcome.host, outcome.steps, outcome.uncut, "; ".join(own))


def _partition(front: Any, case: SuiteCase, sram_bytes: int) -> Outcome:
    partitioned = front.partition_for_sramtile(_imported(front, case), chip(sram_bytes))
    plans = [step for region in front.regions(partitioned) for step in region.plan.steps]
    host = tuple(f"{op.op}: {op.reason}" for op in front.host_ops(partitioned))
    uncut = tuple(plan.reason for plan in plans if must_be_cut(plan) and plan.chunk_count < 2)
    return Outcome(case, "", host, len(plans), uncut)


def _imported(front: Any, case: SuiteCase) -> Any:
    return front.import_onnx(case.model, case.shapes)


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:160]


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """One line a family, and one for each case that is not wholly and rightly on the accelerator."""
    columns = ("cases", "right in TVM", "on accelerator", "in part", "on host", "cut", "equal")
    lines = [f"{'':12}" + "".join(f"{name:>16}" for name in columns)]
    for family in (*FAMILIES, ""):
        mine = [each for each in outcomes if each.case.family == family or not family]
        right = [each for each in mine if not each.fault]
        run = [each for each in right if each.steps]
        counts = (
            len(mine),
            len(right),
            sum(not each.host for each in run),
            sum(bool(each.host) for each in run),
            len(right) - len(run),
            sum(not each.uncut for each in run),
            sum(not each.problem for each in run),
        )
        lines.append(f"{family or 'all':12}" + "".join(f"{count:>16}" for count in counts))
    for each in outcomes:
        reasons = [f"differs: {each.problem}"] if each.problem else []
        reasons += [f"on the host: {text}" for text in each.host] + [f"not cut: {text}" for text in each.uncut]
        lines += [f"{each.case.name}: {text}" for text in dict.fromkeys([each.fault, *reasons]) if text]
    return lines
