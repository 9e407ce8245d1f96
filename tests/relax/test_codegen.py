"""Compiled modules: side by side, and broken; alone and from many threads in ``test_conformance_deployed``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import relax_graphs as graphs
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax import op

from tvm_sramtile import relax as front
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.relax import codegen

SPEC = AcceleratorSpec(name="small", sram_bytes=5000, channel_align=4)
SHAPE = (1, 3, 33, 33)
INPUT = graphs.random(0, *SHAPE)


def network(seed: int) -> tvm.IRModule:
    """A convolution of stride 2 in 9 chunks, with a weight of its own."""
    x = graphs.tensor("x", *SHAPE)
    weight = graphs.literal(seed, 8, 3, 3, 3)
    return graphs.module([x], lambda _, x: op.nn.conv2d(x, weight, strides=2, padding=1))


def compiled(seed: int) -> Any:
    partitioned = front.partition_for_sramtile(network(seed), SPEC)
    return tvm.compile(partitioned, "llvm", relax_pipeline="sramtile")


def expected(seed: int) -> graphs.Array:
    return graphs.run_plain(network(seed), INPUT)[0]


def run(machine: Any) -> graphs.Array:
    return machine["main"](tvm.runtime.tensor(INPUT)).numpy()


def test_two_modules_with_the_same_names_in_one_process() -> None:
    machines = [relax.VirtualMachine(compiled(seed), tvm.cpu()) for seed in (1, 2)]
    for _ in range(2):
        for seed, machine in zip((1, 2), machines, strict=True):
            np.testing.assert_allclose(run(machine), expected(seed), rtol=1e-5, atol=1e-5)


def test_a_user_function_of_the_name_that_we_would_choose() -> None:
    builder = relax.BlockBuilder()
    x = graphs.tensor("x", *SHAPE)
    graphs.add_function(builder, [x], lambda _, x: op.nn.conv2d(x, graphs.literal(1, 8, 3, 3, 3), strides=2, padding=1))
    graphs.add_function(builder, [graphs.tensor("x", *SHAPE)], lambda _, x: op.nn.relu(x), name="sramtile_conv2d_0")
    partitioned = front.partition_for_sramtile(builder.get(), SPEC)
    machine = relax.VirtualMachine(tvm.compile(partitioned, "llvm", relax_pipeline="sramtile"), tvm.cpu())
    np.testing.assert_allclose(run(machine), expected(1), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(machine["sramtile_conv2d_0"](tvm.runtime.tensor(INPUT)).numpy(), np.maximum(INPUT, 0))


@pytest.fixture
def damage() -> Iterator[list[tuple[int, int]]]:
    """Bytes of programs to be overwritten: (offset, value), while the modules of this test are compiled."""
    changes: list[tuple[int, int]] = []

    def generate(functions: Sequence[Any], options: Any, names: Any) -> list[Any]:
        del options, names
        regions = {}
        for function in functions:
            region = codegen.compile_function(function)
            code = bytearray(region.code)
            for offset, value in changes:
                code[offset] = value
            regions[str(function.attrs["global_symbol"])] = (region, bytes(code))
        return codegen.build_modules(regions)

    tvm_ffi.register_global_func(codegen.NAME, generate, override=True)
    yield changes
    codegen.register()


def test_an_error_inside_the_engine_reaches_the_caller_with_its_text(damage: list[tuple[int, int]]) -> None:
    machine = relax.VirtualMachine(compiled(1), tvm.cpu())
    np.testing.assert_allclose(run(machine), expected(1), rtol=1e-5, atol=1e-5)
    damage.append((0, 0))
    machine = relax.VirtualMachine(compiled(1), tvm.cpu())
    with pytest.raises(RuntimeError, match=r"^sramtile region sramtile_conv2d_0: .*(magic|program)"):
        run(machine)


def test_weights_are_stored_once(tmp_path: Path) -> None:
    weight = graphs.literal(1, 64, 64, 3, 3)  # 147 456 B
    mod = graphs.module([graphs.tensor("x", 1, 64, 40, 12)], lambda _, x: op.nn.conv2d(x, weight, padding=1))
    partitioned = front.partition_for_sramtile(mod)
    assert front.regions(partitioned)[0].plan.chunk_count > 2
    sizes = {}
    for name, options in (("split", partitioned), ("none", front.partition_for_sramtile(network(1), SPEC))):
        front.export_library(options, str(tmp_path / name))
        sizes[name] = (tmp_path / name).stat().st_size
    assert 0.9 * 147_456 < sizes["split"] - sizes["none"] < 1.5 * 147_456  # both are rounded up to pages
