"""Pure integer maths of the operators: what outputs read, pad, weigh and cost. Knows no chunk and no TVM."""

from tvm_sramtile.geometry.conv2d import Conv2d
from tvm_sramtile.geometry.conv2d_transpose import Conv2dTranspose
from tvm_sramtile.geometry.elementwise import Elementwise
from tvm_sramtile.geometry.kernel_split import SubKernel, best_split, seed_split
from tvm_sramtile.geometry.phase import Phase
from tvm_sramtile.geometry.pool2d import Pool2d
from tvm_sramtile.geometry.resize2d import Resize2d
from tvm_sramtile.geometry.window import Window, conv_extent, conv_window

Operator = Conv2d | Conv2dTranspose | Pool2d | Resize2d | Elementwise

__all__ = [
    "Conv2d",
    "Conv2dTranspose",
    "Elementwise",
    "Operator",
    "Phase",
    "Pool2d",
    "Resize2d",
    "SubKernel",
    "Window",
    "best_split",
    "conv_extent",
    "conv_window",
    "seed_split",
]
