"""Relay functions as graphs: nodes in order of execution, who uses what, replacement. Without recursion.

Nodes are objects of TVM, compared and hashed by identity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import relay
from tvm.ir import Op

Node = Any

_CLOSED = ("Compiler", "Composite", "Primitive")
_REFERENCES = (relay.RefCreate, relay.RefRead, relay.RefWrite)


def children(node: Node) -> tuple[Node, ...]:
    """The nodes that ``node`` is made of, in order of execution; none for leaves and for functions of a back end."""
    if isinstance(node, relay.Call):
        inner = () if isinstance(node.op, Op | relay.GlobalVar) else (node.op,)
        return (*inner, *node.args)
    if isinstance(node, relay.Tuple):
        return tuple(node.fields)
    if isinstance(node, relay.TupleGetItem):
        return (node.tuple_value,)
    if isinstance(node, relay.Function):
        return () if is_closed(node) else (node.body,)
    if isinstance(node, relay.Let):
        return (node.value, node.body)
    if isinstance(node, relay.If):
        return (node.cond, node.true_branch, node.false_branch)
    if isinstance(node, relay.Match):
        return (node.data, *(clause.rhs for clause in node.clauses))
    if isinstance(node, relay.RefCreate):
        return (node.value,)
    if isinstance(node, relay.RefRead):
        return (node.ref,)
    if isinstance(node, relay.RefWrite):
        return (node.ref, node.value)
    return ()


def is_closed(function: Node) -> bool:
    """Whether a back end, or TVM's own fusion, has taken this function already."""
    return any(attribute(function, name) is not None for name in _CLOSED)


def attribute(owner: Any, name: str) -> Any:
    """An attribute of a function or a module; ``None`` if it has no such."""
    attrs = owner.attrs
    return attrs[name] if attrs is not None and name in attrs.keys() else None  # noqa: SIM118 - no dict


def post_order(root: Node) -> Iterator[Node]:
    """Every node below ``root`` once, operands before their users, ``root`` last."""
    seen: set[Node] = set()
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, is_done = stack.pop()
        if is_done:
            yield node
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(children(node)))


@dataclass(frozen=True, slots=True)
class Graph:
    """The nodes of one function's body.

    Attributes:
        order: every node once, operands first.
        bound: values of ``let`` variables.
        users: for each node, the nodes that use its value, once for each use; a use through a ``let`` variable is a
            use of the value. What is the function's result is used by ``None``.
    """

    order: tuple[Node, ...]
    bound: Mapping[Node, Node]
    users: Mapping[Node, tuple[Node, ...]]

    @property
    def has_references(self) -> bool:
        """Whether values are read and written in an order of their own."""
        return any(isinstance(node, _REFERENCES) for node in self.order)

    def resolve(self, node: Node) -> Node:
        """What a ``let`` variable stands for; other nodes stand for themselves."""
        while isinstance(node, relay.Var) and node in self.bound:
            node = self.bound[node]
        return node

    def literal(self, node: Node) -> Node:
        """The constant that a node stands for; nodes that stand for none are returned as they are."""
        value = self.resolve(node)
        return value if isinstance(value, relay.Constant) else node

    def only_user(self, node: Node) -> Node:
        """The one user of a node's value; ``None`` when there are more or less, or it is the result."""
        users = self.users.get(node, ())
        return users[0] if len(users) == 1 else None


def graph_of(body: Node) -> Graph:
    """The graph of a function's body."""
    order = tuple(post_order(body))
    bound = {node.var: node.value for node in order if isinstance(node, relay.Let)}
    users: dict[Node, list[Node]] = {}
    graph = Graph(order, bound, {})
    for node in order:
        used = (node.body,) if isinstance(node, relay.Let) else children(node)
        # `let b = a` is no use of a: the uses of b are.
        for child in used:
            users.setdefault(graph.resolve(child), []).append(node)
    users.setdefault(graph.resolve(body), []).append(None)
    return Graph(order, bound, {node: tuple(found) for node, found in users.items()})


Lookup = Callable[[Node], Node]
"""From an old node to the new one that stands for it."""


def rewrite(graph: Graph, replace: Mapping[Node, Callable[[Lookup], Node]], absorbed: frozenset[Node]) -> Node:
    """The graph's last node, rebuilt with some nodes replaced.

    Args:
        graph: of the function's body.
        replace: makes a node's replacement, given what stands for its operands.
        absorbed: nodes that only replaced nodes have used; ``let`` bindings of them vanish.
    """
    new: dict[Node, Node] = {}

    def lookup(node: Node) -> Node:
        return new.get(node, node)

    for node in graph.order:
        if node in replace:
            new[node] = replace[node](lookup)
        elif isinstance(node, relay.Let) and graph.resolve(node.value) in absorbed:
            new[node] = lookup(node.body)
        elif node not in absorbed:
            rebuilt = _rebuild(node, lookup)
            if rebuilt is not node:
                new[node] = rebuilt
    return lookup(graph.order[-1])


def placed(node: Node, lookup: Lookup) -> Node:
    """What stands for a node of the graph, or for one that a reader has made of such nodes."""
    found = lookup(node)
    return _rebuild(node, lookup) if found.same_as(node) else found


@dataclass(frozen=True, slots=True)
class Edits:
    """What is to be replaced in one function."""

    replace: dict[Node, Callable[[Lookup], Node]] = field(default_factory=dict)
    absorbed: set[Node] = field(default_factory=set)

    def take(self, nodes: Sequence[Node], build: Callable[[Lookup], Node]) -> None:
        """Replace nodes, of which each is used by the next one only, by what ``build`` makes."""
        self.replace[nodes[-1]] = build
        self.absorbed.update(nodes[:-1])

    def apply(self, function: Any, graph: Graph) -> Any:
        """The function with its body rewritten."""
        body = rewrite(graph, self.replace, frozenset(self.absorbed))
        return relay.Function(function.params, body, function.ret_type, function.type_params, function.attrs)


def _rebuild(node: Node, lookup: Lookup) -> Node:
    parts = children(node)
    fresh = tuple(lookup(part) for part in parts)
    if all(one.same_as(other) for one, other in zip(parts, fresh, strict=True)):
        return node
    if isinstance(node, relay.Call):
        args = fresh[-len(node.args) :] if len(node.args) else ()
        operator = node.op if len(fresh) == len(node.args) else fresh[0]
        return relay.Call(operator, list(args), node.attrs, node.type_args, node.span)
    if isinstance(node, relay.Tuple):
        return relay.Tuple(list(fresh), node.span)
    if isinstance(node, relay.TupleGetItem):
        return relay.TupleGetItem(fresh[0], node.index)
    if isinstance(node, relay.Function):
        return relay.Function(node.params, fresh[0], node.ret_type, node.type_params, node.attrs)
    if isinstance(node, relay.Let):
        return relay.Let(node.var, *fresh)
    if isinstance(node, relay.If):
        return relay.If(*fresh)
    if isinstance(node, relay.Match):
        clauses = [relay.Clause(clause.lhs, rhs) for clause, rhs in zip(node.clauses, fresh[1:], strict=True)]
        return relay.Match(fresh[0], clauses, node.complete)
    return type(node)(*fresh)  # references
