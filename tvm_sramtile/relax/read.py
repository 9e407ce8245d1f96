"""What a Relax function asks of the accelerator: its operators with their epilogues, or why they are refused."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tvm import relax

from tvm_sramtile.geometry import Conv2d, Elementwise, Operator
from tvm_sramtile.ir import Activation, Step, Tensor
from tvm_sramtile.plan import pool_in_two
from tvm_sramtile.relax.access import dtype_of, op_name, static_shape
from tvm_sramtile.relax.read_concat import read_concat
from tvm_sramtile.relax.read_convolution import read_conv2d, read_conv2d_transpose, read_matmul
from tvm_sramtile.relax.read_epilogue import Epilogue, epilogue_of, gate_at
from tvm_sramtile.relax.read_pointwise import (
    BINARY_NAMES,
    UNARY_NAMES,
    bias_of,
    clip_of,
    read_binary,
    read_unary,
)
from tvm_sramtile.relax.read_spatial import (
    read_adaptive_avg_pool2d,
    read_avg_pool2d,
    read_max,
    read_max_pool2d,
    read_mean,
    read_resize2d,
)
from tvm_sramtile.relax.reading import Pointwise, Reading, RefusedError, Scene, images_of
from tvm_sramtile.relax.walk import Place, Uses, blocks_of, identity

__all__ = ["Found", "bias_of", "clip_of", "conv2d_of", "find_steps", "operator_of"]

DATA, WEIGHT, BIAS, OTHER, VECTOR, OUTPUT = "data", "weight", "bias", "other", "vector", "output"


@dataclass(frozen=True, slots=True)
class Found:
    """An operator that has a reader, with its epilogue.

    Attributes:
        kind: short name of the operator, as ``conv2d``.
        name: the variable it is bound to.
        places: its bindings: the operator, then what the epilogue takes in. They are all in one block.
        operands: the expressions behind the tensors that no step writes, by the tensors' names.
        steps: what is computed, in order; the constants without their digests. Mostly one; a concatenation has one for
            each of its parts. The last one's output is the value of the last binding.
        refusal: why there are no steps.
    """

    kind: str
    name: str
    places: tuple[Place, ...]
    operands: Mapping[str, Any]
    steps: tuple[Step, ...]
    refusal: str = ""

    @property
    def step(self) -> Step | None:
        """The only step; ``None`` where there is none, or more than one."""
        return self.steps[0] if len(self.steps) == 1 else None


_Reader = Callable[[Any, Scene], "Reading | tuple[Reading, ...]"]
_READERS: dict[str, _Reader] = {
    "relax.nn.conv2d": read_conv2d,
    "relax.nn.conv2d_transpose": read_conv2d_transpose,
    "relax.matmul": read_matmul,
    "relax.nn.max_pool2d": read_max_pool2d,
    "relax.nn.avg_pool2d": read_avg_pool2d,
    "relax.nn.adaptive_avg_pool2d": read_adaptive_avg_pool2d,
    "relax.mean": read_mean,
    "relax.max": read_max,
    "relax.image.resize2d": read_resize2d,
    "relax.concat": read_concat,
    **dict.fromkeys(BINARY_NAMES, read_binary),
    **dict.fromkeys(UNARY_NAMES, read_unary),
}


def find_steps(
    function: relax.Function, accept: Callable[[Found], bool] = lambda _: True, *, epilogue: bool = True
) -> tuple[Found, ...]:
    """All operators of ``function`` that have a reader, in program order, each binding in one of them only.

    Args:
        function: where to look.
        accept: whether to take in what was found. If not, the operator is tried without its epilogue, whose bindings
            are then operators of their own.
        epilogue: take in what follows; else each operator is by itself.
    """
    if not any(_reader(binding) for block in blocks_of(function.body) for binding in block.bindings):
        return ()
    finder = _Finder(Scene(Uses.of(function)), accept, epilogue)
    for block in blocks_of(function.body):
        for position, binding in enumerate(block.bindings):
            if _reader(binding) is not None and (identity(block), position) not in finder.taken:
                finder.read(block, position)
    return tuple(finder.found)


def _reader(binding: Any) -> _Reader | None:
    return _READERS.get(op_name(binding.value)) if isinstance(binding, relax.VarBinding) else None


@dataclass(slots=True)
class _Finder:
    """Reads operators one after the other.

    Attributes:
        taken: bindings that belong to what was found.
    """

    scene: Scene
    accept: Callable[[Found], bool]
    epilogue: bool
    found: list[Found] = field(default_factory=list)
    taken: set[Place] = field(default_factory=set)

    def read(self, block: Any, position: int) -> None:
        """Read the operator at ``position``."""
        call = block.bindings[position].value
        readings: tuple[Reading, ...] = ()
        refusal = ""
        try:
            read = _READERS[op_name(call)](call, self.scene)
            readings = read if isinstance(read, tuple) else (read,)
        except RefusedError as reason:
            refusal = str(reason)
        for found in self._candidates(block, position, readings, refusal):
            if self.accept(found):
                break
        self.found.append(found)
        self.taken |= set(found.places)
        if readings:
            for _, at in found.places:
                self.scene.layouts[identity(block.bindings[at].var)] = readings[0].output_layout

    def _candidates(self, block: Any, position: int, readings: tuple[Reading, ...], refusal: str) -> Iterator[Found]:
        """The operator with all that it can take in, then in smaller steps, then alone."""
        kind = op_name(block.bindings[position].value).rpartition(".")[2]
        if not readings:
            name = str(block.bindings[position].var.name)
            yield Found(kind, name, ((identity(block), position),), {}, (), refusal)
            return
        if self.epilogue and len(readings) == 1:
            gate = self._gate(block, position, readings[0])
            home = identity(block)
            longest = epilogue_of(
                readings[0], block, position, self.scene.uses, lambda at: (home, at) not in self.taken, gate
            )
            if longest.positions:
                reading = readings[0] if gate is None else _as_copy(readings[0])
                whole = self._made(kind, block, position, (reading,), longest)
                yield whole
                yield from _in_smaller_steps(whole)
        plain = Epilogue(activations=readings[0].activations)
        alone = self._made(kind, block, position, readings, plain)
        yield alone
        if smaller := [*_in_smaller_steps(alone)] if self.epilogue else []:
            yield from (*smaller, alone)

    def _gate(self, block: Any, position: int, reading: Reading) -> Epilogue | None:
        call = block.bindings[position].value
        if op_name(call) not in (*BINARY_NAMES, *UNARY_NAMES):
            return None
        gate = gate_at(reading.data, block, position, reading.layout, self.scene.uses)
        taken = gate is not None and any((identity(block), at) in self.taken for at in gate.positions)
        return None if taken else gate

    def _made(self, kind: str, block: Any, position: int, readings: tuple[Reading, ...], epilogue: Epilogue) -> Found:
        positions = (position, *epilogue.positions)
        names = tuple(str(block.bindings[at].var.name) for at in positions)
        namer = _Namer(self.scene.uses)
        last = block.bindings[positions[-1]].var
        output = Tensor(OUTPUT, static_shape(last) or (), dtype_of(last), layout=readings[0].output_layout)
        steps: list[Step] = []
        channel = 0
        for index, reading in enumerate(readings):
            name = names[0] if len(readings) == 1 else f"{names[0]}.{index}"
            step = _step(name, reading, epilogue, namer, output)
            steps.append(replace(step, output_channel=channel, origin=names))
            channel += reading.op.out_channels
        return Found(kind, names[0], tuple((identity(block), at) for at in positions), namer.operands, tuple(steps))


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
    """Gives tensors their names: each expression one for each way in which it is read."""

    uses: Uses
    operands: dict[str, Any] = field(default_factory=dict)
    _names: dict[Hashable, str] = field(default_factory=dict)

    def map(self, role: str, expr: Any, layout: str) -> Tensor:
        """A map with these axes."""
        return self._tensor("map", role, expr, layout)

    def weight(self, role: str, expr: Any, layout: str) -> Tensor:
        """The kernel of a convolution."""
        return self._tensor("weight", role, expr, layout)

    def vector(self, role: str, expr: Any) -> Tensor:
        """One value a channel."""
        return self._tensor("vector", role, expr, "")

    def _tensor(self, kind: str, role: str, expr: Any, layout: str) -> Tensor:
        expr = self.uses.literal(expr)
        key = (kind, layout, identity(expr))
        if key not in self._names:
            self._names[key] = _free(role, self.operands)
            self.operands[self._names[key]] = expr
        return Tensor(self._names[key], static_shape(expr) or (), dtype_of(expr), layout=layout)


def _free(role: str, taken: Mapping[str, Any]) -> str:
    name, count = role, 0
    while name in taken:
        count += 1
        name = f"{role}{count}"
    return name


def operator_of(call: Any) -> Operator | str:
    """The operator that a call is by itself, or why it is none that we can express."""
    reader = _READERS.get(op_name(call))
    if reader is None:
        return f"{op_name(call) or 'no operator'}: no reader"
    try:
        read = reader(call, Scene(Uses.none()))
    except RefusedError as reason:
        return str(reason)
    return read[0].op if isinstance(read, tuple) else read.op


def conv2d_of(call: Any) -> Conv2d | str:
    """The convolution that a ``relax.nn.conv2d`` is, or why it is none that we can express."""
    found = operator_of(call)
    return found if isinstance(found, Conv2d | str) else f"{op_name(call)}: no conv2d"
