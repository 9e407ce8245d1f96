"""What the command line prints: tables for people, JSON for programs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from tvm_sramtile.compile import Compiled
from tvm_sramtile.errors import SramtileError
from tvm_sramtile.isa.listing import command_fields, listing
from tvm_sramtile.plan import Chunk, StepPlan
from tvm_sramtile.plan.explain import Explanation
from tvm_sramtile.report import NetworkReport
from tvm_sramtile.report.model import describe
from tvm_sramtile.report.text import console, new_table, render
from tvm_sramtile.sweep import SweepPoint
from tvm_sramtile.verify import Pair, Verification


def print_verification(result: Verification, *, chunked: bool) -> None:
    """The report, then what was compared, then what differs."""
    out = console()
    out.print(render(result.report))
    for output in result.outputs:
        verdict = "ok" if output.ok else "DIFFERS"
        out.print(
            f"output {output.name}: {verdict}, largest difference from TVM {output.max_abs_diff:.2e} "
            f"(tolerance {output.tolerance:.2e})"
        )
    for region in result.regions:
        if not region.ok:
            pairs = {"DRAM bytes": region.dram_bytes, "SRAM peak": region.sram_peak_bytes, "cycles": region.cycles}
            wrong = [f"{name} predicted {p.predicted}, measured {p.measured}" for name, p in pairs.items() if not p.ok]
            diff = f"difference {region.max_abs_diff:.2e}, tolerance {region.tolerance:.2e}"
            out.print(f"region {region.name}: DIFFERS: {'; '.join([diff, *wrong])}")
    good = sum(region.ok for region in result.regions)
    three = sum(region.executions == 3 for region in result.regions)
    ways = f", {three} split ones three ways" if chunked else ""
    out.print(
        f"regions: {good} of {len(result.regions)} ok{ways}; "
        "predicted = measured for DRAM bytes, SRAM peak and cycles of each"
        if good == len(result.regions)
        else f"regions: {good} of {len(result.regions)} ok{ways}"
    )


def verification_json(result: Verification) -> dict[str, Any]:
    """The result of ``verify`` and ``run``."""

    def pair(value: Pair) -> dict[str, int]:
        return {"predicted": value.predicted, "measured": value.measured}

    regions = [
        {
            "name": region.name,
            "max_abs_diff": _number(region.max_abs_diff),
            "tolerance": region.tolerance,
            "ok": region.ok,
            "executions": region.executions,
            "dram_bytes": pair(region.dram_bytes),
            "sram_peak_bytes": pair(region.sram_peak_bytes),
            "cycles": pair(region.cycles),
            "steps": _steps_json(compiled),
        }
        for region, compiled in zip(result.regions, result.compiled, strict=True)
    ]
    outputs = [
        {"name": o.name, "max_abs_diff": _number(o.max_abs_diff), "tolerance": o.tolerance, "ok": o.ok}
        for o in result.outputs
    ]
    return {"ok": result.ok, "outputs": outputs, "regions": regions, **host_json(result.report)}


def _number(value: float) -> float | None:
    """JSON has no infinity: a difference without measure is null."""
    return value if value < float("inf") else None


def _steps_json(compiled: Compiled) -> list[dict[str, Any]]:
    return [
        {
            "name": step.name,
            "op": describe(step),
            "direction": plan.direction,
            "tested_map": plan.tested_map,
            "reason": plan.reason,
            "chunks": plan.chunk_count,
            "marks": [_mark_json(chunk, plan) for chunk in plan.chunks],
        }
        for step, plan in zip(compiled.region.steps, compiled.plan.steps, strict=True)
    ]


def _mark_json(chunk: Chunk, plan: StepPlan) -> dict[str, list[int]]:
    """Where a chunk starts and ends: its rows, and its columns and channels where these are cut."""
    marks = {"out_rows": chunk.row.out, "in_rows": chunk.row.read}
    if len(plan.cols) > 1:
        marks |= {"out_cols": chunk.col.out, "in_cols": chunk.col.read}
    if len(plan.channels) > 1:
        marks["channels"] = chunk.channels
    return {name: [mark.start, mark.stop] for name, mark in marks.items()}


def plan_json(compiled: Compiled) -> dict[str, Any]:
    """A region as planned."""
    predicted = compiled.predicted
    return {
        "name": compiled.region.name,
        "dram_bytes": predicted.traffic.total_bytes,
        "sram_peak_bytes": predicted.sram_peak_bytes,
        "cycles": predicted.time.cycles,
        "steps": _steps_json(compiled),
    }


def explanation_json(one: Explanation) -> dict[str, Any]:
    """Why a step is cut as it is."""
    memory, limit, terms = one.memory
    larger = None if one.next_bytes is None else dict(zip(("sram_bytes", "dram_bytes"), one.next_bytes, strict=True))
    return {
        "chosen": asdict(one.chosen),
        "bound_bytes": one.bound_bytes,
        "runner_up": None if one.runner_up is None else {**asdict(one.runner_up), "why_not": one.why_not},
        "alternatives": [asdict(other) for other in one.alternatives],
        "fullest": {"memory": memory, "limit": limit, "terms": dict(terms)},
        "one_more_kib_saves": dict(one.one_more_kib),
        "next_sram": larger,
    }


def sweep_table(key: str, points: Sequence[SweepPoint]) -> Table:
    """One line an accelerator."""
    table = new_table("Planned, for each size; regions that do not fit are not counted")
    for name in (key, "DRAM bytes", "x bound", "cycles", "SRAM peak", "chunks", "regions that do not fit"):
        table.add_column(name, justify="right")
    for one in points:
        share = f"{one.dram_bytes / one.bound_bytes:.2f}" if one.bound_bytes else ""
        numbers = [f"{value:,}" for value in (one.cycles, one.sram_peak_bytes, one.chunks, len(one.refused))]
        table.add_row(f"{getattr(one.spec, key):,}", f"{one.dram_bytes:,}", share, *numbers)
    return table


def sweep_json(key: str, one: SweepPoint) -> dict[str, Any]:
    """A network on one accelerator."""
    names = ("dram_bytes", "bound_bytes", "cycles", "sram_peak_bytes", "chunks", "refused")
    return {key: getattr(one.spec, key), **{name: getattr(one, name) for name in names}}


def print_listing(compiled: Compiled) -> None:
    """A region's program as text, its lines as long as they are."""
    typer.echo(f"; region {compiled.region.name}")
    for index, step in enumerate(compiled.region.steps):
        typer.echo(f"; step {index}: {step.name}, {describe(step)}")
    for line in listing(compiled.program):
        typer.echo(line)


def listing_json(compiled: Compiled) -> dict[str, Any]:
    """A region's program."""
    program = compiled.program
    return {
        "name": compiled.region.name,
        "steps": list(compiled.step_names),
        "prologue": [command_fields(command) for command in program.prologue],
        "body": [command_fields(command) for command in program.body],
    }


def host_json(report: NetworkReport) -> dict[str, Any]:
    """What stays on the host, and the share of the multiply-accumulates."""
    host = [
        {"op": group.op, "count": group.count, "macs": group.macs, "reason": group.reason} for group in report.host_ops
    ]
    return {"host_ops": host, "macs": {"accelerator": report.accelerator_macs, "host": report.host_macs}}


def print_json(value: Any) -> None:
    """Print JSON."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False))


def require_regions(compiled: Sequence[Compiled], report: NetworkReport) -> None:
    """Raise where nothing goes to the accelerator: nothing could be done."""
    if not compiled:
        reasons = "; ".join(f"{group.op}: {group.reason}" for group in report.host_ops[:3])
        raise SramtileError(f"no operator of the network goes to {report.spec}: {reasons}")


@contextlib.contextmanager
def counted(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr that says how many of how many are done; nothing where that is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    out = console(stderr=True)
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


@contextlib.contextmanager
def progress(what: str) -> Iterator[Callable[[str], None]]:
    """A spinner on stderr that says what is being done; nothing where that is no terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    out = console(stderr=True)
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda text: bar.update(task, description=text)
