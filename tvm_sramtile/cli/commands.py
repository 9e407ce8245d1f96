"""The commands of ``sramtile``."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from tvm_sramtile import models
from tvm_sramtile.cli.job import Job, read_job, read_sweep
from tvm_sramtile.cli.output import (
    counted,
    explanation_json,
    host_json,
    listing_json,
    plan_json,
    print_json,
    print_listing,
    print_verification,
    progress,
    require_regions,
    sweep_json,
    sweep_table,
    verification_json,
)
from tvm_sramtile.compile import Compiled
from tvm_sramtile.errors import OptionError, SramtileError
from tvm_sramtile.frontend import HostOp
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.plan.explain import Explanation, explain_step
from tvm_sramtile.report import NetworkReport, network_report
from tvm_sramtile.report.text import console, explanation_table, host_table, new_table, render
from tvm_sramtile.sweep import sweep
from tvm_sramtile.verify import compile_regions, host_lines
from tvm_sramtile.verify import verify as verify_network

app = typer.Typer(
    help="Run CNN layers of any size on a simulated accelerator with a small SRAM.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

Model = Annotated[Path, typer.Argument(help="An ONNX network.")]
Spec = Annotated[str, typer.Option("--spec", help="A preset's name or a JSON file; see `sramtile specs`.")]
Set = Annotated[
    list[str],
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a key of the spec, or a compile option; may be repeated."
    ),
]
FrontendName = Annotated[str | None, typer.Option("--frontend", help="relax or relay; by default the TVM installed.")]
Shape = Annotated[
    list[str],
    typer.Option("--shape", metavar="NAME=1,3,320,320", help="Shape of an input; may be repeated."),
]
Input = Annotated[Path | None, typer.Option("--input", help="Inputs as .npz by name; by default random, see --seed.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of random inputs.")]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


@dataclass(frozen=True, slots=True)
class _Planned:
    """What the commands that run nothing say of."""

    job: Job
    compiled: Sequence[Compiled]
    host_ops: Sequence[HostOp]
    report: NetworkReport

    def explanations(self) -> list[Explanation]:
        """Of the steps, in the order of the report."""
        spec, options = self.job.spec, self.job.options
        return [
            explain_step(step, spec, options, only_step=len(item.region.steps) == 1, around=plan.around)
            for item in self.compiled
            for step, plan in zip(item.region.steps, item.plan.steps, strict=True)
        ]


def _planned(model: Path, spec: str, overrides: Sequence[str], frontend: str | None, shape: Sequence[str]) -> _Planned:
    with progress("planning"):
        job = read_job(model, spec, overrides, frontend, shape)
        partitioned = job.partitioned()
        compiled = compile_regions(job.frontend, partitioned)
        host_ops = job.frontend.host_ops(partitioned)
        return _Planned(job, compiled, host_ops, network_report(job.spec, compiled, host_lines(host_ops)))


@app.command()
def specs(as_json: AsJson = False) -> None:
    """List the presets of accelerator specs."""
    found = [AcceleratorSpec.preset(name) for name in AcceleratorSpec.presets()]
    if as_json:
        print_json([spec.model_dump(exclude_none=True) for spec in found])
        return
    table = new_table()
    for column in ("name", "SRAM bytes", "unit kernels", "MAC array", "DMA", "align"):
        table.add_column(column)
    for spec in found:
        memories = ", ".join(f"{memory} {size:,}" for memory, size in spec.memories.items())
        units = " ".join(f"{rows}x{cols}" for rows, cols in spec.unit_kernels)
        array = f"{spec.mac_array[0]}x{spec.mac_array[1]}"
        dma = f"{spec.dma_bytes_per_cycle} B a cycle + {spec.dma_setup_cycles}"
        table.add_row(spec.name, memories, units, array, dma, f"{spec.channel_align} channels, {spec.lines} lines")
    console().print(table)


@app.command()
def plan(
    model: Model,
    spec: Spec = "edge-256k",
    overrides: Set = [],  # noqa: B006 (typer reads it, nobody writes to it)
    frontend: FrontendName = None,
    shape: Shape = [],  # noqa: B006
    sweep_over: Annotated[
        str | None,
        typer.Option("--sweep", metavar="KEY=START:STOP:xFACTOR", help="Plan for many sizes: sram_bytes=64K:1M:x2."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Plan a network and predict traffic and cycles, without running it."""
    if sweep_over is not None:
        _sweep(sweep_over, model, spec, overrides, frontend, shape, as_json=as_json)
        return
    planned = _planned(model, spec, overrides, frontend, shape)
    if as_json:
        report = planned.report
        totals = {"dram_bytes": report.dram_bytes, "bound_bytes": report.bound_bytes, "cycles": report.cycles}
        print_json({"regions": [plan_json(item) for item in planned.compiled], **totals, **host_json(report)})
    else:
        console().print(render(planned.report))
    require_regions(planned.compiled, planned.report)


def _sweep(
    text: str,
    model: Path,
    spec: str,
    overrides: Sequence[str],
    frontend: str | None,
    shape: Sequence[str],
    *,
    as_json: bool,
) -> None:
    with progress("reading") as tell:
        job = read_job(model, spec, overrides, frontend, shape)
        key, chips = read_sweep(text, job.spec)
        tell("partitioning")
        partitioned = replace(job, spec=chips[-1]).partitioned()
        regions = [found.region for found in job.frontend.regions(partitioned)]
    if not regions:
        most = getattr(chips[-1], key)
        raise SramtileError(f"no operator of the network goes to {job.spec.name}, even with {key} = {most}")
    with counted("planning") as advance:
        points = sweep(regions, chips, job.options, progress=advance)
    if as_json:
        print_json([sweep_json(key, point) for point in points])
    else:
        console().print(sweep_table(key, points))


@app.command()
def run(
    model: Model,
    spec: Spec = "edge-256k",
    overrides: Set = [],  # noqa: B006
    frontend: FrontendName = None,
    shape: Shape = [],  # noqa: B006
    inputs: Input = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Run a network on the accelerator and check its outputs against TVM's."""
    _verify(model, spec, overrides, frontend, shape, inputs, seed, as_json=as_json, chunked=False)


@app.command()
def verify(
    model: Model,
    spec: Spec = "edge-256k",
    overrides: Set = [],  # noqa: B006
    frontend: FrontendName = None,
    shape: Shape = [],  # noqa: B006
    inputs: Input = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Like `run`, and each region three ways: the op under TVM, the chunked subgraph under TVM, the accelerator."""
    _verify(model, spec, overrides, frontend, shape, inputs, seed, as_json=as_json, chunked=True)


@app.command()
def explain(
    model: Model,
    spec: Spec = "edge-256k",
    overrides: Set = [],  # noqa: B006
    frontend: FrontendName = None,
    shape: Shape = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:
    """Say why each op was cut as it is, what else there was and what more SRAM would change; what stays on the host."""
    planned = _planned(model, spec, overrides, frontend, shape)
    notes, report = planned.job.model.notes, planned.report
    found = planned.explanations()
    if as_json:
        steps = [
            {"step": step.step, "op": step.op, "reason": step.reason, **explanation_json(one)}
            for step, one in zip(report.steps, found, strict=True)
        ]
        host = [{"op": op.op, "name": op.name, "macs": op.macs, "reason": op.reason} for op in planned.host_ops]
        print_json({"notes": notes, "steps": steps, "host_ops": host})
        return
    out = console()
    for note in notes:
        out.print(f"prepared: {note}")
    out.print(explanation_table(report.steps, found), host_table(report.host_ops))


@app.command()
def listing(
    model: Model,
    spec: Spec = "edge-256k",
    overrides: Set = [],  # noqa: B006
    frontend: FrontendName = None,
    shape: Shape = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:
    """List the accelerator's commands, region by region."""
    planned = _planned(model, spec, overrides, frontend, shape)
    if as_json:
        print_json({"regions": [listing_json(item) for item in planned.compiled]})
    else:
        for item in planned.compiled:
            print_listing(item)
    require_regions(planned.compiled, planned.report)


@app.command("compile")
def compile_network(
    model: Model,
    output: Annotated[Path, typer.Option("-o", "--output", help="The library file to write.")],
    spec: Spec = "edge-256k",
    overrides: Set = [],  # noqa: B006
    frontend: FrontendName = None,
    shape: Shape = [],  # noqa: B006
) -> None:
    """Compile a network to one self-contained library that needs only the TVM runtime."""
    if not output.parent.is_dir():
        raise OptionError(f"option --output {output}: the folder {output.parent} does not exist")
    if output.is_dir():
        raise OptionError(f"option --output {output}: is a folder, must be the file to write")
    with progress("compiling"), _folder_beside(output) as directory:
        job = read_job(model, spec, overrides, frontend, shape)
        partitioned = job.partitioned()
        made = Path(directory) / output.name
        job.frontend.export_library(partitioned, str(made))
        made.replace(output)
    regions = job.frontend.regions(partitioned)
    console().print(f"{output}: {len(regions)} regions on {job.spec.name}, {output.stat().st_size:,} B")


def _folder_beside(output: Path) -> tempfile.TemporaryDirectory[str]:
    """A folder for what is not finished, so that nothing half written has the final name."""
    try:
        return tempfile.TemporaryDirectory(dir=output.parent)
    except OSError as error:
        raise OptionError(f"option --output {output}: cannot write to {output.parent}: {error.strerror}") from None


def _verify(
    model: Path,
    spec: str,
    overrides: Sequence[str],
    frontend: str | None,
    shape: Sequence[str],
    inputs: Path | None,
    seed: int,
    *,
    as_json: bool,
    chunked: bool,
) -> None:
    with progress("reading") as tell:
        job = read_job(model, spec, overrides, frontend, shape)
        arrays = models.load_inputs(inputs, job.model) if inputs else models.random_inputs(job.model, seed)
        tell("importing")
        mod = job.imported()
        names = list(job.model.outputs)
        result = verify_network(job.frontend, mod, arrays, names, job.spec, job.options, chunked=chunked, progress=tell)
    if as_json:
        print_json(verification_json(result))
    else:
        print_verification(result, chunked=chunked)
    require_regions(result.compiled, result.report)
    if not result.ok:
        raise typer.Exit(1)
