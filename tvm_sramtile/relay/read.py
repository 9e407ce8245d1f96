"""Finds what the accelerator may take in a Relay function: convolutions with their epilogues, as steps or refusals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relay, tir
from tvm.ir import Op

from tvm_sramtile.geometry import Conv2d
from tvm_sramtile.ir import Clip, Region, Step, Tensor, digest_of
from tvm_sramtile.relay.graph import Graph, Node

CONV2D = "nn.conv2d"
_RESHAPING = ("reshape", "expand_dims", "squeeze")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an operator is no step: an attribute, its value, and what the accelerator takes."""

    attribute: str
    value: object
    takes: str

    def __str__(self) -> str:
        return f"{self.attribute} = {self.value}: the accelerator takes {self.takes}"


@dataclass(frozen=True, slots=True)
class Match:
    """A convolution and the epilogue that only it feeds: ``clip(conv2d(data, weight) + bias)``.

    Attributes:
        name: what reports call it.
        nodes: the nodes that become one step, the convolution first; the last one's value is the step's.
        operands: data, weight, and the bias if there is one.
        clip: limits of the values.
    """

    name: str
    nodes: tuple[Node, ...]
    operands: tuple[Node, ...]
    clip: Clip | None = None

    @property
    def root(self) -> Node:
        """The node whose value the step computes."""
        return self.nodes[-1]

    @property
    def bias(self) -> Node | None:
        """What is added to each channel."""
        return self.operands[2] if len(self.operands) > 2 else None

    def alone(self) -> Match:
        """The convolution without its epilogue."""
        return Match(self.name, self.nodes[:1], self.operands[:2])


def find_matches(graph: Graph) -> tuple[Match, ...]:
    """Every ``nn.conv2d`` of a function with its epilogue, in order of execution; types must have been inferred."""
    return tuple(
        _grow(graph, Match(name, (node,), tuple(graph.literal(operand) for operand in node.args)))
        for node, name in named_ops(graph)
        if op_name(node) == CONV2D
    )


def op_name(node: Node) -> str | None:
    """The name of the operator that a node calls, if it calls one."""
    return node.op.name if isinstance(node, relay.Call) and isinstance(node.op, Op) else None


def short_name(node: Node) -> str:
    """The name of the operator that a node calls, without its namespace."""
    return str(op_name(node)).rpartition(".")[2]


def named_ops(graph: Graph) -> Iterator[tuple[Node, str]]:
    """The calls of operators, each with the importer's name for it, else the operator's and a number."""
    counts: Counter[str] = Counter()
    for node in graph.order:
        if op_name(node) is not None:
            kind = short_name(node)
            source = getattr(getattr(node, "span", None), "source_name", None)
            name = str(source.name) if source is not None else ""
            yield node, name or f"{kind}_{counts[kind]}"
            counts[kind] += 1


def _grow(graph: Graph, match: Match) -> Match:
    """Add operators of the epilogue as long as the value is theirs alone."""
    while True:
        user = graph.only_user(match.root)
        bias = _bias_added(graph, match, user)
        if bias is not None:
            match = Match(match.name, (*match.nodes, user), (*match.operands, graph.literal(bias)))
            continue
        clip = clip_of(user)
        if clip is None:
            return match
        match = Match(match.name, (*match.nodes, user), match.operands, match.clip.then(clip) if match.clip else clip)


def _bias_added(graph: Graph, match: Match, user: Node) -> Node | None:
    """The operand that ``user`` adds to the match's value, if that is a bias."""
    if match.bias is not None or match.clip is not None or op_name(user) not in ("nn.bias_add", "add"):
        return None
    shape = shape_of(match.root)
    if shape is None or len(shape) != 4:
        return None
    left, right = user.args
    is_left = graph.resolve(left).same_as(match.root)
    other = right if is_left else left
    if op_name(user) == "nn.bias_add":
        return other if is_left and user.attrs.axis in (1, -3) else None
    return other if _is_parameter(graph, other) and is_per_channel(other, shape[1]) else None


def _is_parameter(graph: Graph, node: Node) -> bool:
    """Whether a value is a constant or a parameter, perhaps reshaped."""
    node = graph.resolve(node)
    while op_name(node) in _RESHAPING:
        node = graph.resolve(node.args[0])
    return isinstance(node, relay.Constant | relay.Var)


def is_per_channel(node: Node, channels: int) -> bool:
    """Whether adding ``node`` to an NCHW map adds one element to each channel."""
    shape = shape_of(node)
    if shape is None or len(shape) > 4:
        return False
    return (1,) * (4 - len(shape)) + shape == (1, channels, 1, 1)


def clip_of(node: Node) -> Clip | None:
    """The limits that a node sets to its first operand, if that is all it does."""
    name = op_name(node)
    if name == "nn.relu":
        return Clip(0.0, None)
    if name == "clip":
        low, high = float(np.float32(node.attrs.a_min)), float(np.float32(node.attrs.a_max))
        return Clip(_finite(low), _finite(high)) if low <= high else None
    if name in ("maximum", "minimum") and isinstance(node.args[1], relay.Constant):
        value = node.args[1].data.numpy()
        if value.size == 1 and value.ndim <= 4 and value.dtype == np.float32 and np.isfinite(value).all():
            limit = float(value.reshape(()))
            return Clip(limit, None) if name == "maximum" else Clip(None, limit)
    return None


def _finite(limit: float) -> float | None:
    return limit if math.isfinite(limit) else None


def read_step(match: Match, *, digests: bool = True) -> Step | Refusal:
    """The step that a match describes, or why it is none.

    Args:
        match: from a function whose types have been inferred.
        digests: constant weights and biases are named by their values; else all are run-time values.
    """
    for name, node in zip(_ROLES, match.operands, strict=False):
        if shape_of(node) is None:
            return Refusal(f"shape of {name}", _type_text(node), "static shapes")
    op = read_conv2d(match.nodes[0])
    if isinstance(op, Refusal):
        return op
    tensors = [
        _tensor(name, node, digests and name != "data") for name, node in zip(_ROLES, match.operands, strict=False)
    ]
    return Step(
        name=match.name,
        op=op,
        data=tensors[0],
        weight=tensors[1],
        output=_tensor("output", match.root),
        images=tensors[0].shape[0],
        bias=tensors[2] if len(tensors) > 2 else None,
        clip=match.clip,
        origin=tuple(str(op_name(node)) for node in match.nodes),
    )


_ROLES = ("data", "weight", "bias")


def _tensor(name: str, node: Node, digests: bool = False) -> Tensor:
    digest = digest_of(node.data.numpy()) if digests and isinstance(node, relay.Constant) else None
    return Tensor(name, tuple(map(int, node.checked_type.shape)), str(node.checked_type.dtype), digest)


def read_conv2d(call: Node) -> Conv2d | Refusal:
    """The convolution that a call of ``nn.conv2d`` with static shapes computes."""
    attrs = call.attrs
    for name, taken in (("data_layout", "NCHW"), ("kernel_layout", "OIHW"), ("out_layout", "NCHW")):
        found = str(getattr(attrs, name)) or taken
        if found != taken:
            return Refusal(name, repr(found), repr(taken))
    data, weight = (node.checked_type for node in call.args)
    if call.checked_type.dtype != data.dtype:
        return Refusal("out_dtype", repr(call.checked_type.dtype), f"the dtype of data, {data.dtype!r}")
    _, in_channels, in_rows, in_cols = map(int, data.shape)
    out_channels, in_per_group, *kernel = map(int, weight.shape)
    groups = int(attrs.groups)
    if groups < 1 or in_per_group * groups != in_channels or out_channels % groups:
        weights = _text(map(int, weight.shape))
        return Refusal("groups", groups, f"groups that divide {in_channels} input channels as weight {weights} does")
    padding = four_pads(attrs.padding)
    if min(padding) < 0:
        return Refusal("padding", padding, "padding of at least 0")
    return Conv2d(
        in_channels=in_channels,
        in_rows=in_rows,
        in_cols=in_cols,
        out_channels=out_channels,
        kernel=(kernel[0], kernel[1]),
        strides=_pair(attrs.strides),
        padding=padding,
        dilation=_pair(attrs.dilation),
        groups=groups,
    )


def four_pads(padding: Any) -> tuple[int, int, int, int]:
    """(top, left, bottom, right) from TVM's one, two or four numbers."""
    pads = tuple(int(pad) for pad in padding)
    if len(pads) == 4:
        return pads[0], pads[1], pads[2], pads[3]
    top, left = pads[0], pads[-1]
    return top, left, top, left


def _pair(numbers: Any) -> tuple[int, int]:
    values = tuple(int(number) for number in numbers)
    return values[0], values[-1]


def shape_of(node: Node) -> tuple[int, ...] | None:
    """The static shape of a tensor; ``None`` for other values and where an extent is known at run time only."""
    kind = node.checked_type
    if not isinstance(kind, relay.TensorType) or not all(isinstance(extent, tir.IntImm) for extent in kind.shape):
        return None
    return tuple(int(extent) for extent in kind.shape)


def _type_text(node: Node) -> str:
    kind = node.checked_type
    if not isinstance(kind, relay.TensorType):
        return type(kind).__name__
    return _text(int(extent) if isinstance(extent, tir.IntImm) else "?" for extent in kind.shape)


def _text(numbers: Any) -> str:
    return f"({', '.join(map(str, numbers))})"


def region_of(name: str, steps: Sequence[Step]) -> Region:
    """The region of one step: its run-time operands are the inputs."""
    (step,) = steps
    return Region(name, tuple(tensor for tensor in step.inputs if tensor.digest is None), (step.output,), (step,))
