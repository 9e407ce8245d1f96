"""What the chip is: the accelerator's description and how feature maps lie in its SRAM."""

from tvm_sramtile.hw.layout import StorageLayout
from tvm_sramtile.hw.spec import AcceleratorSpec, Memory

__all__ = ["AcceleratorSpec", "Memory", "StorageLayout"]
