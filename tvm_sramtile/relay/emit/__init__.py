"""Steps and regions as Relay code that TVM itself can run: operators whole, or as chunks, with their epilogues."""

from tvm_sramtile.relay.emit.region import DEFAULT_UNROLLED_CHUNKS, body_is_chunked, region_body, region_function
from tvm_sramtile.relay.emit.resizing import sliceable
from tvm_sramtile.relay.emit.steps import chunked_step, whole_step

__all__ = [
    "DEFAULT_UNROLLED_CHUNKS",
    "body_is_chunked",
    "chunked_step",
    "region_body",
    "region_function",
    "sliceable",
    "whole_step",
]
