"""From a plan to a program: addresses, commands, waits, packed constants, and the time it takes."""

from tvm_sramtile.lower.program import lower
from tvm_sramtile.lower.timeline import Timeline, command_cycles, timeline

__all__ = ["Timeline", "command_cycles", "lower", "timeline"]
