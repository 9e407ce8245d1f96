"""How good plans are, and how long they take: ``python benchmarks/planner.py``. Needs no TVM.

First the DRAM traffic of six int8 layers at three SRAM sizes, against the bounds. One pool of SRAM, objective
``dram_bytes``, units 1x1 and 3x3; the accumulators (int32) lie in the pool, and once more in a buffer of 32 KiB beside
it, which the bound then counts too. Times are those of a first search.

Then the layers of three networks: how long the search takes, and how far its estimate of cycles is from the timeline.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Region
from tvm_sramtile.lower import lower, timeline
from tvm_sramtile.options import Options
from tvm_sramtile.plan import Plan, cut_step
from tvm_sramtile.plan.bounds import bound_bytes
from tvm_sramtile.plan.estimate import cycles_of
from tvm_sramtile.plan.planner import plan_of_cut

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from core.whole_layers import LAYERS, NETWORKS, layer, step_of

SIZES = (128, 256, 1024)  # KiB
BESIDE = (0, 32 * 1024)  # bytes of the buffer for accumulators


def main() -> None:
    """Print one table for each place of the accumulators."""
    for beside in BESIDE:
        title = "accumulators in the pool" if not beside else f"accumulators in {beside // 1024} KiB beside it"
        table = Table(title=f"DRAM traffic in MB (and times the bound; seed's strategy), {title}", title_justify="left")
        table.add_column("layer")
        for size in SIZES:
            table.add_column(f"{size} KiB", justify="right")
        table.add_column("search, ms", justify="right")
        for name, op in LAYERS.items():
            cells, times = zip(*(cell(name, size * 1024, beside) for size in SIZES), strict=True)
            table.add_row(f"{name} {op.kind}", *cells, " ".join(f"{seconds * 1000:.0f}" for seconds in times))
        Console(width=120).print(table)
    networks()


def networks() -> None:
    """Print a line for each network and preset; each layer that differs from the others once."""
    table = Table(title="float32 layers: search, and cycles estimated over those of the timeline", title_justify="left")
    for name in ("network", "spec", "layers", "median ms", "all, ms", "traffic x bound", "estimate: least", "most"):
        table.add_column(name, justify="right")
    for preset in ("tiny-64k", "edge-256k"):
        spec = AcceleratorSpec.preset(preset)
        for name, layers in NETWORKS.items():
            steps = [step_of(op, "float32") for op in layers]
            times, shares, moved = [], [], 0
            for step in steps:
                start = time.perf_counter()
                found = cut_step(step, spec, Options())
                times.append(1000 * (time.perf_counter() - start))
                plan = plan_of_cut(step, found, spec)
                moved += plan.traffic.total_bytes
                region = Region("region", step.inputs, (step.output,), (step,))
                cycles = timeline(lower(region, Plan("region", "search", (plan,)), spec, None)).cycles
                shares.append(cycles_of(spec, step, found) / cycles)
            bound = sum(bound_bytes(step, spec) for step in steps)
            figures = (f"{statistics.median(times):.1f}", f"{sum(times):.0f}", f"{moved / bound:.2f}")
            table.add_row(name, preset, str(len(steps)), *figures, f"{min(shares):.2f}", f"{max(shares):.2f}")
    Console(width=120).print(table)


def cell(name: str, sram_bytes: int, beside: int) -> tuple[str, float]:
    """What one layer takes, and how long the search took."""
    step = layer(name)
    spec = AcceleratorSpec(name=f"{sram_bytes}", sram_bytes=sram_bytes, accumulator_bytes=beside or None)
    moved, seconds = {}, 0.0
    for strategy in ("seed", "search"):
        start = time.perf_counter()
        found = cut_step(step, spec, Options(strategy=strategy))  # type: ignore[arg-type]
        seconds = time.perf_counter() - start
        moved[strategy] = plan_of_cut(step, found, spec).traffic.total_bytes
    bound = bound_bytes(step, spec)
    best = moved["search"]
    return f"{best / 1e6:.2f} ({best / bound:.3f}; {moved['seed'] / 1e6:.2f})", seconds


if __name__ == "__main__":
    main()
