"""Six layers of real networks, int8, and what must cross the chip's edge of each with SRAM without end."""

from __future__ import annotations

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


def layer(name: str) -> Step:
    """The step of a layer."""
    op = LAYERS[name]
    data = Tensor("x", (1, op.in_channels, op.in_rows, op.in_cols), "int8")
    weight = Tensor("w", op.weight_shape, "int8") if isinstance(op, Convolution) else None
    return Step(name, op, data, weight, Tensor("y", (1, op.out_channels, op.out_rows, op.out_cols), "int8"))
