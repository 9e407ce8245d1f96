"""Explicit padding: what convolutions can do themselves becomes theirs, all else stays with a reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import relay

from tvm_sramtile.relay.access import constant_value, four_pads, is_constant, op_name
from tvm_sramtile.relay.graph import Edits, Graph, Lookup, Node, graph_of

PAD = "nn.pad"
NO_READER = "no unit of the accelerator pads: convolutions do, where they alone read the map"

Width = tuple[tuple[int, int], ...]
"""Positions before and after each axis."""


def fold_pads(function: Any) -> Any:
    """Each ``nn.pad`` of rows and columns with 0 that ``conv2d`` alone reads becomes padding of these.

    One that pads nothing, as importers put before pools, is left out. ``None`` when there is none of either; pads that
    read a pad which is folded are left for another time.
    """
    graph = graph_of(function.body)
    edits = Edits()
    for node in graph.order:
        if op_name(node) != PAD:
            continue
        if not any(any(axis) for axis in _width(node)):
            edits.replace[node] = _first_operand(node)
            continue
        readers = () if _refusal(graph, node) else _convolutions(graph, node)
        if readers and not any(reader in edits.replace for reader in readers):
            edits.replace.update({reader: _padded(reader, node) for reader in readers})
            edits.absorbed.add(node)
    return edits.apply(function, graph) if edits.replace else None


def pad_reasons(graph: Graph) -> Mapping[Node, str]:
    """Why the pads that are left are no convolution's."""
    return {node: _refusal(graph, node) or NO_READER for node in graph.order if op_name(node) == PAD}


def _refusal(graph: Graph, pad: Node) -> str:
    """Why no convolution can do this; "" where one may."""
    mode, value = str(pad.attrs.pad_mode), graph.literal(pad.args[1])
    if mode != "constant":
        return f"pad_mode = {mode!r}: convolutions pad with 0"
    if not is_constant(value) or constant_value(value) != 0:
        shown = float(constant_value(value)) if is_constant(value) else "no constant"
        return f"pad_value = {shown}: convolutions pad with 0"
    width = _width(pad)
    if any(min(axis) < 0 for axis in width) or sum(axis != (0, 0) for axis in width) > 2:
        return f"pad_width = {width}: convolutions pad rows and columns"
    return ""


def _width(pad: Node) -> Width:
    return tuple((int(before), int(after)) for before, after in pad.attrs.pad_width)


def _convolutions(graph: Graph, pad: Node) -> tuple[Node, ...]:
    """The convolutions whose data the padded map is, if it is used in no other way."""
    readers = graph.users.get(pad, ())
    for call in readers:
        if call is None or op_name(call) != "nn.conv2d" or graph.resolve(call.args[0]) != pad:
            return ()
        layout, width = str(call.attrs.data_layout), _width(pad)
        if len(width) != len(layout):
            return ()
        if any(axis != (0, 0) and letter not in "HW" for axis, letter in zip(width, layout, strict=True)):
            return ()
    return readers if len(set(readers)) == len(readers) else ()


def _padded(convolution: Node, pad: Node) -> Callable[[Lookup], Node]:
    attrs = {name: convolution.attrs[name] for name in convolution.attrs.keys()}  # noqa: SIM118 - no dict
    width = dict(zip(str(attrs["data_layout"]), _width(pad), strict=True))
    (above, below), (left, right) = width["H"], width["W"]
    own = four_pads(attrs["padding"])
    attrs["padding"] = [one + more for one, more in zip(own, (above, left, below, right), strict=True)]

    def build(lookup: Lookup) -> Node:
        call = relay.nn.conv2d(lookup(pad.args[0]), lookup(convolution.args[1]), **attrs)
        return relay.Call(call.op, list(call.args), call.attrs, None, convolution.span)

    return build


def _first_operand(call: Node) -> Callable[[Lookup], Node]:
    return lambda lookup: lookup(call.args[0])
