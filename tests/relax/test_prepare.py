"""What partitioning does to a network before it cuts: nothing may change what is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import relax_graphs as graphs
from tvm import relax, topi
from tvm.relax import op

from tvm_sramtile import relax as front
from tvm_sramtile.relax.prepare import prepare

X = graphs.tensor("x", 2, 4, 6, 5)
INPUT = graphs.random(0, 2, 4, 6, 5)
W = graphs.literal(1, 4, 4, 3, 3)


def statistics(seed: int = 0, channels: int = 4) -> list[Any]:
    gamma, beta, mean = (graphs.literal(10 + seed + at, channels) for at in range(3))
    variance = np.abs(graphs.random(20 + seed, channels)) + np.float32(0.1)
    return [gamma, beta, mean, relax.const(variance, "float32")]


def norm(value: Any, operands: list[Any] | None = None, **attrs: Any) -> Any:
    return op.nn.batch_norm(value, *(operands or statistics()), **{"axis": 1, "training": False, **attrs})


def conv(x: Any, **attrs: Any) -> Any:
    return op.nn.conv2d(x, W, padding=1, **attrs)


def normalised(value: Callable[..., Any], **attrs: Any) -> Callable[..., Any]:
    def build(builder: Any, x: Any) -> Any:
        result = builder.emit(norm(builder.emit(value(builder, x)), **attrs))
        return op.nn.relu(builder.emit(relax.TupleGetItem(result, 0)))

    return build


@pytest.mark.parametrize(
    "build",
    [
        normalised(lambda b, x: conv(x)),
        normalised(lambda b, x: op.add(b.emit(conv(x)), graphs.literal(4, 1, 4, 1, 1))),
        normalised(lambda b, x: op.add(graphs.literal(4, 4, 1, 1), b.emit(conv(x)))),
        normalised(lambda b, x: conv(x), epsilon=0.5),
        normalised(lambda b, x: conv(x), center=False),
        normalised(lambda b, x: conv(x), scale=False),
        normalised(lambda b, x: op.nn.conv2d(x, graphs.literal(1, 4, 2, 3, 3), groups=2, strides=2)),
        normalised(lambda b, x: op.nn.conv2d(x, graphs.literal(1, 4, 1, 3, 3), groups=4)),
    ],
)
def test_batch_norm_is_folded(build: Callable[..., Any]) -> None:
    mod = graphs.module([X], build)
    prepared = prepare(mod)
    assert graphs.ops_of(prepared) == ["nn.conv2d", "add", "nn.relu"]
    assert graphs.is_well_formed(prepared)
    graphs.assert_close(graphs.run_plain(prepared, INPUT), graphs.run_plain(mod, INPUT), 1e-5)
    assert graphs.equal(prepare(prepared), prepared)
    assert graphs.ops_of(front.partition_for_sramtile(mod)) == ["sramtile_conv2d_0"]


def twice(builder: Any, x: Any) -> Any:
    value = builder.emit(conv(x))
    result = builder.emit(relax.TupleGetItem(builder.emit(norm(value)), 0))
    return op.add(result, value)


def whole_tuple(builder: Any, x: Any) -> Any:
    return norm(builder.emit(conv(x)))


def mean_too(builder: Any, x: Any) -> Any:
    result = builder.emit(norm(builder.emit(conv(x))))
    return relax.Tuple([builder.emit(relax.TupleGetItem(result, at)) for at in (0, 1)])


def residual(builder: Any, x: Any) -> Any:
    value = builder.emit(op.add(builder.emit(conv(x)), x))
    return builder.emit(relax.TupleGetItem(builder.emit(norm(value)), 0))


@pytest.mark.parametrize(
    "build",
    [
        twice,
        whole_tuple,
        mean_too,
        residual,
        normalised(lambda b, x: conv(x), training=True),
        normalised(lambda b, x: op.nn.relu(b.emit(conv(x)))),
        normalised(lambda b, x: conv(x), axis=2, operands=statistics(channels=6)),
        normalised(lambda b, x: x),
    ],
)
def test_batch_norm_that_is_no_affine_map_of_the_weights_stays(build: Callable[..., Any]) -> None:
    mod = graphs.module([X], build)
    assert "nn.batch_norm" in graphs.ops_of(prepare(mod))
    run = front.run_accelerator(front.partition_for_sramtile(mod), {"x": INPUT})
    graphs.assert_close(run.outputs, graphs.run_plain(mod, INPUT), 1e-5)


def test_batch_norm_of_parameters_stays() -> None:
    gamma = graphs.tensor("gamma", 4)

    def build(builder: Any, x: Any, gamma: Any) -> Any:
        result = builder.emit(norm(builder.emit(conv(x)), [gamma, *statistics()[1:]]))
        return builder.emit(relax.TupleGetItem(result, 0))

    assert "nn.batch_norm" in graphs.ops_of(prepare(graphs.module([X, gamma], build)))


def test_the_two_results_that_nothing_uses_go_too() -> None:
    def build(builder: Any, x: Any) -> Any:
        result = builder.emit(norm(builder.emit(conv(x))))
        parts = [builder.emit(relax.TupleGetItem(result, at)) for at in range(3)]
        return op.nn.relu(parts[0])

    mod = graphs.module([X], build)
    prepared = prepare(mod)
    assert graphs.ops_of(prepared) == ["nn.conv2d", "add", "nn.relu"]
    assert graphs.is_well_formed(prepared)


@pytest.mark.parametrize("literal_in_code", [True, False])
def test_limits_that_the_importer_has_lowered(literal_in_code: bool) -> None:
    def build(builder: Any, x: Any) -> Any:
        low, high = (0.0, 6.0) if literal_in_code else (relax.const(v, "float32") for v in (0.0, 6.0))
        value = builder.emit_te(topi.maximum, builder.emit(conv(x)), low)
        return builder.emit_te(topi.minimum, value, high)

    mod = graphs.module([X], build)
    assert [name for name in graphs.ops_of(mod) if name == "call_tir"] == ["call_tir"] * 2
    partitioned = front.partition_for_sramtile(mod)
    assert graphs.ops_of(partitioned) == ["sramtile_conv2d_0"]
    assert {var.name_hint for var in partitioned.get_global_vars()} == {"main", "sramtile_conv2d_0"}
    (region,) = front.regions(partitioned)
    clip = region.region.steps[0].clip
    assert clip is not None
    assert (clip.low, clip.high) == (0.0, 6.0)
    run = front.run_accelerator(partitioned, {"x": INPUT})
    graphs.assert_close(run.outputs, graphs.run_plain(mod, INPUT), 1e-5)


def test_other_lowered_operators_stay() -> None:
    def build(builder: Any, x: Any) -> Any:
        value = builder.emit(conv(x))
        value = builder.emit_te(topi.add, value, 1.0)
        value = builder.emit_te(topi.maximum, value, graphs.literal(5, 5))
        return builder.emit_te(lambda t: topi.maximum(topi.flip(t, 3), 0.0), value)

    mod = graphs.module([X], build)
    prepared = prepare(mod)
    assert graphs.ops_of(prepared) == ["nn.conv2d"] + ["call_tir"] * 3
    partitioned = front.partition_for_sramtile(mod)
    assert [o.op for o in front.host_ops(partitioned)][:2] == ["call_tir add", "call_tir maximum"]
    run = front.run_accelerator(partitioned, {"x": INPUT})
    graphs.assert_close(run.outputs, graphs.run_plain(mod, INPUT), 1e-5)


def test_constants_are_folded() -> None:
    def build(builder: Any, x: Any) -> Any:
        weight = builder.emit(op.multiply(builder.emit(op.reshape(graphs.literal(1, 36, 4), (4, 4, 3, 3))), W))
        bias = builder.emit(op.expand_dims(graphs.literal(2, 4), [0, 2, 3]))
        return op.add(builder.emit(op.nn.conv2d(x, weight)), bias)

    mod = graphs.module([X], build)
    partitioned = front.partition_for_sramtile(mod)
    assert graphs.ops_of(partitioned) == ["sramtile_conv2d_0"]
    (region,) = front.regions(partitioned)
    assert len(region.region.constants) == 2
    run = front.run_accelerator(partitioned, {"x": INPUT})
    graphs.assert_close(run.outputs, graphs.run_plain(mod, INPUT), 1e-5)


def test_a_reshaped_constant_that_is_an_output() -> None:
    def build(builder: Any, x: Any) -> Any:
        bias = builder.emit(op.reshape(graphs.literal(2, 4), (1, 4, 1, 1)))
        return relax.Tuple([builder.emit(op.add(builder.emit(conv(x)), bias)), bias])

    mod = graphs.module([X], build)
    run = front.run_accelerator(front.partition_for_sramtile(mod), {"x": INPUT})
    graphs.assert_close(run.outputs, graphs.run_plain(mod, INPUT), 1e-5)
