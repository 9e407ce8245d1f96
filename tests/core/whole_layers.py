"""Six layers of real networks, int8, and what must cross the chip's edge of each with SRAM without end."""

from __future__ import annotations

from dataclasses import replace

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose, Operator, Resize2d
from tvm_sramtile.ir import Step, Tensor
from tvm_sramtile.plan.cut import Convolution

LAYERS: dict[str, Operator] = {
    "a": Conv2d(64, 224, 224, 64, (3, 3), padding=(1, 1, 1, 1)),
    "b": Conv2d(128, 112, 112, 256, (3, 3), (2, 2), padding=(1, 1, 1, 1)),
    "c": Conv2d(3, 512, 512, 64, (7, 7), (2, 2), padding=(3, 3, 3, 3)),
    "d": Conv2d(96, 128, 128, 96, (7, 7), padding=(3, 3, 3, 3), groups=96),
    "e": Conv2dTranspose(128, 64, 64, 64, (4, 4), (2, 2), padding=(1, 1, 1, 1)),
    "f": Resize2d(64, 128, 128, 256, 256, "nearest_neighbor"),
}
LIMITS = {"a": 6_459_392, "b": 2_703_360, "c": 4_990_144, "d": 3_150_432, "e": 1_703_936, "f": 5_242_880}


def _conv(ins: int, size: int, outs: int, kernel: int = 3, stride: int = 1) -> Conv2d:
    pad = (kernel - 1) // 2
    return Conv2d(ins, size, size, outs, (kernel, kernel), (stride, stride), (pad, pad, pad, pad))


def _up(ins: int, size: int) -> Conv2dTranspose:
    return Conv2dTranspose(ins, size, size, ins // 2, (2, 2), (2, 2))


# Each layer that differs from the others once: of ResNet-50 at 224, of a one-stage detector at 640, of a U-Net at 512.
NETWORKS: dict[str, list[Operator]] = {
    "ResNet-50": [
        *(_conv(3, 224, 64, 7, 2), _conv(64, 56, 64, 1), _conv(64, 56, 64), _conv(64, 56, 256, 1)),
        *(_conv(256, 56, 64, 1), _conv(256, 56, 128, 1), _conv(128, 56, 128, 3, 2), _conv(128, 28, 128)),
        *(_conv(128, 28, 512, 1), _conv(256, 56, 512, 1, 2), _conv(512, 28, 128, 1), _conv(512, 28, 256, 1)),
        *(_conv(256, 28, 256, 3, 2), _conv(256, 14, 256), _conv(256, 14, 1024, 1), _conv(512, 28, 1024, 1, 2)),
        *(_conv(1024, 14, 256, 1), _conv(1024, 14, 512, 1), _conv(512, 14, 512, 3, 2), _conv(512, 7, 512)),
        *(_conv(512, 7, 2048, 1), _conv(1024, 14, 2048, 1, 2), _conv(2048, 7, 512, 1)),
    ],
    "detector": [
        *(_conv(3, 640, 32, 3, 2), _conv(32, 320, 64, 3, 2), _conv(64, 160, 64, 1), _conv(32, 160, 32)),
        *(_conv(64, 160, 128, 3, 2), _conv(128, 80, 128, 1), _conv(64, 80, 64), _conv(128, 80, 256, 3, 2)),
        *(_conv(256, 40, 256, 1), _conv(128, 40, 128), _conv(256, 40, 512, 3, 2), _conv(512, 20, 512, 1)),
        *(_conv(256, 20, 256), _conv(1024, 20, 512, 1), _conv(768, 40, 256, 1), _conv(384, 80, 128, 1)),
        *(_conv(64, 80, 80), _conv(80, 80, 80, 1)),
    ],
    "U-Net": [
        *(_conv(3, 512, 64), _conv(64, 512, 64), _conv(64, 256, 128), _conv(128, 256, 128), _conv(128, 128, 256)),
        *(_conv(256, 128, 256), _conv(256, 64, 512), _conv(512, 64, 512), _conv(512, 32, 1024), _conv(1024, 32, 1024)),
        *(_up(1024, 32), _conv(1024, 64, 512), _up(512, 64), _conv(512, 128, 256), _up(256, 128)),
        *(_conv(256, 256, 128), _up(128, 256), _conv(128, 512, 64), _conv(64, 512, 2, 1)),
    ],
}


def layer(name: str) -> Step:
    """The step of one of the six layers."""
    return replace(step_of(LAYERS[name], "int8"), name=name)


def step_of(op: Operator, dtype: str) -> Step:
    """An operator as a step."""
    data = Tensor("x", (1, op.in_channels, op.in_rows, op.in_cols), dtype)
    weight = Tensor("w", op.weight_shape, dtype) if isinstance(op, Convolution) else None
    return Step("step", op, data, weight, Tensor("y", (1, op.out_channels, op.out_rows, op.out_cols), dtype))
