"""Explicit padding: what convolutions can do themselves becomes theirs, all else stays with a reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import relay

from tvm_sramtile.geometry.explicit_pad import NO_READER, Width, pad_refusal, pads_nothing, spatial_pads
from tvm_sramtile.relay.access import constant_value, four_pads, is_constant, op_name
from tvm_sramtile.relay.graph import Edits, Graph, Lookup, Node, graph_of

PAD = "nn.pad"


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
        if pads_nothing(_width(node)):
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
    value = graph.literal(pad.args[1])
    number = float(constant_value(value)) if is_constant(value) else None
    return pad_refusal(str(pad.attrs.pad_mode), number, _width(pad))


def _width(pad: Node) -> Width:
    return tuple((int(before), int(after)) for before, after in pad.attrs.pad_width)


def _convolutions(graph: Graph, pad: Node) -> tuple[Node, ...]:
    """The convolutions whose data the padded map is, if it is used in no other way."""
    readers = graph.users.get(pad, ())
    for call in readers:
        if call is None or op_name(call) != "nn.conv2d" or graph.resolve(call.args[0]) != pad:
            return ()
        if spatial_pads(_width(pad), str(call.attrs.data_layout)) is None:
            return ()
    return readers if len(set(readers)) == len(readers) else ()


def _padded(convolution: Node, pad: Node) -> Callable[[Lookup], Node]:
    attrs = {name: convolution.attrs[name] for name in convolution.attrs.keys()}  # noqa: SIM118 - no dict
    more = spatial_pads(_width(pad), str(attrs["data_layout"])) or ()
    attrs["padding"] = [own + extent for own, extent in zip(four_pads(attrs["padding"]), more, strict=True)]

    def build(lookup: Lookup) -> Node:
        call = relay.nn.conv2d(lookup(pad.args[0]), lookup(convolution.args[1]), **attrs)
        return relay.Call(call.op, list(call.args), call.attrs, None, convolution.span)

    return build


def _first_operand(call: Node) -> Callable[[Lookup], Node]:
    return lambda lookup: lookup(call.args[0])
