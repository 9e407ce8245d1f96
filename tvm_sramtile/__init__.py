"""Run CNN layers of any size on an accelerator with a small SRAM, in Apache TVM.

The passes live in ``tvm_sramtile.relax`` (today's TVM) and ``tvm_sramtile.relay`` (TVM up to 0.19); this module imports
no TVM.
"""

from tvm_sramtile.counting import counters, reset_counters, set_mode
from tvm_sramtile.errors import SramtileError
from tvm_sramtile.hw import AcceleratorSpec, StorageLayout
from tvm_sramtile.options import Options

__all__ = [
    "AcceleratorSpec",
    "Options",
    "SramtileError",
    "StorageLayout",
    "counters",
    "reset_counters",
    "set_mode",
]
__version__ = "0.1.0"
