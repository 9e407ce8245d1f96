"""The report as tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tvm_sramtile.plan import Chunk
from tvm_sramtile.plan.explain import Explanation
from tvm_sramtile.report.model import HostGroup, NetworkReport, StepReport

_MARKS_SHOWN = 4
_PIPED_COLUMNS = 220


def console(*, stderr: bool = False) -> Console:
    """A console that keeps its tables whole where the output is no terminal."""
    made = Console(stderr=stderr, highlight=False)
    return made if made.is_terminal else Console(stderr=stderr, highlight=False, width=_PIPED_COLUMNS)


def new_table(title: str | None = None) -> Table:
    """A table in the house style: one rule below the header."""
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)


def render(report: NetworkReport) -> RenderableType:
    """One line a step, then what stays on the host, then totals."""
    parts: list[RenderableType] = [_steps_table(report.steps)] if report.steps else []
    if report.host_ops:
        parts.append(host_table(report.host_ops))
    return Group(*parts, Text(totals(report)))


def totals(report: NetworkReport) -> str:
    """The network in one line."""
    macs = report.accelerator_macs + report.host_macs
    bound = f" ({report.dram_bytes / report.bound_bytes:.2f} times the bound)" if report.bound_bytes else ""
    share = 100 * report.accelerator_macs / macs if macs else 0.0
    return (
        f"{report.spec}: {len(report.steps)} steps, {sum(len(step.chunks) for step in report.steps)} chunks, "
        f"{share:.1f} % of {macs:,} MACs on the accelerator, {report.cycles:,} cycles, "
        f"{report.dram_bytes:,} B of DRAM traffic{bound}, SRAM peak {report.sram_peak_bytes:,} B"
    )


def _steps_table(steps: tuple[StepReport, ...]) -> Table:
    table = new_table("On the accelerator")
    for name in ("step", "op", "shape", "direction", "map tested, why cut", "chunks (output<input rows)"):
        table.add_column(name, overflow="fold", ratio=None)
    for name in ("footprint", "SRAM peak", "DRAM bytes", "x bound", "cycles", "max diff"):
        table.add_column(name, justify="right", no_wrap=True)
    for step in steps:
        shape = f"{'x'.join(map(str, step.input_shape))} > {'x'.join(map(str, step.output_shape))}"
        diff = "" if step.max_abs_diff is None else f"{step.max_abs_diff:.1e}"
        numbers = [f"{one:,}" for one in (step.chunk_footprint_bytes, step.sram_peak_bytes, step.dram_bytes)]
        numbers += [f"{step.dram_bytes / step.bound_bytes:.2f}", f"{step.cycles:,}"]
        cut = (step.step, step.op, shape, step.direction, step.reason, marks(step.chunks))
        table.add_row(*cut, *numbers, diff)
    return table


def marks(chunks: tuple[Chunk, ...]) -> str:
    """The chunks by where they start and end; the middle ones of many are left out.

    Rows as output<input; then, where there are several, columns alike behind an x, and channels behind a c.
    """
    cut_cols = len({chunk.col for chunk in chunks}) > 1
    cut_channels = len({chunk.channels for chunk in chunks}) > 1

    def mark(chunk: Chunk) -> str:
        cols = f"x{chunk.col.out}<{chunk.col.read}" if cut_cols else ""
        return f"{chunk.row.out}<{chunk.row.read}{cols}" + (f"c{chunk.channels}" if cut_channels else "")

    if len(chunks) <= _MARKS_SHOWN:
        return f"{len(chunks)}: {' '.join(map(mark, chunks))}"
    return f"{len(chunks)}: {' '.join(map(mark, chunks[: _MARKS_SHOWN - 1]))} .. {mark(chunks[-1])}"


def explanation_table(steps: Sequence[StepReport], found: Sequence[Explanation]) -> Table:
    """Why each step is cut as it is."""
    table = new_table("On the accelerator")
    for column in ("step", "op", "why cut", "chosen", "x bound", "runner-up", "SRAM", "more SRAM"):
        table.add_column(column, overflow="fold")
    for step, one in zip(steps, found, strict=True):
        share = f"{step.dram_bytes / one.bound_bytes:.2f}"
        table.add_row(step.step, step.op, step.reason, one.chosen.what, share, one.why_not, full(one), more_sram(one))
    return table


def full(one: Explanation) -> str:
    """What fills the fullest memory."""
    memory, limit, terms = one.memory
    free = limit - sum(size for _, size in terms)
    return f"{memory}: {' + '.join(f'{name} {size:,}' for name, size in terms)}, {free:,} of {limit:,} B free"


def more_sram(one: Explanation) -> str:
    """What more SRAM would change."""
    words = [f"+1 KiB of {memory}: {-saved:+,} B" for memory, saved in one.one_more_kib if saved]
    if one.next_bytes is not None:
        size, moved = one.next_bytes
        words.append(f"sram_bytes={size}: {moved - one.chosen.dram_bytes:+,} B")
    return "; ".join(words) or "nothing"


def host_table(groups: tuple[HostGroup, ...]) -> Table:
    """What stays on the host and why."""
    table = new_table("On the host")
    table.add_column("op", no_wrap=True)
    table.add_column("count", justify="right")
    table.add_column("MACs", justify="right")
    table.add_column("reason", overflow="fold")
    for group in groups:
        table.add_row(group.op, str(group.count), f"{group.macs:,}", group.reason)
    return table
