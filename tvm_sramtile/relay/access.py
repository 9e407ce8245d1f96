"""The parts of Relay expressions that the front end reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relay, tir
from tvm.ir import Op

from tvm_sramtile.relay.graph import Graph, Node


def is_constant(node: Node) -> bool:
    """Whether ``node`` is a literal tensor."""
    return isinstance(node, relay.Constant)


def constant_value(node: Node) -> NDArray[np.generic]:
    """The value of a literal tensor."""
    return node.data.numpy()


def op_name(node: Node) -> str:
    """The operator that a node calls, as ``nn.conv2d``; "" for anything else."""
    return str(node.op.name) if isinstance(node, relay.Call) and isinstance(node.op, Op) else ""


def short_name(node: Node) -> str:
    """The operator that a node calls, without its namespace."""
    return op_name(node).rpartition(".")[2]


def named_ops(graph: Graph) -> Iterator[tuple[Node, str]]:
    """The calls of operators, each with the importer's name for it, else the operator's and a number."""
    counts: Counter[str] = Counter()
    for node in graph.order:
        if op_name(node):
            kind = short_name(node)
            source = getattr(getattr(node, "span", None), "source_name", None)
            name = str(source.name) if source is not None else ""
            yield node, name or f"{kind}_{counts[kind]}"
            counts[kind] += 1


def dtype_of(node: Node) -> str:
    """TVM's name of a tensor's element type; "" for what is no tensor."""
    if is_constant(node):
        return str(node.data.dtype)
    kind = node.checked_type
    return str(kind.dtype) if isinstance(kind, relay.TensorType) else ""


def static_shape(node: Node) -> tuple[int, ...] | None:
    """The shape of a tensor; ``None`` for other values and where an extent is known at run time only."""
    if is_constant(node):
        return tuple(map(int, node.data.shape))
    kind = node.checked_type
    if not isinstance(kind, relay.TensorType) or not all(isinstance(extent, tir.IntImm) for extent in kind.shape):
        return None
    return tuple(int(extent) for extent in kind.shape)


def shape_text(node: Node) -> str:
    """A shape for messages, its unknown extents as question marks."""
    kind = node.checked_type
    if not isinstance(kind, relay.TensorType):
        return type(kind).__name__
    return "(" + ", ".join(str(int(e)) if isinstance(e, tir.IntImm) else "?" for e in kind.shape) + ")"


def four_pads(padding: Any) -> tuple[int, int, int, int]:
    """(top, left, bottom, right) from TVM's one, two or four numbers."""
    pads = tuple(int(pad) for pad in padding)
    if len(pads) == 4:
        return pads[0], pads[1], pads[2], pads[3]
    top, left = pads[0], pads[-1]
    return top, left, top, left


def pair(numbers: Any) -> tuple[int, int]:
    """(rows, cols) from TVM's one or two numbers."""
    values = tuple(int(number) for number in numbers)
    return values[0], values[-1]
