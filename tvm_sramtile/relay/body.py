"""A region's body compared with its plan: what TVM would run is what the accelerator is told to do.

The body that the attributes ask for is emitted once more, and the two are compared value by value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relay

from tvm_sramtile.attributes import RegionAttributes
from tvm_sramtile.errors import CheckFailed
from tvm_sramtile.ir import digest_of
from tvm_sramtile.relay.access import constant_value, dtype_of, is_constant, op_name, static_shape
from tvm_sramtile.relay.emit import body_is_chunked, region_function
from tvm_sramtile.relay.functions import constant_nodes
from tvm_sramtile.relay.graph import Graph, Node, graph_of


def check_function(name: str, function: Any, attributes: RegionAttributes) -> None:
    """Compare the body of a region with its plan: it is the operators whole, or the plan's chunks.

    Raises:
        CheckFailed: the body computes something else than the plan says.
    """
    region = attributes.region
    if len(function.params) != len(region.inputs):
        raise CheckFailed(f"function {name}: it has {len(function.params)} parameters, its region {len(region.inputs)}")
    for param, tensor in zip(function.params, region.inputs, strict=True):
        if (static_shape(param), dtype_of(param)) != (tensor.shape, tensor.dtype):
            raise CheckFailed(f"function {name}: parameter {param.name_hint} is not {tensor.dtype} {tensor.shape}")
    literals = constant_nodes(function)
    for constant in region.constants:
        if str(constant.digest) not in literals:
            raise CheckFailed(f"function {name}: it does not carry its constant {constant.name} {constant.shape}")
    chunked = body_is_chunked(attributes)
    difference = _difference(function, region_function(attributes, literals, chunked=chunked))
    # The limit of chunks to unroll is no part of what is computed: the other body is right as well.
    if difference is None or _difference(function, region_function(attributes, literals, chunked=not chunked)) is None:
        return
    raise CheckFailed(f"function {name}: {difference}")


def _difference(found: Any, wanted: Any) -> str | None:
    """The first difference between two functions of as many parameters; ``None`` where they compute the same."""
    params = dict(zip(found.params, wanted.params, strict=True))
    return _Comparison(graph_of(found.body), params).run(found.body, wanted.body)


@dataclass(slots=True)
class _Comparison:
    """Goes through two functions at once, each pair of values once.

    Attributes:
        graph: of the function that is checked.
        params: from its parameters to those of the other.
    """

    graph: Graph
    params: Mapping[Node, Node]
    same: set[tuple[Node, Node]] = field(default_factory=set)

    def run(self, found: Node, wanted: Node) -> str | None:
        """The first difference; a sum of many parts is too deep to recurse."""
        waiting = [(found, wanted, "its result")]
        while waiting:
            ours, theirs, name = waiting.pop()
            ours = self.graph.resolve(ours)
            if (ours, theirs) in self.same:
                continue
            if not self._is_like(ours, theirs):
                return f"{name} is {_text(ours)} in its body, {_text(theirs)} by its plan"
            self.same.add((ours, theirs))
            waiting += reversed(list(_operands(ours, theirs)))
        return None

    def _is_like(self, ours: Node, theirs: Node) -> bool:
        """Whether two values are the same, their operands apart."""
        if is_constant(ours) or is_constant(theirs):
            return is_constant(ours) and is_constant(theirs) and _is_same_constant(ours, theirs)
        if isinstance(theirs, relay.Var):
            return isinstance(ours, relay.Var) and theirs.same_as(self.params.get(ours))
        if isinstance(theirs, relay.Tuple):
            return isinstance(ours, relay.Tuple) and len(ours.fields) == len(theirs.fields)
        if not isinstance(ours, relay.Call) or len(ours.args) != len(theirs.args):
            return False
        return bool(ours.op == theirs.op and tvm.ir.structural_equal(ours.attrs, theirs.attrs))


def _is_same_constant(ours: Node, theirs: Node) -> bool:
    return bool(ours.same_as(theirs)) or digest_of(constant_value(ours)) == digest_of(constant_value(theirs))


def _operands(ours: Node, theirs: Node) -> Iterator[tuple[Node, Node, str]]:
    if isinstance(theirs, relay.Call):
        for index, pair in enumerate(zip(ours.args, theirs.args, strict=True)):
            yield (*pair, f"operand {index} of {op_name(theirs)}")
    elif isinstance(theirs, relay.Tuple):
        for index, pair in enumerate(zip(ours.fields, theirs.fields, strict=True)):
            yield (*pair, f"part {index}")


def _text(value: Node) -> str:
    if is_constant(value):
        return f"a constant of shape {static_shape(value)}"
    if isinstance(value, relay.Tuple):
        return f"a tuple of {len(value.fields)}"
    if isinstance(value, relay.Var):
        return f"parameter {value.name_hint}"
    if not op_name(value):
        return type(value).__name__
    attrs = value.attrs
    named = {} if attrs is None else {str(key): attrs[key] for key in attrs.keys()}  # noqa: SIM118 - no dict
    return f"{op_name(value)}({', '.join(f'{key}={named[key]}' for key in named)})"
