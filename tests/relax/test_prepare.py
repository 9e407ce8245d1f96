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
    "build", [whole_tuple, mean_too, normalised(lambda b, x: conv(x), training=True)], ids=["tuple", "mean", "training"]
)
def test_batch_norm_of_which_more_is_wanted_stays(build: Callable[..., Any]) -> None:
    mod = graphs.module([X], build)
    assert "nn.batch_norm" in graphs.ops_of(prepare(mod))
    run = front.run_accelerator(front.partition_for_sramtile(mod), {"x": INPUT})
    graphs.assert_close(run.outputs, graphs.run_plain(mod, INPUT), 1e-5)


@pytest.mark.parametrize(
    ("build", "regions"),
    [
        (twice, 3),
        (residual, 2),
        (normalised(lambda b, x: op.nn.relu(b.emit(conv(x)))), 1),
        (normalised(lambda b, x: op.nn.conv2d_transpose(x, graphs.literal(1, 4, 4, 2, 2), strides=2)), 1),
        (normalised(lambda b, x: x), 1),
        (normalised(lambda b, x: x, center=False, scale=False), 1),
        (normalised(lambda b, x: x, axis=3, operands=statistics(channels=5)), 1),
        (normalised(lambda b, x: conv(x), axis=2, operands=statistics(channels=6)), 2),
    ],
)
def test_other_batch_norms_are_a_product_and_a_sum(build: Callable[..., Any], regions: int) -> None:
    mod = graphs.module([X], build)
    prepared = prepare(mod)
    assert "nn.batch_norm" not in graphs.ops_of(prepared)
    assert graphs.is_well_formed(prepared)
    assert graphs.equal(prepare(prepared), prepared)
    partitioned = front.partition_for_sramtile(mod)
    assert len(front.regions(partitioned)) == regions
    run = front.run_accelerator(partitioned, {"x": INPUT})
    graphs.assert_close(run.outputs, graphs.run_plain(mod, INPUT), 1e-5)


@pytest.mark.parametrize("attrs", [{}, {"center": False, "scale": False}])
def test_batch_norm_of_parameters(attrs: dict[str, Any]) -> None:
    params = [X, *(graphs.tensor(name, 4) for name in ("gamma", "beta", "mean", "variance"))]

    def build(builder: Any, x: Any, *operands: Any) -> Any:
        result = builder.emit(norm(builder.emit(conv(x)), list(operands), **attrs))
        return builder.emit(relax.TupleGetItem(result, 0))

    mod = graphs.module(params, build)
    partitioned = front.partition_for_sramtile(mod)
    (region,) = front.regions(partitioned)
    assert [(a.function, a.partner) for a in region.region.steps[0].activations] == [
        ("multiply", "vector"),
        ("add", "vector"),
    ]
    values = [INPUT, *(graphs.random(seed, 4) for seed in range(3)), np.abs(graphs.random(3, 4)) + np.float32(0.5)]
    run = front.run_accelerator(partitioned, {str(p.name): v for p, v in zip(params, values, strict=True)})
    graphs.assert_close(run.outputs, graphs.run_plain(mod, *values), 1e-5)


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


def limits_of_onnx(builder: Any, value: Any) -> Any:
    """ONNX Clip: a limit that is not a number is none."""
    for te, limit, none in ((topi.maximum, 0.0, -np.inf), (topi.minimum, 6.0, np.inf)):
        given = relax.const(limit, "float32")
        checked = builder.emit(op.where(builder.emit(op.isnan(given)), relax.const(none, "float32"), given))
        value = builder.emit_te(te, value, checked)
    return value


def test_limits_that_the_importer_has_checked() -> None:
    mod = graphs.module([X], lambda b, x: limits_of_onnx(b, b.emit(conv(x))))
    assert graphs.ops_of(prepare(mod)) == ["nn.conv2d", "maximum", "minimum"]
    partitioned = front.partition_for_sramtile(mod)
    assert graphs.ops_of(partitioned) == ["sramtile_conv2d_0"]
    run = front.run_accelerator(partitioned, {"x": INPUT})
    graphs.assert_close(run.outputs, graphs.run_plain(mod, INPUT), 1e-5)


def test_transposed_matrices_are_folded() -> None:
    def build(builder: Any, x: Any) -> Any:
        return op.matmul(x, builder.emit(op.permute_dims(graphs.literal(1, 9, 5))))

    mod = graphs.module([X], build)
    assert graphs.ops_of(prepare(mod)) == ["matmul"]
    run = front.run_accelerator(front.partition_for_sramtile(mod), {"x": INPUT})
    graphs.assert_close(run.outputs, graphs.run_plain(mod, INPUT), 1e-5)


@pytest.mark.parametrize(
    "fold",
    [
        lambda a, b: op.permute_dims(a, [2, 0, 3, 1]),
        lambda a, b: op.permute_dims(a),
        lambda a, b: op.flatten(a),
        lambda a, b: op.squeeze(b),
        lambda a, b: op.expand_dims(a, [0, 3]),
        lambda a, b: op.divide(a, b),
        lambda a, b: op.subtract(b, a),
        lambda a, b: op.add(a, b),
        lambda a, b: op.sqrt(a),
        lambda a, b: op.negative(a),
        lambda a, b: op.isnan(op.sqrt(a)),
        lambda a, b: op.exp(a),
    ],
)
def test_folded_constants_are_what_tvm_computes(fold: Callable[..., Any]) -> None:
    left, right = graphs.literal(1, 2, 3, 1, 4), graphs.literal(2, 1, 3, 1, 1)
    mod = graphs.module([X], lambda b, x: relax.Tuple([x, b.emit(fold(left, right))]))
    prepared = prepare(mod)
    assert graphs.ops_of(prepared) == []
    for found, expected in zip(graphs.run_plain(prepared, INPUT), graphs.run_plain(mod, INPUT), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_folded_constants_within_tuples() -> None:
    def build(builder: Any, x: Any) -> Any:
        part = builder.emit(op.reshape(graphs.literal(1, 2, 60), (2, 2, 6, 5)))
        return op.concat([x, part, part], 1)

    mod = graphs.module([X], build)
    prepared = prepare(mod)
    assert graphs.ops_of(prepared) == ["concat"]
    assert graphs.is_well_formed(prepared)
    graphs.assert_close(graphs.run_plain(prepared, INPUT), graphs.run_plain(mod, INPUT), 0)
