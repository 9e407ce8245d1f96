"""Explicit padding: what convolutions can do becomes theirs, the rest stays on the host with its reason."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import relay_graphs as graphs
import tvm
from relay_graphs import Array, constant, tensor
from tvm import relay

from tvm_sramtile import relay as front
from tvm_sramtile.relay.prepare import prepare_module
from tvm_sramtile.relay.runner import build_quickly, run_built

nn = relay.nn
INPUT = graphs.random(0, 2, 4, 6, 5)
NO_READER = "no unit of the accelerator pads: convolutions do, where they alone read the map"


def pad(x: Any, *width: int, value: Any = 0.0, mode: str = "constant") -> Any:
    """``width`` is before and after the rows, then the columns."""
    return nn.pad(x, ((0, 0), (0, 0), width[:2], width[2:]), value, mode)


def conv(x: Any, **attrs: Any) -> Any:
    return nn.conv2d(x, constant(1, 4, 4, 3, 3), channels=4, kernel_size=(3, 3), **attrs)


def nhwc(x: Any) -> Any:
    padded = nn.pad(relay.transpose(x, (0, 2, 3, 1)), ((0, 0), (1, 2), (0, 3), (0, 0)))
    weight = constant(1, 3, 3, 4, 6)
    return nn.conv2d(padded, weight, channels=6, kernel_size=(3, 3), data_layout="NHWC", kernel_layout="HWIO")


def twice(x: Any) -> Any:
    padded = pad(x, 1, 1, 1, 1)
    return relay.add(conv(padded), conv(padded, dilation=(2, 1), padding=(1, 0)))


def in_let(x: Any) -> Any:
    padded = relay.var("padded")
    return relay.Let(padded, pad(x, 1, 1, 1, 1), conv(padded))


def normalised(x: Any) -> Any:
    statistics = [relay.const(abs(graphs.random(seed, 4)) + 0.5) for seed in range(4)]
    return nn.batch_norm(conv(pad(x, 1, 1, 1, 1)), *statistics)[0]


FOLDED: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "four": (lambda x: conv(pad(x, 1, 2, 0, 3), padding=(1, 0, 2, 1), strides=(2, 2)), ["nn.conv2d"]),
    "two": (lambda x: conv(pad(pad(x, 1, 2, 0, 3), 0, 1, 4, 0)), ["nn.conv2d"]),
    "rows": (lambda x: nn.relu(conv(pad(x, 5, 0, 0, 0))), ["nn.conv2d", "nn.relu"]),
    "nothing": (lambda x: nn.relu(pad(x, 0, 0, 0, 0)), ["nn.relu"]),
    "nhwc": (nhwc, ["transpose", "nn.conv2d"]),
    "readers": (twice, ["nn.conv2d", "nn.conv2d", "add"]),
    "let": (in_let, ["nn.conv2d"]),
    "norm": (normalised, ["nn.conv2d", "add"]),
}


def both(x: Any) -> Any:
    padded = pad(x, 1, 1, 1, 1)
    return relay.Tuple([conv(padded), padded])


def channels(x: Any, width: int) -> Any:
    padded = nn.pad(x, ((0, 0), (1, 1), (width, width), (width, width)))
    return nn.conv2d(padded, constant(1, 4, 6, 3, 3), channels=4, kernel_size=(3, 3))


KEPT: dict[str, tuple[Callable[[Any], Any], str]] = {
    "value": (lambda x: conv(pad(x, 1, 1, 1, 1, value=-5.0)), "pad_value = -5.0: convolutions pad with 0"),
    "computed": (
        lambda x: conv(pad(x, 1, 1, 1, 1, value=relay.erf(relay.max(x)))),
        "pad_value = no constant: convolutions pad with 0",
    ),
    "mode": (lambda x: conv(pad(x, 1, 1, 1, 1, mode="reflect")), "pad_mode = 'reflect': convolutions pad with 0"),
    "channels": (
        lambda x: channels(x, 1),
        "pad_width = ((0, 0), (1, 1), (1, 1), (1, 1)): convolutions pad rows and columns",
    ),
    "channels_alone": (lambda x: channels(x, 0), NO_READER),
    "output": (both, NO_READER),
    "pool": (lambda x: nn.max_pool2d(pad(x, 1, 1, 1, 1), (2, 2)), NO_READER),
    "transposed": (
        lambda x: nn.conv2d_transpose(pad(x, 1, 1, 1, 1), constant(1, 4, 4, 3, 3), channels=4, kernel_size=(3, 3)),
        NO_READER,
    ),
}
GRAPHS = {**{name: build for name, (build, _) in FOLDED.items()}, **{name: build for name, (build, _) in KEPT.items()}}


@cache
def module(name: str) -> tvm.IRModule:
    x = tensor("x", *INPUT.shape)
    return graphs.module([x], GRAPHS[name](x))


@cache
def results(*, accelerated: bool) -> list[Array]:
    feeds = {f"{name}.x": INPUT for name in GRAPHS}
    mods = {name: front.partition_for_sramtile(module(name)) if accelerated else module(name) for name in GRAPHS}
    if accelerated:
        return list(front.run_accelerator(graphs.joined(mods), feeds).outputs)
    simple = relay.transform.SimplifyInference()(relay.transform.ToGraphNormalForm()(graphs.joined(mods)))
    return list(run_built(simple, build_quickly(simple), feeds))


def test_values_stay() -> None:
    graphs.assert_close(results(accelerated=True), results(accelerated=False), 1e-4)


@pytest.mark.parametrize("name", FOLDED)
def test_padding_that_becomes_a_convolutions_own(name: str) -> None:
    prepared = prepare_module(module(name), {})
    assert graphs.ops_of(prepared) == FOLDED[name][1]
    assert graphs.equal(prepare_module(prepared, {}), prepared)


@pytest.mark.parametrize("name", KEPT)
def test_padding_that_stays_on_the_host_has_a_reason(name: str) -> None:
    ops = front.host_ops(front.partition_for_sramtile(module(name)))
    assert [op.reason for op in ops if op.op == "nn.pad"] == [KEPT[name][1]]


def test_a_folded_pad_leaves_the_convolution_its_name() -> None:
    span = relay.Span(relay.SourceName("first/conv"), 1, 1, 1, 1)
    x = tensor("x", *INPUT.shape)
    call = conv(pad(x, 1, 1, 1, 1))
    named = relay.Call(call.op, list(call.args), call.attrs, None, span)
    (region,) = front.regions(front.partition_for_sramtile(graphs.module([x], named)))
    assert region.region.steps[0].name == "first/conv"
