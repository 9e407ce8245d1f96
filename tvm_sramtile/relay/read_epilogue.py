"""What follows an operator and can be done to each of its outputs at once: a bias, limits, activations."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose
from tvm_sramtile.ir import Clip
from tvm_sramtile.relay.access import dtype_of, op_name, static_shape
from tvm_sramtile.relay.graph import Graph, Node
from tvm_sramtile.relay.read_pointwise import bias_of, clip_of, clip_pointwise, pointwise_of
from tvm_sramtile.relay.reading import Pointwise, Reading, extents

_LONGEST_GATE = 6  # operators before the product
_HARD_SWISH = Pointwise("hard_swish")


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What is taken into a step after its operator.

    Attributes:
        bias: the node of a bias.
        nodes: the calls, in order.
    """

    bias: Node = None
    clip: Clip | None = None
    activations: tuple[Pointwise, ...] = ()
    nodes: tuple[Node, ...] = ()


def epilogue_of(reading: Reading, call: Node, graph: Graph, taken: Set[Node], gate: Epilogue | None = None) -> Epilogue:
    """Follow the value as long as nothing else uses it and each use is one we know.

    Args:
        reading: the operator.
        call: its call.
        graph: of the function.
        taken: calls that belong to other operators already: those that yield their second operands.
        gate: what the operator begins, where its data is multiplied with a function of itself.
    """
    follower = _Follower(graph, reading.output_layout, isinstance(reading.op, Conv2d | Conv2dTranspose), taken)
    epilogue = gate or Epilogue(activations=reading.activations)
    value = epilogue.nodes[-1] if epilogue.nodes else call
    while (longer := follower.longer(epilogue, value)) is not None:
        epilogue = longer
        value = epilogue.nodes[-1]
    return epilogue


def gate_at(data: Node, call: Node, layout: str, graph: Graph) -> Epilogue | None:
    """The gate of ``data`` that begins with ``call``, as activations of a copy; the nodes are its later ones."""
    found = _gate(graph.resolve(data), call, layout, graph)
    return None if found is None else replace(found, nodes=found.nodes[1:])


@dataclass(frozen=True, slots=True)
class _Follower:
    """Takes one more call into an epilogue.

    Attributes:
        layout: the axes of the value.
        convolves: the operator takes a bias and a clip of its own.
        taken: calls that are not to be taken in.
    """

    graph: Graph
    layout: str
    convolves: bool
    taken: Set[Node]

    def longer(self, epilogue: Epilogue, value: Node) -> Epilogue | None:
        """The epilogue with what comes after ``value``, its last; ``None`` at its end."""
        user = self.graph.only_user(value)
        if user is None:
            return self._with_gate(epilogue, value)
        if user in self.taken or not _yields_like(user, value):
            return None
        epilogue = replace(epilogue, nodes=(*epilogue.nodes, user))
        if self.convolves and not epilogue.activations:
            if epilogue.bias is None and epilogue.clip is None:
                bias = bias_of(user, value, extents(value, self.layout)["C"], self.layout, self.graph)
                if bias is not None:
                    return replace(epilogue, bias=bias)
            clip = clip_of(user, value, self.graph)
            if clip is not None:
                return replace(epilogue, clip=clip if epilogue.clip is None else epilogue.clip.then(clip))
        found = _activation(user, value, self.layout, self.graph)
        return None if found is None else _appended(epilogue, found)

    def _with_gate(self, epilogue: Epilogue, value: Node) -> Epilogue | None:
        """The value used twice, and both uses are one gate."""
        users = self.graph.users.get(value, ())
        if len(users) != 2 or None in users:
            return None
        for start, end in (users, users[::-1]):
            gate = _gate(value, start, self.layout, self.graph)
            if gate is not None and gate.nodes[-1].same_as(end) and not self.taken & set(gate.nodes):
                return replace(
                    epilogue,
                    activations=(*epilogue.activations, *gate.activations),
                    nodes=(*epilogue.nodes, *gate.nodes),
                )
        return None


def _yields_like(call: Node, value: Node) -> bool:
    """Whether a node calls an operator that yields a tensor like ``value``."""
    return bool(op_name(call)) and static_shape(call) == static_shape(value) and dtype_of(call) == dtype_of(value)


def _activation(call: Node, value: Node, layout: str, graph: Graph) -> Pointwise | None:
    clip = clip_of(call, value, graph)
    if clip is not None:
        return clip_pointwise(clip)
    found = pointwise_of(call, value, layout, graph)
    return None if found is None or found.partner == "map" else found


def _appended(epilogue: Epilogue, new: Pointwise) -> Epilogue:
    """One activation more; what undoes the scale of a gate, or limits limits, takes its place."""
    *before, last = epilogue.activations or (None,)
    if last is not None and last.function == new.function == "clip":
        merged = _clip_of(last).then(_clip_of(new))
        return replace(epilogue, activations=(*before, clip_pointwise(merged)))
    scaled = Pointwise("multiply", "value", None, new.value0)
    if (new.function, new.partner) == ("divide", "value") and epilogue.activations[-2:] == (_HARD_SWISH, scaled):
        return replace(epilogue, activations=tuple(before))
    return replace(epilogue, activations=(*epilogue.activations, new))


def _clip_of(activation: Pointwise) -> Clip:
    low, high = activation.value0, activation.value1
    return Clip(None if low == -math.inf else low, None if high == math.inf else high)


# Gates: a map times a function of itself.


def _gate(value: Node, start: Node, layout: str, graph: Graph) -> Epilogue | None:
    """What begins at ``start`` with a function of ``value``, if it ends in that function times ``value``."""
    chain: list[Pointwise] = []
    nodes: list[Node] = []
    current, call = value, start
    while call is not None and len(chain) <= _LONGEST_GATE:
        if not _yields_like(call, value):
            return None
        nodes.append(call)
        if chain and _multiplies(call, value, current, graph):
            activations = _gate_activations(chain)
            return Epilogue(activations=activations, nodes=tuple(nodes)) if activations else None
        found = _activation(call, current, layout, graph)
        if found is None or found.partner == "vector":
            return None
        chain.append(found)
        current, call = call, graph.only_user(call)
    return None


def _multiplies(call: Node, first: Node, second: Node, graph: Graph) -> bool:
    if op_name(call) != "multiply":
        return False
    left, right = (graph.resolve(argument) for argument in call.args)
    return (left.same_as(first) and right.same_as(second)) or (left.same_as(second) and right.same_as(first))


def _gate_activations(chain: Sequence[Pointwise]) -> tuple[Pointwise, ...]:
    """The functions that equal a value times ``chain`` of it; none where there is no such."""
    if chain == [Pointwise("sigmoid")]:
        return (Pointwise("silu"),)
    scale = _hard_swish_scale(chain)
    if scale is None:
        return ()
    return (_HARD_SWISH,) if _close(scale, 1) else (_HARD_SWISH, Pointwise("multiply", "value", None, scale))


def _hard_swish_scale(chain: Sequence[Pointwise]) -> float | None:
    """``s`` where ``chain`` of x is ``s*clip(x + 3, 0, 6)/6``."""
    slope, offset, after = 1.0, 0.0, 1.0
    clip: Clip | None = None
    for link in chain:
        number = link.value0
        match link.function, link.partner:
            case "clip", _:
                clip = _clip_of(link) if clip is None else clip.then(_clip_of(link))
                if after != 1:
                    return None
            case (("multiply" | "divide"), "value") if number > 0:
                factor = number if link.function == "multiply" else 1 / number
                if clip is None:
                    slope, offset = slope * factor, offset * factor
                else:
                    after *= factor
            case (("add" | "subtract"), "value") if clip is None:
                offset += number if link.function == "add" else -number
            case _:
                return None
    if clip is None or clip.low != 0 or clip.high is None:
        return None
    return 6 * slope * after if _close(offset, 3 * slope) and _close(clip.high, 6 * slope) else None


def _close(first: float, second: float) -> bool:
    return math.isclose(first, second, rel_tol=1e-6)
