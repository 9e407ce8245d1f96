"""How fast the simulated accelerator is on this machine, against onnxruntime and against TVM's default build.

    python benchmarks/engine.py layers               the convolutions of ResNet-50 at 224x224
    python benchmarks/engine.py networks [ID ...]    float32 networks of networks/networks.json

Needs an environment with ``pip install 'tvm_sramtile[relax,cli]'`` (the latter brings onnxruntime); layers need no TVM.
One thread each, float32, spec ``edge-256k``. Times are medians; what is compared runs in turns, so that both meet the
same machine. Shares of the host are taken in runs of their own, by TVM's instrument, whose calls cost time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys

os.environ["TVM_NUM_THREADS"] = "1"  # before TVM is loaded

from engine_layers import LayerTime, measure_layers
from rich.console import Console
from rich.table import Table

from tvm_sramtile.hw import AcceleratorSpec

SPEC = "edge-256k"
SHORT_MS = 2.0  # networks that onnxruntime runs in less are reported apart
LARGE_SHARE = 0.05


def layers(console: Console) -> None:
    """Measure and print ResNet-50's convolutions."""
    table = Table(title=f"convolutions of ResNet-50, {SPEC}, ms")
    for column in ("input", "kernel", "output", "count", "chunks", "ours", "onnxruntime", "ratio"):
        table.add_column(column, justify="right")
    found: list[LayerTime] = []
    for time in measure_layers(AcceleratorSpec.preset(SPEC)):
        found.append(time)
        op = time.op
        table.add_row(
            f"{op.in_channels}x{op.in_rows}x{op.in_cols}",
            f"{op.kernel[0]}x{op.kernel[1]} s{op.strides[0]}",
            f"{op.out_channels}x{op.out_rows}x{op.out_cols}",
            str(time.count),
            str(time.chunks),
            f"{time.ours_ms:.2f}",
            f"{time.onnxruntime_ms:.2f}",
            f"{time.ratio:.2f}",
        )
    ours = sum(time.count * time.ours_ms for time in found)
    theirs = sum(time.count * time.onnxruntime_ms for time in found)
    console.print(table)
    console.print(
        f"all {sum(time.count for time in found)}: {ours:.1f} against {theirs:.1f} ms, ratio {ours / theirs:.2f}"
    )


def networks(console: Console, names: list[str], rounds: int, *, stock: bool) -> None:
    """Measure and print networks."""
    from engine_networks import float_networks, measure_networks  # needs TVM

    table = Table(title=f"networks, {SPEC}, ms")
    for column in ("network", "ours", "onnxruntime", "ratio", "default build", "times ours", "on the host", "of it"):
        table.add_column(column, justify="left" if column in ("network", "of it") else "right")
    found = []
    for time in measure_networks(names or float_networks(), AcceleratorSpec.preset(SPEC), rounds, stock=stock):
        found.append(time)
        large = ", ".join(f"{name} {share:.0%}" for name, share in time.host if share >= LARGE_SHARE)
        table.add_row(
            time.name,
            f"{time.ours_ms:.2f}",
            f"{time.onnxruntime_ms:.2f}",
            f"{time.ratio:.2f}",
            "-" if time.stock_ms is None else f"{time.stock_ms:.0f}",
            "-" if time.speedup is None else f"{time.speedup:.1f}",
            f"{sum(share for _, share in time.host):.1%}",
            large,
        )
    console.print(table)
    for text, some in (
        (f"onnxruntime takes {SHORT_MS:g} ms or more", [t for t in found if t.onnxruntime_ms >= SHORT_MS]),
        (f"less than {SHORT_MS:g} ms", [t for t in found if t.onnxruntime_ms < SHORT_MS]),
    ):
        if some:
            mean = statistics.geometric_mean([time.ratio for time in some])
            worst = max(some, key=lambda time: time.ratio)
            console.print(f"{text}: geometric mean {mean:.2f}, worst {worst.ratio:.2f} ({worst.name})")
    slow = [time for time in found if time.speedup is not None]
    if slow:
        least = min(slow, key=lambda time: time.speedup or 0)
        console.print(f"faster than TVM's default build at least {least.speedup:.1f} times ({least.name})")


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description="Times of the simulated accelerator.")
    parser.add_argument("what", choices=["layers", "networks"])
    parser.add_argument("networks", nargs="*", metavar="ID", help="ids of networks.json; by default all float32 ones")
    parser.add_argument("--rounds", type=int, default=15, help="runs of each network, after two for warming up")
    parser.add_argument("--no-stock", action="store_true", help="leave TVM's default build out, which takes minutes")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 130)
    if arguments.what == "layers":
        layers(console)
    else:
        networks(console, arguments.networks, arguments.rounds, stock=not arguments.no_stock)


if __name__ == "__main__":
    main()
