from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import relax_graphs as graphs
import tvm
from counting import check_counters, check_refusals
from numpy.typing import NDArray
from tvm import relax
from tvm.relax import op

from tvm_sramtile import relax as front
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.relax.runner import compile_partitioned
from tvm_sramtile.verify import compile_regions

SPEC = AcceleratorSpec(name="small", sram_bytes=5000, channel_align=4)
X = graphs.random(0, 2, 4, 16, 12)


def network() -> tvm.IRModule:
    """Several regions, one of them with several steps; something between them stays on the host."""

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Var:
        branches = [b.emit(op.nn.conv2d(x, graphs.literal(seed, 4, 4, 3, 3), padding=1)) for seed in (1, 2)]
        joined = b.emit(op.concat(branches, axis=1))
        return b.emit(op.nn.conv2d(b.emit(op.cos(joined)), graphs.literal(3, 4, 8, 1, 1)))

    return graphs.module([graphs.tensor("x", *X.shape)], build)


@pytest.mark.parametrize("what", ["executable", "machine", "library"])
def test_counters(what: str, tmp_path: Path) -> None:
    partitioned = front.partition_for_sramtile(network(), SPEC)
    compiled = compile_regions(front, partitioned)
    assert len(compiled) > 1
    assert max(len(item.region.steps) for item in compiled) > 1
    executable = compile_partitioned(partitioned)
    path = tmp_path / "network.so"
    executable.export_library(str(path))
    library = tvm.runtime.load_module(str(path))
    machine = relax.VirtualMachine(library if what == "library" else executable, tvm.cpu())

    def run() -> NDArray[np.float32]:
        return machine["main"](tvm.runtime.tensor(X)).numpy()

    module = {"executable": executable, "machine": machine, "library": library}[what]
    check_counters(module, run, compiled)
    check_refusals(module, tvm.compile(network(), "llvm"))
