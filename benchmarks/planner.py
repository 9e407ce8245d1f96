"""DRAM traffic of six int8 layers at three SRAM sizes, against the bounds: ``python benchmarks/planner.py``.

Needs no TVM. One pool of SRAM, objective ``dram_bytes``, units 1x1 and 3x3; the accumulators (int32) lie in the pool,
and once more in a buffer of 32 KiB beside it, which the bound then counts too. Times are those of a first search.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.options import Options
from tvm_sramtile.plan import cut_step
from tvm_sramtile.plan.bounds import communication_bytes, compulsory_bytes
from tvm_sramtile.plan.planner import plan_of_cut

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from core.whole_layers import LAYERS, layer

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
    bound = max(compulsory_bytes(step), communication_bytes(step, sram_bytes + beside))
    best = moved["search"]
    return f"{best / 1e6:.2f} ({best / bound:.3f}; {moved['seed'] / 1e6:.2f})", seconds


if __name__ == "__main__":
    main()
