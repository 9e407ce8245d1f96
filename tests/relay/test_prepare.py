"""Folding before the partition must not change what a network computes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import relay_graphs as graphs
import tvm
from relay_graphs import Array, constant, tensor
from tvm import relay

from tvm_sramtile import relay as front
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.relay.prepare import prepare_module
from tvm_sramtile.relay.runner import build_quickly, run_built

nn = relay.nn
SPEC = AcceleratorSpec(name="small", sram_bytes=4096, channel_align=4, mac_array=(4, 4))


def batch_norm(x: Any, seed: int = 5, channels: int = 4, axis: int = 1) -> Any:
    gamma, beta, mean = (constant(seed + index, channels) for index in range(3))
    variance = relay.const(np.abs(graphs.random(seed + 3, channels)) + np.float32(0.5))
    return nn.batch_norm(x, gamma, beta, mean, variance, axis=axis, epsilon=1e-3)[0]


def conv(x: Any, seed: int = 1, channels: int = 4, inputs: int = 4, groups: int = 1) -> Any:
    return nn.conv2d(
        x,
        constant(seed, channels, inputs // groups, 3, 3),
        padding=(1, 1),
        groups=groups,
        channels=channels,
        kernel_size=(3, 3),
    )


def scale(*values: float) -> Any:
    return relay.const(np.array(values, dtype=np.float32).reshape(1, -1, 1, 1))


def used_twice(x: Any) -> Any:
    y = conv(x)
    return relay.Tuple([batch_norm(y), relay.tanh(y)])


def shared_weight(x: Any) -> Any:
    weight = constant(1, 4, 4, 3, 3)
    first = nn.conv2d(x, weight, padding=(1, 1))
    return nn.conv2d(batch_norm(first), weight, padding=(1, 1))


def residual(x: Any) -> Any:
    return relay.multiply(relay.add(conv(x), x), scale(2.0, -1.0, 0.5, 0.0))


def parameter(x: Any) -> Any:
    return batch_norm(nn.conv2d(x, tensor("w", 4, 4, 3, 3), padding=(1, 1)))


GRAPHS: list[tuple[str, Callable[[Any], Any]]] = [
    ("norm", lambda x: batch_norm(conv(x))),
    ("norm_relu", lambda x: nn.relu(batch_norm(conv(x)))),
    ("bias_norm_relu", lambda x: nn.relu(batch_norm(nn.bias_add(conv(x), constant(3, 4))))),
    ("bias_bias", lambda x: relay.add(relay.add(conv(x), constant(3, 4, 1, 1)), constant(4, 4, 1, 1))),
    (
        "three_biases",
        lambda x: nn.bias_add(nn.bias_add(nn.bias_add(conv(x), *[constant(3, 4)]), constant(4, 4)), constant(5, 4)),
    ),
    ("depthwise_norm", lambda x: batch_norm(conv(x, groups=4))),
    ("grouped_norm", lambda x: batch_norm(conv(x, groups=2))),
    ("norm_before", lambda x: conv(batch_norm(x))),
    ("scale_before_relu", lambda x: conv(nn.relu(relay.multiply(x, scale(2.0, 3.0, 0.5, 1.0))))),
    ("negative_scale_before_relu", lambda x: conv(nn.relu(relay.multiply(x, scale(2.0, -3.0, 0.5, 1.0))))),
    ("negative_scale_after_relu", lambda x: relay.multiply(nn.relu(conv(x)), scale(2.0, -3.0, 0.5, 1.0))),
    ("scale_after_relu", lambda x: relay.multiply(nn.relu(conv(x)), scale(2.0, 3.0, 0.5, 1.0))),
    ("scale_along_columns", lambda x: relay.multiply(conv(x), constant(3, 12))),
    ("norm_along_rows", lambda x: batch_norm(conv(x), channels=16, axis=2)),
    ("used_twice", used_twice),
    ("shared_weight", shared_weight),
    ("residual", residual),
    ("parameter", parameter),
    ("constant_arithmetic", lambda x: nn.conv2d(x, relay.multiply(constant(1, 4, 4, 3, 3), relay.const(0.5)))),
    ("dropout", lambda x: nn.relu(nn.dropout(conv(x)))),
]
# For each: what preparation leaves of it; what main calls after the partition.
EXPECTED: dict[str, tuple[str, str]] = {
    "norm": ("nn.conv2d add", "sramtile_conv2d_0"),
    "norm_relu": ("nn.conv2d add nn.relu", "sramtile_conv2d_0"),
    "bias_norm_relu": ("nn.conv2d nn.bias_add nn.relu", "sramtile_conv2d_0"),
    "bias_bias": ("nn.conv2d nn.bias_add", "sramtile_conv2d_0"),
    "three_biases": ("nn.conv2d nn.bias_add", "sramtile_conv2d_0"),
    "depthwise_norm": ("nn.conv2d add", "sramtile_conv2d_0"),
    "grouped_norm": ("nn.conv2d multiply add", "sramtile_conv2d_0"),
    "norm_before": ("add nn.conv2d", "sramtile_add_0 sramtile_conv2d_0"),
    "scale_before_relu": ("nn.relu nn.conv2d", "sramtile_relu_0 sramtile_conv2d_0"),
    "negative_scale_before_relu": ("multiply nn.relu nn.conv2d", "sramtile_multiply_0 sramtile_conv2d_0"),
    "negative_scale_after_relu": ("nn.conv2d nn.relu multiply", "sramtile_conv2d_0"),
    "scale_after_relu": ("nn.conv2d nn.relu", "sramtile_conv2d_0"),
    "scale_along_columns": ("nn.conv2d multiply", "sramtile_conv2d_0 sramtile_multiply_0"),
    "norm_along_rows": ("nn.conv2d multiply add", "sramtile_conv2d_0 multiply add"),
    "used_twice": ("nn.conv2d multiply add tanh", "sramtile_conv2d_0 sramtile_multiply_0 sramtile_tanh_0"),
    "shared_weight": ("nn.conv2d add nn.conv2d", "sramtile_conv2d_0 sramtile_conv2d_1"),
    "residual": ("nn.conv2d add multiply", "sramtile_conv2d_0 sramtile_add_0"),
    "parameter": ("multiply nn.conv2d add", "multiply sramtile_conv2d_0"),
    "constant_arithmetic": ("nn.conv2d", "sramtile_conv2d_0"),
    "dropout": ("nn.conv2d nn.relu", "sramtile_conv2d_0"),
}
IDS = [name for name, _ in GRAPHS]


@cache
def module(name: str) -> tvm.IRModule:
    build = next(build for key, build in GRAPHS if key == name)
    x = tensor("x", 1, 4, 16, 12)
    body = build(x)
    return graphs.module(sorted(relay.analysis.free_vars(body), key=lambda var: var.name_hint != "x"), body)


@cache
def inputs() -> dict[str, Array]:
    return {
        f"{name}.{param.name_hint}": graphs.random(seed, *map(int, param.checked_type.shape))
        for seed, name in enumerate(IDS)
        for param in module(name)["main"].params
    }


@cache
def results(which: str) -> list[Array]:
    if which == "accelerator":
        mods = {name: front.partition_for_sramtile(module(name), SPEC) for name in IDS}
        return list(front.run_accelerator(graphs.joined(mods), inputs()).outputs)
    mod = graphs.joined(
        {name: module(name) if which == "original" else prepare_module(module(name), {}) for name in IDS}
    )
    # Simplification is what is tested, so the original runs without ours, but needs TVM's for batch norm.
    simple = relay.transform.SimplifyInference()(mod)
    return list(run_built(simple, build_quickly(simple), inputs()))


@pytest.mark.parametrize("which", ["prepared", "accelerator"])
def test_values_stay(which: str) -> None:
    graphs.assert_close(results(which), results("original"), 2e-5)


@pytest.mark.parametrize("name", IDS)
def test_what_folding_leaves(name: str) -> None:
    prepared = prepare_module(module(name), {})
    assert graphs.ops_of(prepared) == EXPECTED[name][0].split()
    assert graphs.equal(prepare_module(prepared, {}), prepared)


@pytest.mark.parametrize("name", IDS)
def test_what_is_left_on_the_host(name: str) -> None:
    mod = front.partition_for_sramtile(module(name), SPEC)
    called = EXPECTED[name][1].split()
    assert graphs.ops_of(mod) == called
    host = front.host_ops(mod)
    assert [op.op for op in host] == [op for op in called if not op.startswith("sramtile_")]
    assert all("the accelerator takes the same shape, one value a channel" in op.reason for op in host)
    assert graphs.equal(front.partition_for_sramtile(mod, SPEC), mod)


def test_functions_of_back_ends_are_not_folded() -> None:
    x, y = tensor("x", 1, 4, 8, 8), tensor("y", 1, 4, 8, 8)
    var = relay.GlobalVar("theirs")
    theirs = relay.Function([y], batch_norm(y), relay.TensorType((1, 4, 8, 8))).with_attr("Compiler", "other")
    main = relay.Function([x], var(batch_norm(conv(x))))
    mod = relay.transform.InferType()(tvm.IRModule({var: theirs, relay.GlobalVar("main"): main}))
    result = prepare_module(mod, {})
    assert "nn.batch_norm" in graphs.ops_of(result, "theirs")
    assert graphs.ops_of(result) == ["nn.conv2d", "add", "theirs"]


def test_algebraic_types_survive() -> None:
    mod = tvm.IRModule()
    mod.import_from_std("prelude.rly")
    x = tensor("x", 1, 4, 16, 12)
    mod["main"] = relay.Function([x], conv(x))
    result = front.partition_for_sramtile(relay.transform.InferType()(mod), SPEC)
    assert graphs.ops_of(result) == ["sramtile_conv2d_0"]
    assert {var.name_hint for var in mod.get_global_type_vars()} == {
        var.name_hint for var in result.get_global_type_vars()
    }
