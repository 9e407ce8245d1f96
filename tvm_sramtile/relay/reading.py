"""What a reader makes of one call, before its tensors have names; and the questions that all readers ask."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tvm_sramtile.geometry import Operator
from tvm_sramtile.geometry.elementwise import Function, Partner
from tvm_sramtile.relay.access import dtype_of, is_constant, shape_text, static_shape
from tvm_sramtile.relay.graph import Graph, Node

# The axes of maps by the number of dimensions: images, channels, rows and columns, see ``ir.Tensor``.
MAP_LAYOUTS = {4: "NCHW", 3: "HWC", 2: "WC"}
CHANNELS_FIRST, CHANNELS_LAST = "NCHW", "NHWC"


class RefusedError(Exception):
    """What no step can express: an attribute and its value."""


@dataclass(frozen=True, slots=True)
class Pointwise:
    """An elementwise function of a map, with what it takes besides.

    Attributes:
        partner: where its second operand comes from.
        other: the node of a partner that is a map or a vector.
        value0, value1: its parameters.
    """

    function: Function
    partner: Partner = "none"
    other: Node = None
    value0: float = 0.0
    value1: float = 0.0


@dataclass(frozen=True, slots=True)
class Reading:
    """An operator as its call states it.

    Attributes:
        data: the node of the map that it reads.
        layout: the axes of ``data``.
        output_layout: the axes of what the call yields.
        weight, weight_layout: of convolutions.
        other: of elementwise operators with a partner: a map with the axes of ``data``, or a vector.
        activations: what a call does that is no operator by itself, but an activation after a copy.
    """

    op: Operator
    data: Node
    layout: str
    output_layout: str
    weight: Node = None
    weight_layout: str = ""
    other: Node = None
    activations: tuple[Pointwise, ...] = ()


@dataclass(slots=True)
class Scene:
    """What readers know of the function around a call.

    Attributes:
        graph: its nodes, and who uses which.
        layouts: the axes of the values that were read so far.
    """

    graph: Graph
    layouts: dict[Node, str] = field(default_factory=dict)

    def layout_of(self, node: Node) -> str:
        """The axes of a map: those of the operator that yields it, else the usual ones of its rank.

        Raises:
            RefusedError: maps have 2 to 4 axes.
        """
        shape = static_shape(node) or ()
        known = self.layouts.get(self.graph.resolve(node))
        if known is None:
            known = MAP_LAYOUTS.get(len(shape))
        if known is None:
            raise RefusedError(f"shape = {shape_text(node)}: the accelerator takes maps of 2 to 4 axes")
        return known


def check_operands(call: Node, roles: dict[str, Node]) -> None:
    """Raise ``RefusedError`` unless all operands, by role, have static shapes and one dtype, which is the result's."""
    for role, node in roles.items():
        if static_shape(node) is None:
            raise RefusedError(f"shape of {role} = {shape_text(node)}: the accelerator takes static shapes")
    if static_shape(call) is None:
        raise RefusedError(f"shape of the result = {shape_text(call)}: the accelerator takes static shapes")
    first = next(iter(roles.values()))
    if dtype_of(call) != dtype_of(first):
        raise RefusedError(
            f"out_dtype = {dtype_of(call)!r}: the accelerator takes the dtype of data, {dtype_of(first)!r}"
        )


def map_layout(attrs: Any, name: str) -> str:
    """The layout of a map with four axes, its result in the same; raises ``RefusedError`` for others."""
    layout = str(getattr(attrs, name))
    if layout not in (CHANNELS_FIRST, CHANNELS_LAST):
        raise RefusedError(f"{name} = {layout!r}: the accelerator takes {CHANNELS_FIRST!r} and {CHANNELS_LAST!r}")
    out_layout = str(getattr(attrs, "out_layout", "") or layout)
    if out_layout != layout:
        raise RefusedError(f"out_layout = {out_layout!r}: the accelerator takes that of data, {layout!r}")
    return layout


def extents(node: Node, layout: str) -> dict[str, int]:
    """The extent of each axis by its letter; 1 where the tensor has no such axis."""
    return {**dict.fromkeys("NCHWOI", 1), **dict(zip(layout, static_shape(node) or (), strict=True))}


def images_of(node: Node, layout: str) -> int:
    """How many images a map holds."""
    return extents(node, layout)["N"]


def is_vector(node: Node, layout: str, rank: int, channels: int) -> bool:
    """Whether ``node`` has one value a channel, and nothing else, where it meets a map of these axes."""
    shape = static_shape(node)
    if shape is None or len(shape) > rank:
        return False
    whole = (1,) * (rank - len(shape)) + shape
    return whole == tuple(channels if letter == "C" else 1 for letter in layout)


def is_number(node: Node) -> bool:
    """Whether ``node`` is a literal of one element."""
    return is_constant(node) and all(extent == 1 for extent in static_shape(node) or ())
