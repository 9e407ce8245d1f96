"""The simulated accelerator: C sources, their build and cache, the ctypes binding, and the numpy reference."""

from tvm_sramtile.engine.binding import Measured, run

__all__ = ["Measured", "run"]
