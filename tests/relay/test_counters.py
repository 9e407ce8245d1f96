from __future__ import annotations

from pathlib import Path

import numpy as np
import relay_graphs as graphs
import tvm
from counting import check_counters, check_refusals
from numpy.typing import NDArray
from tvm import relay
from tvm.contrib import graph_executor

from tvm_sramtile import relay as front
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.relay.module import load_exported
from tvm_sramtile.relay.runner import build, build_partitioned
from tvm_sramtile.verify import compile_regions

SPEC = AcceleratorSpec(name="small", sram_bytes=5000, channel_align=4)
X = graphs.random(0, 2, 4, 16, 12)


def network() -> tvm.IRModule:
    """Several regions, one of them with several steps; something between them stays on the host."""
    x = graphs.tensor("x", *X.shape)
    branches = [
        relay.nn.conv2d(x, graphs.constant(seed, 4, 4, 3, 3), padding=(1, 1), channels=4, kernel_size=(3, 3))
        for seed in (1, 2)
    ]
    joined = relay.cos(relay.concatenate(branches, axis=1))
    weight = graphs.constant(3, 4, 8, 1, 1)
    return graphs.module([x], relay.nn.conv2d(joined, weight, channels=4, kernel_size=(1, 1)))


def test_counters(tmp_path: Path) -> None:
    partitioned = front.partition_for_sramtile(network(), SPEC)
    compiled = compile_regions(front, partitioned)
    assert len(compiled) > 1
    assert max(len(item.region.steps) for item in compiled) > 1
    library = load_exported(build_partitioned(partitioned), tmp_path)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))

    def run() -> NDArray[np.float32]:
        executor.run(x=tvm.nd.array(X))
        return executor.get_output(0).numpy()

    check_counters(library, run, compiled)
    check_refusals(library, load_exported(build(network()), tmp_path, "host.so"))


def test_a_library_that_was_not_exported_is_refused() -> None:
    built = build_partitioned(front.partition_for_sramtile(network(), SPEC))
    check_refusals(built, built)
