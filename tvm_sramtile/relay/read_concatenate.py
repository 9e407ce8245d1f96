"""The reader of concatenations along channels: each part is copied to where its channels begin."""

from __future__ import annotations

from tvm import relay

from tvm_sramtile.geometry import Elementwise
from tvm_sramtile.relay.access import static_shape
from tvm_sramtile.relay.graph import Node
from tvm_sramtile.relay.reading import (
    CHANNELS_FIRST,
    CHANNELS_LAST,
    Reading,
    RefusedError,
    Scene,
    check_operands,
    extents,
)


def read_concatenate(call: Node, scene: Scene) -> tuple[Reading, ...]:
    """``concatenate`` of maps with four axes along their channels, as copies in the order of the parts."""
    joined = scene.graph.resolve(call.args[0])
    if not isinstance(joined, relay.Tuple):
        raise RefusedError("a tuple that is computed elsewhere: the accelerator takes the parts one by one")
    parts = [scene.graph.literal(part) for part in joined.fields]
    check_operands(call, {f"part {index}": part for index, part in enumerate(parts)})
    shape = static_shape(call) or ()
    axis = int(call.attrs.axis) % max(1, len(shape))
    layout = {(4, 1): CHANNELS_FIRST, (4, 3): CHANNELS_LAST}.get((len(shape), axis))
    if layout is None:
        raise RefusedError(f"axis = {axis} of {len(shape)}: the accelerator joins the channels of maps with 4 axes")
    readings = []
    for part in parts:
        source = extents(part, layout)
        op = Elementwise(source["C"], source["H"], source["W"], "copy")
        readings.append(Reading(op, part, layout, layout))
    return tuple(readings)
