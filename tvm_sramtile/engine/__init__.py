"""The simulated accelerator: C sources, their build and cache, the ctypes binding, and the numpy reference."""

from tvm_sramtile.engine.binding import count, prepare, run
from tvm_sramtile.engine.counters import CommandCounters, Measured

__all__ = ["CommandCounters", "Measured", "count", "prepare", "run"]
