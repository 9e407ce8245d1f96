"""The command line: ``sramtile`` and ``python -m tvm_sramtile``.

Exit status: 0 ok; 1 a result differs or nothing could be done; 2 wrong use.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tvm_sramtile.errors import MissingDependency, ModelError, OptionError, SpecError, SramtileError
from tvm_sramtile.frontend import Frontend, Generation, require_tvm
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.options import Options

try:
    import typer
    from rich.table import Table
except ImportError as missing:  # the base install has no terminal libraries
    sys.exit(f"error: {missing.name} is not installed: run pip install 'tvm_sramtile[cli]'")

if TYPE_CHECKING:
    from tvm_sramtile.models import PreparedModel
    from tvm_sramtile.verify import Verification

from tvm_sramtile.report.text import console, host_table, render

OK, DIFFERS, WRONG_USE = 0, 1, 2

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
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the spec, or a compile option; may be repeated."),
]
FrontendName = Annotated[str | None, typer.Option("--frontend", help="relax or relay; by default the TVM installed.")]
Shape = Annotated[
    list[str],
    typer.Option("--shape", metavar="NAME=1,3,320,320", help="Shape of an input; may be repeated."),
]
Input = Annotated[Path | None, typer.Option("--input", help="Inputs as .npz by name; by default random, see --seed.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of random inputs.")]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


@dataclass(frozen=True, slots=True)
class _Job:
    """A network read and ready, and what to compile it for."""

    model: PreparedModel
    spec: AcceleratorSpec
    options: Options
    frontend: Frontend

    def imported(self) -> Any:
        """The network as a module of TVM."""
        return self.frontend.import_onnx(self.model.proto, self.model.input_shapes)

    def partitioned(self) -> Any:
        """The network with its regions."""
        return self.frontend.partition_for_sramtile(self.imported(), self.spec, self.options)


@app.command()
def specs(as_json: AsJson = False) -> None:
    """List the presets of accelerator specs."""
    found = [AcceleratorSpec.preset(name) for name in AcceleratorSpec.presets()]
    if as_json:
        _print_json([spec.model_dump(exclude_none=True) for spec in found])
        return
    table = Table(header_style="bold", pad_edge=False)
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
    as_json: AsJson = False,
) -> None:
    """Plan a network and predict traffic and cycles, without running it."""
    from tvm_sramtile.report import network_report
    from tvm_sramtile.verify import compile_regions, host_lines

    with _progress("planning"):
        job = _job(model, spec, overrides, frontend, shape)
        partitioned = job.partitioned()
        compiled = compile_regions(job.frontend, partitioned)
        report = network_report(job.spec.name, compiled, host_lines(job.frontend.host_ops(partitioned)))
    if as_json:
        _print_json({"regions": [_plan_json(item) for item in compiled], **_host_json(report)})
    else:
        console().print(render(report))
    _require_regions(compiled, report)


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
    """Say why each op was cut, and why others stay on the host."""
    from tvm_sramtile.report import network_report
    from tvm_sramtile.verify import compile_regions, host_lines

    with _progress("planning"):
        job = _job(model, spec, overrides, frontend, shape)
        partitioned = job.partitioned()
        compiled = compile_regions(job.frontend, partitioned)
        host_ops = job.frontend.host_ops(partitioned)
        report = network_report(job.spec.name, compiled, host_lines(host_ops))
    if as_json:
        steps = [{"step": step.step, "op": step.op, "reason": step.reason} for step in report.steps]
        host = [{"op": op.op, "name": op.name, "macs": op.macs, "reason": op.reason} for op in host_ops]
        _print_json({"notes": job.model.notes, "steps": steps, "host_ops": host})
        return
    out = console()
    for note in job.model.notes:
        out.print(f"prepared: {note}")
    table = Table(title="On the accelerator", title_justify="left", header_style="bold", pad_edge=False)
    for column in ("step", "op", "chunks", "why"):
        table.add_column(column, overflow="fold")
    for step in report.steps:
        table.add_row(step.step, step.op, str(len(step.chunks)), step.reason)
    out.print(table, host_table(report.host_ops))


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
    with _progress("compiling"):
        job = _job(model, spec, overrides, frontend, shape)
        partitioned = job.partitioned()
        with tempfile.TemporaryDirectory(dir=output.parent) as directory:  # nothing half written under the final name
            made = Path(directory) / output.name
            job.frontend.export_library(partitioned, str(made))
            os.replace(made, output)
    regions = job.frontend.regions(partitioned)
    console().print(f"{output}: {len(regions)} regions on {job.spec.name}, {output.stat().st_size:,} B")


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
    from tvm_sramtile import models
    from tvm_sramtile.verify import verify as verify_network

    with _progress("reading") as tell:
        job = _job(model, spec, overrides, frontend, shape)
        arrays = models.load_inputs(inputs, job.model) if inputs else models.random_inputs(job.model, seed)
        tell("importing")
        mod = job.imported()
        names = list(job.model.outputs)
        result = verify_network(
            job.frontend, mod, arrays, names, job.spec, job.options, chunked=chunked, progress=tell
        )
    if as_json:
        _print_json(_verification_json(result))
    else:
        _print_verification(result, chunked=chunked)
    _require_regions(result.compiled, result.report)
    if not result.ok:
        raise typer.Exit(DIFFERS)


def _print_verification(result: Verification, *, chunked: bool) -> None:
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


def _verification_json(result: Verification) -> dict[str, Any]:
    def pair(value: Any) -> dict[str, int]:
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
    return {"ok": result.ok, "outputs": outputs, "regions": regions, **_host_json(result.report)}


def _number(value: float) -> float | None:
    """JSON has no infinity: a difference without measure is null."""
    return value if value < float("inf") else None


def _steps_json(compiled: Any) -> list[dict[str, Any]]:
    from tvm_sramtile.report.model import describe

    return [
        {
            "name": step.name,
            "op": describe(step),
            "direction": plan.direction,
            "tested_map": plan.tested_map,
            "reason": plan.reason,
            "chunks": len(plan.chunks),
            "marks": [
                {
                    "out_rows": [chunk.out_rows.start, chunk.out_rows.stop],
                    "in_rows": [chunk.in_rows.start, chunk.in_rows.stop],
                }
                for chunk in plan.chunks
            ],
        }
        for step, plan in zip(compiled.region.steps, compiled.plan.steps, strict=True)
    ]


def _plan_json(compiled: Any) -> dict[str, Any]:
    predicted = compiled.predicted
    return {
        "name": compiled.region.name,
        "dram_bytes": predicted.traffic.total_bytes,
        "sram_peak_bytes": predicted.sram_peak_bytes,
        "cycles": predicted.time.cycles,
        "steps": _steps_json(compiled),
    }


def _host_json(report: Any) -> dict[str, Any]:
    host = [
        {"op": group.op, "count": group.count, "macs": group.macs, "reason": group.reason} for group in report.host_ops
    ]
    return {"host_ops": host, "macs": {"accelerator": report.accelerator_macs, "host": report.host_macs}}


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, allow_nan=False))


def _require_regions(compiled: Sequence[Any], report: Any) -> None:
    if not compiled:
        reasons = "; ".join(f"{group.op}: {group.reason}" for group in report.host_ops[:3])
        raise SramtileError(f"no operator of the network goes to {report.spec}: {reasons}")


def _job(
    model: Path, spec: str, overrides: Sequence[str], frontend: str | None, shape: Sequence[str]
) -> _Job:
    """Read everything that the user gave, the cheap things first."""
    chip, options = _configure(AcceleratorSpec.load(spec), overrides)
    shapes = dict(_shape(text) for text in shape)
    generation = _generation(frontend)
    from tvm_sramtile import models

    prepared = models.prepare(model, shapes)
    require_tvm(generation)
    module: Any = importlib.import_module(f"tvm_sramtile.{generation}")
    return _Job(prepared, chip, options, module)


def _configure(spec: AcceleratorSpec, overrides: Sequence[str]) -> tuple[AcceleratorSpec, Options]:
    spec_keys, option_keys = set(AcceleratorSpec.model_fields), set(Options.__dataclass_fields__)
    for_spec: dict[str, Any] = {}
    for_options: dict[str, Any] = {}
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals:
            raise OptionError(f"option --set {text!r}: must be KEY=VALUE, e.g. sram_bytes=131072")
        if key not in spec_keys | option_keys:
            known = ", ".join([*AcceleratorSpec.model_fields, *Options.__dataclass_fields__])
            raise OptionError(f"option --set: key {key!r} is unknown: keys are {known}")
        (for_options if key in option_keys else for_spec)[key] = _value(value)
    return spec.replace(**for_spec), Options(**for_options)


def _value(text: str) -> Any:
    """JSON where it is JSON, else the text itself: names need no quotes."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, dims = text.rpartition("=")
    try:
        extents = tuple(int(dim) for dim in dims.split(","))
    except ValueError:
        extents = ()
    if not name or not extents or min(extents) < 1:
        raise OptionError(f"option --shape {text!r}: must be NAME=EXTENTS, e.g. x=1,3,320,320")
    return name, extents


def _generation(name: str | None) -> Generation:
    names: Mapping[str, Generation] = {"relax": "relax", "relay": "relay"}
    if name is not None:
        if name not in names:
            raise OptionError(f"option --frontend {name!r}: must be relax or relay")
        return names[name]
    try:
        require_tvm("relax")
    except MissingDependency:
        try:
            require_tvm("relay")
        except MissingDependency as error:
            raise MissingDependency(f"no front end can be used: {error}") from None
        return "relay"
    return "relax"


@contextlib.contextmanager
def _progress(what: str) -> Iterator[Any]:
    """A spinner on stderr that says what is being done; nothing where that is no terminal."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    out = console(stderr=True)
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as progress:
        task = progress.add_task(what, total=None)
        yield lambda text: progress.update(task, description=text)


def main() -> None:
    """The entry point: every error of ours is one line on stderr."""
    try:
        app()
    except SramtileError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        wrong_use = isinstance(error, SpecError | OptionError | ModelError)
        sys.exit(WRONG_USE if wrong_use else DIFFERS)
