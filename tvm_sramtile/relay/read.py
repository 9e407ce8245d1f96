"""What a Relay function asks of the accelerator: its operators with their epilogues, or why they are refused."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tvm_sramtile.geometry import Elementwise
from tvm_sramtile.ir import Activation, Step, Tensor
from tvm_sramtile.plan import pool_in_two
from tvm_sramtile.relay.access import dtype_of, named_ops, op_name, short_name, static_shape
from tvm_sramtile.relay.graph import Graph, Node
from tvm_sramtile.relay.read_concatenate import read_concatenate
from tvm_sramtile.relay.read_convolution import read_conv2d, read_conv2d_transpose, read_matmul
from tvm_sramtile.relay.read_epilogue import Epilogue, epilogue_of, gate_at
from tvm_sramtile.relay.read_pointwise import BINARY_NAMES, UNARY_NAMES, read_binary, read_unary
from tvm_sramtile.relay.read_spatial import (
    read_adaptive_pool2d,
    read_avg_pool2d,
    read_global_pool2d,
    read_max_pool2d,
    read_reduction,
    read_resize2d,
    read_upsampling,
)
from tvm_sramtile.relay.reading import Pointwise, Reading, RefusedError, Scene, images_of

DATA, WEIGHT, BIAS, OTHER, VECTOR, OUTPUT = "data", "weight", "bias", "other", "vector", "output"
REFERENCES = "its function uses references, whose order of execution must not change"


@dataclass(frozen=True, slots=True)
class Found:
    """An operator that has a reader, with its epilogue.

    Attributes:
        kind: short name of the operator, as ``conv2d``.
        name: what reports call it.
        nodes: the operator, then what the epilogue takes in; the last one's value is what the steps compute.
        operands: the nodes behind the tensors that no step writes, by the tensors' names.
        steps: what is computed, in order; the constants without their digests. Mostly one; a concatenation has one for
            each of its parts. The last one's output is the value of the last node.
        refusal: why there are no steps.
    """

    kind: str
    name: str
    nodes: tuple[Node, ...]
    operands: Mapping[str, Node]
    steps: tuple[Step, ...]
    refusal: str = ""

    @property
    def step(self) -> Step | None:
        """The only step; ``None`` where there is none, or more than one."""
        return self.steps[0] if len(self.steps) == 1 else None

    @property
    def root(self) -> Node:
        """The node whose value is computed."""
        return self.nodes[-1]


_Reader = Callable[[Node, Scene], "Reading | tuple[Reading, ...]"]
_READERS: dict[str, _Reader] = {
    "nn.conv2d": read_conv2d,
    "nn.conv2d_transpose": read_conv2d_transpose,
    "nn.dense": read_matmul,
    "nn.matmul": read_matmul,
    "nn.max_pool2d": read_max_pool2d,
    "nn.avg_pool2d": read_avg_pool2d,
    "nn.global_max_pool2d": read_global_pool2d,
    "nn.global_avg_pool2d": read_global_pool2d,
    "nn.adaptive_max_pool2d": read_adaptive_pool2d,
    "nn.adaptive_avg_pool2d": read_adaptive_pool2d,
    "mean": read_reduction,
    "max": read_reduction,
    "image.resize2d": read_resize2d,
    "nn.upsampling": read_upsampling,
    "concatenate": read_concatenate,
    **dict.fromkeys(BINARY_NAMES, read_binary),
    **dict.fromkeys(UNARY_NAMES, read_unary),
}
OPERATORS = tuple(_READERS)
"""The operators that the accelerator may take."""


def find_steps(
    graph: Graph, accept: Callable[[Found], bool] = lambda _: True, *, epilogue: bool = True
) -> tuple[Found, ...]:
    """All operators of a function that have a reader, in order of execution, each call in one of them only.

    Args:
        graph: of a function whose types have been inferred.
        accept: whether to take in what was found. If not, the operator is tried without its epilogue, whose calls are
            then operators of their own.
        epilogue: take in what follows; else each operator is by itself.
    """
    finder = _Finder(Scene(graph), accept, epilogue)
    for node, name in named_ops(graph):
        if op_name(node) in _READERS and node not in finder.taken:
            finder.read(node, name)
    return tuple(finder.found)


@dataclass(slots=True)
class _Finder:
    """Reads operators one after the other.

    Attributes:
        taken: calls that belong to what was found.
    """

    scene: Scene
    accept: Callable[[Found], bool]
    epilogue: bool
    found: list[Found] = field(default_factory=list)
    taken: set[Node] = field(default_factory=set)

    def read(self, call: Node, name: str) -> None:
        """Read the operator that is called."""
        readings: tuple[Reading, ...] = ()
        refusal = REFERENCES if self.scene.graph.has_references else ""
        if not refusal:
            try:
                read = _READERS[op_name(call)](call, self.scene)
                readings = read if isinstance(read, tuple) else (read,)
            except RefusedError as reason:
                refusal = str(reason)
        for found in self._candidates(call, name, readings, refusal):
            if self.accept(found):
                break
        self.found.append(found)
        self.taken |= set(found.nodes)
        if readings:
            self.scene.layouts.update(dict.fromkeys(found.nodes, readings[0].output_layout))

    def _candidates(self, call: Node, name: str, readings: tuple[Reading, ...], refusal: str) -> Iterator[Found]:
        """The operator with all that it can take in, then in smaller steps, then alone."""
        if not readings:
            yield Found(short_name(call), name, (call,), {}, (), refusal)
            return
        if self.epilogue and len(readings) == 1:
            gate = self._gate(call, readings[0])
            longest = epilogue_of(readings[0], call, self.scene.graph, self.taken, gate)
            if longest.nodes:
                reading = readings[0] if gate is None else _as_copy(readings[0])
                whole = self._made(call, name, (reading,), longest)
                yield whole
                yield from _in_smaller_steps(whole)
        alone = self._made(call, name, readings, Epilogue(activations=readings[0].activations))
        yield alone
        if smaller := [*_in_smaller_steps(alone)] if self.epilogue else []:
            yield from (*smaller, alone)

    def _gate(self, call: Node, reading: Reading) -> Epilogue | None:
        if op_name(call) not in (*BINARY_NAMES, *UNARY_NAMES):
            return None
        gate = gate_at(reading.data, call, reading.layout, self.scene.graph)
        return None if gate is None or self.taken & set(gate.nodes) else gate

    def _made(self, call: Node, name: str, readings: tuple[Reading, ...], epilogue: Epilogue) -> Found:
        nodes = (call, *epilogue.nodes)
        namer = _Namer(self.scene.graph)
        layout = readings[0].output_layout
        output = Tensor(OUTPUT, static_shape(nodes[-1]) or (), dtype_of(nodes[-1]), layout=layout)
        steps: list[Step] = []
        channel = 0
        for index, reading in enumerate(readings):
            step = _step(name if len(readings) == 1 else f"{name}.{index}", reading, epilogue, namer, output)
            steps.append(replace(step, output_channel=channel, origin=tuple(map(op_name, nodes))))
            channel += reading.op.out_channels
        return Found(short_name(call), name, nodes, namer.operands, tuple(steps))


def _in_smaller_steps(found: Found) -> Iterator[Found]:
    """The same in more steps that take less room each, if there is a way."""
    smaller = None if found.step is None else pool_in_two(found.step)
    if smaller is not None:
        yield replace(found, steps=smaller)


def _as_copy(reading: Reading) -> Reading:
    """The data of an elementwise operator as it is."""
    op = reading.op
    copied = Elementwise(op.in_channels, op.in_rows, op.in_cols, "copy")
    return Reading(copied, reading.data, reading.layout, reading.layout)


def _step(name: str, reading: Reading, epilogue: Epilogue, namer: _Namer, output: Tensor) -> Step:
    op, other = reading.op, None
    data = namer.map(DATA, reading.data, reading.layout)
    if reading.other is not None:
        is_map = getattr(op, "partner", "") == "map"
        other = namer.map(OTHER, reading.other, reading.layout) if is_map else namer.vector(OTHER, reading.other)
    return Step(
        name=name,
        op=op,
        data=data,
        weight=None if reading.weight is None else namer.weight(WEIGHT, reading.weight, reading.weight_layout),
        output=output,
        images=images_of(reading.data, reading.layout),
        bias=None if epilogue.bias is None else namer.vector(BIAS, epilogue.bias),
        clip=epilogue.clip,
        other=other,
        activations=tuple(_activation(activation, namer) for activation in epilogue.activations),
    )


def _activation(pointwise: Pointwise, namer: _Namer) -> Activation:
    vector = None if pointwise.other is None else namer.vector(VECTOR, pointwise.other)
    return Activation(pointwise.function, vector, pointwise.value0, pointwise.value1)


@dataclass(slots=True)
class _Namer:
    """Gives tensors their names: each node one for each way in which it is read."""

    graph: Graph
    operands: dict[str, Node] = field(default_factory=dict)
    _names: dict[Hashable, str] = field(default_factory=dict)

    def map(self, role: str, node: Node, layout: str) -> Tensor:
        """A map with these axes."""
        return self._tensor("map", role, node, layout)

    def weight(self, role: str, node: Node, layout: str) -> Tensor:
        """The kernel of a convolution."""
        return self._tensor("weight", role, node, layout)

    def vector(self, role: str, node: Node) -> Tensor:
        """One value a channel."""
        return self._tensor("vector", role, node, "")

    def _tensor(self, kind: str, role: str, node: Node, layout: str) -> Tensor:
        node = self.graph.literal(node)
        key = (kind, layout, node)
        if key not in self._names:
            self._names[key] = _free(role, self.operands)
            self.operands[self._names[key]] = node
        return Tensor(self._names[key], static_shape(node) or (), dtype_of(node), layout=layout)


def _free(role: str, taken: Mapping[str, Node]) -> str:
    name, count = role, 0
    while name in taken:
        count += 1
        name = f"{role}{count}"
    return name
