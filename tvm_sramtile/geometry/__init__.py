"""Pure integer maths of the operators: what an output range reads, pads, weighs and costs. Knows no chunk, no TVM."""

from tvm_sramtile.geometry.conv2d import Conv2d
from tvm_sramtile.geometry.window import Window, conv_extent, conv_window

__all__ = ["Conv2d", "Window", "conv_extent", "conv_window"]
