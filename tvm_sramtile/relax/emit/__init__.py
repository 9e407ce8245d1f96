"""Steps and regions as Relax code that TVM itself can run: operators whole, or as chunks, with their epilogues."""

from tvm_sramtile.relax.emit.emitter import Emitter
from tvm_sramtile.relax.emit.region import CONSTANTS, DEFAULT_UNROLLED_CHUNKS, body_is_chunked, region_function
from tvm_sramtile.relax.emit.resizing import sliceable
from tvm_sramtile.relax.emit.steps import chunked_step, whole_step

__all__ = [
    "CONSTANTS",
    "DEFAULT_UNROLLED_CHUNKS",
    "Emitter",
    "body_is_chunked",
    "chunked_step",
    "region_function",
    "sliceable",
    "whole_step",
]
