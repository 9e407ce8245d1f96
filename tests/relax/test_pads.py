"""Explicit padding: what convolutions can do becomes theirs, the rest stays on the host with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import relax_graphs as graphs
from tvm import relax, te, tirx, topi
from tvm.relax import op

from tvm_sramtile import relax as front
from tvm_sramtile.relax.prepare import prepare

X = graphs.tensor("x", 2, 4, 6, 5)
INPUT = graphs.random(0, 2, 4, 6, 5)
NO_READER = "no unit of the accelerator pads: convolutions do, where they alone read the map"
NO_UNIT = "no unit of the accelerator computes it"


def pad(x: Any, *width: int, value: float = 0.0, mode: str = "constant") -> Any:
    """``width`` is before and after the rows, then the columns."""
    return op.nn.pad(x, (0, 0, 0, 0, *width), mode, value)


def conv(x: Any, **attrs: Any) -> Any:
    return op.nn.conv2d(x, graphs.literal(1, 4, 4, 3, 3), **attrs)


def nhwc(b: Any, x: Any) -> Any:
    last = b.emit(op.permute_dims(x, (0, 2, 3, 1)))
    padded = b.emit(op.nn.pad(last, (0, 0, 1, 2, 0, 3, 0, 0)))
    return op.nn.conv2d(padded, graphs.literal(1, 3, 3, 4, 6), data_layout="NHWC", kernel_layout="HWIO")


def twice(b: Any, x: Any) -> Any:
    padded = b.emit(pad(x, 1, 1, 1, 1))
    return op.add(b.emit(conv(padded)), b.emit(conv(padded, dilation=(2, 1), padding=(1, 0))))


def normalised(b: Any, x: Any) -> Any:
    result = b.emit(conv(b.emit(pad(x, 1, 1, 1, 1))))
    statistics = [relax.const(abs(graphs.random(seed, 4)) + 0.5, "float32") for seed in range(4)]
    return relax.TupleGetItem(b.emit(op.nn.batch_norm(result, *statistics, axis=1, training=False)), 0)


FOLDED: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "four": (lambda b, x: conv(b.emit(pad(x, 1, 2, 0, 3)), padding=(1, 0, 2, 1), strides=2), ["nn.conv2d"]),
    "two": (lambda b, x: conv(b.emit(pad(b.emit(pad(x, 1, 2, 0, 3)), 0, 1, 4, 0))), ["nn.conv2d"]),
    "rows": (lambda b, x: op.nn.relu(b.emit(conv(b.emit(pad(x, 5, 0, 0, 0))))), ["nn.conv2d", "nn.relu"]),
    "nothing": (lambda b, x: op.nn.relu(b.emit(pad(x, 0, 0, 0, 0))), ["nn.relu"]),
    "nhwc": (nhwc, ["permute_dims", "nn.conv2d"]),
    "readers": (twice, ["nn.conv2d", "nn.conv2d", "add"]),
    "norm": (normalised, ["nn.conv2d", "add"]),
}


@pytest.mark.parametrize("name", FOLDED)
def test_padding_that_becomes_a_convolutions_own(name: str) -> None:
    build, ops = FOLDED[name]
    mod = graphs.module([X], build)
    prepared = prepare(mod)
    assert graphs.ops_of(prepared) == ops
    assert graphs.is_well_formed(prepared)
    assert prepare(prepared).same_as(prepared)
    run = front.run_accelerator(front.partition_for_sramtile(mod), {"x": INPUT})
    graphs.assert_close(run.outputs, graphs.run_plain(mod, INPUT), 1e-4)


def both(b: Any, x: Any) -> Any:
    padded = b.emit(pad(x, 1, 1, 1, 1))
    return relax.Tuple([b.emit(conv(padded)), padded])


KEPT: dict[str, tuple[Callable[..., Any], str]] = {
    "value": (lambda b, x: conv(b.emit(pad(x, 1, 1, 1, 1, value=-5.0))), "pad_value = -5.0: convolutions pad with 0"),
    "mode": (
        lambda b, x: conv(b.emit(pad(x, 1, 1, 1, 1, mode="reflect"))),
        "pad_mode = 'reflect': convolutions pad with 0",
    ),
    "channels": (
        lambda b, x: op.nn.conv2d(b.emit(op.nn.pad(x, (0, 0, 1, 1, 1, 1, 1, 1))), graphs.literal(1, 4, 6, 3, 3)),
        "pad_width = ((0, 0), (1, 1), (1, 1), (1, 1)): convolutions pad rows and columns",
    ),
    "channels_alone": (
        lambda b, x: op.nn.conv2d(b.emit(op.nn.pad(x, (0, 0, 1, 1, 0, 0, 0, 0))), graphs.literal(1, 4, 6, 3, 3)),
        NO_READER,
    ),
    "output": (both, NO_READER),
    "pool": (lambda b, x: op.nn.max_pool2d(b.emit(pad(x, 1, 1, 1, 1)), 2), NO_READER),
    "transposed": (
        lambda b, x: op.nn.conv2d_transpose(b.emit(pad(x, 1, 1, 1, 1)), graphs.literal(1, 4, 4, 3, 3)),
        NO_READER,
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_padding_that_stays_on_the_host_has_a_reason(name: str) -> None:
    build, reason = KEPT[name]
    mod = graphs.module([X], build)
    partitioned = front.partition_for_sramtile(mod)
    assert [(o.op, o.reason) for o in front.host_ops(partitioned)] == [("nn.pad", reason)]
    run = front.run_accelerator(partitioned, {"x": INPUT})
    graphs.assert_close(run.outputs, graphs.run_plain(mod, INPUT), 1e-4)


LOWERED: dict[str, tuple[Callable[..., Any], list[tuple[str, str]]]] = {
    "zero": (lambda b, x: conv(lowered(b, x, 0.0)), []),
    "value": (lambda b, x: conv(lowered(b, x, 2.0)), [("nn.pad", "pad_value = 2.0: convolutions pad with 0")]),
    "pool": (lambda b, x: op.nn.max_pool2d(lowered(b, x, 0.0), 2), [("nn.pad", NO_READER)]),
    "mirrored": (
        lambda b, x: conv(b.emit_te(topi.nn.mirror_pad, x, [0, 0, 1, 2], [0, 0, 0, 3], "REFLECT")),
        [("call_tir mirror_pad", NO_UNIT)],
    ),
    "shifted": (lambda b, x: conv(b.emit_te(shifted, x)), [("call_tir shifted", NO_UNIT)]),
}


def lowered(b: Any, x: Any, value: float) -> Any:
    return b.emit_te(topi.nn.pad, x, [0, 0, 1, 2], [0, 0, 0, 3], value)


def shifted(x: Any) -> Any:
    """Like padding, but of a column more on the right than the map says."""

    def element(image: Any, channel: Any, row: Any, col: Any) -> Any:
        inside = tirx.all(row >= 1, col >= 2, col < 6)
        return tirx.if_then_else(inside, x[image, channel, row - 1, col - 2], tirx.const(0.0, "float32"))

    return te.compute((2, 4, 7, 10), element, name="shifted")


@pytest.mark.parametrize("name", LOWERED)
def test_padding_that_the_importer_has_lowered(name: str) -> None:
    build, left = LOWERED[name]
    mod = graphs.module([X], build)
    assert "call_tir" in graphs.ops_of(mod)
    partitioned = front.partition_for_sramtile(mod)
    assert [(o.op, o.reason) for o in front.host_ops(partitioned)] == left
    run = front.run_accelerator(partitioned, {"x": INPUT})
    graphs.assert_close(run.outputs, graphs.run_plain(mod, INPUT), 1e-4)
