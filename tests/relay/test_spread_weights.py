"""Transposed convolutions whose weights are spread beforehand, as the chunks of dilated ones are."""

from __future__ import annotations

from typing import Any

import pytest
import relay_graphs as graphs
import tvm
from relay_graphs import tensor
from tvm import relay

from tvm_sramtile import relay as front
from tvm_sramtile.geometry import Conv2dTranspose

X, W = graphs.random(0, 1, 4, 7, 6), graphs.random(1, 4, 3, 3, 2)


def spread(strides: list[int], value: float = 0.0, dilation: tuple[int, int] = (1, 1)) -> tvm.IRModule:
    weight = tensor("w", *W.shape)
    kernel = [(extent - 1) * step + 1 for extent, step in zip(W.shape, strides, strict=True)]
    call = relay.nn.conv2d_transpose(
        tensor("x", 1, kernel[0], 7, 6),
        relay.nn.dilate(weight, strides, value),
        channels=kernel[1],
        kernel_size=kernel[2:],
        strides=(2, 1),
        padding=(1, 2),
        dilation=dilation,
    )
    return graphs.module([call.args[0], weight], call)


def operator(mod: tvm.IRModule) -> Any:
    (region,) = front.regions(front.partition_for_sramtile(mod))
    return region.region.steps[0].op


def test_a_weight_with_zeros_between_is_dilated() -> None:
    mod = spread([1, 1, 2, 3])
    op = operator(mod)
    assert isinstance(op, Conv2dTranspose)
    assert (op.kernel, op.dilation) == ((3, 2), (2, 3))
    run = front.run_accelerator(front.partition_for_sramtile(mod), {"x": X, "w": W})
    graphs.assert_close(run.outputs, front.run_host(mod, {"x": X, "w": W}), 1e-5)


@pytest.mark.parametrize(
    ("mod", "kernel", "dilation"),
    [
        (spread([1, 1, 2, 3], value=1.0), (5, 4), (1, 1)),
        (spread([1, 2, 2, 1]), (5, 2), (1, 1)),
        (spread([2, 1, 1, 1]), (3, 2), (1, 1)),
        (spread([1, 1, 2, 1], dilation=(2, 1)), (5, 2), (2, 1)),
    ],
)
def test_others_are_taken_as_they_are(mod: tvm.IRModule, kernel: tuple[int, int], dilation: tuple[int, int]) -> None:
    op = operator(mod)
    assert (op.kernel, op.dilation) == (kernel, dilation)
