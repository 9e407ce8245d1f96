"""What follows an operator and can be done to each of its outputs at once: a bias, limits, activations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import relax

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose
from tvm_sramtile.ir import Clip
from tvm_sramtile.relax.access import dtype_of, op_name, static_shape
from tvm_sramtile.relax.read_pointwise import bias_of, clip_of, clip_pointwise, pointwise_of
from tvm_sramtile.relax.reading import Pointwise, Reading, extents
from tvm_sramtile.relax.walk import Uses, identity

_LONGEST_GATE = 6  # bindings before the product
_HARD_SWISH = Pointwise("hard_swish")


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What is taken into a step after its operator.

    Attributes:
        bias: the expression of a bias.
        positions: the bindings in the operator's block, in order.
    """

    bias: Any = None
    clip: Clip | None = None
    activations: tuple[Pointwise, ...] = ()
    positions: tuple[int, ...] = ()


def epilogue_of(
    reading: Reading,
    block: Any,
    position: int,
    uses: Uses,
    free: Callable[[int], bool],
    gate: Epilogue | None = None,
) -> Epilogue:
    """Follow the value as long as nothing else uses it and each use is one we know.

    Args:
        reading: the operator.
        block: where it stands.
        position: its position there.
        uses: of the function.
        free: whether the binding at a position belongs to no other operator yet, as one that joins two of them may.
        gate: what the operator begins, where its data is multiplied with a function of itself.
    """
    convolves = isinstance(reading.op, Conv2d | Conv2dTranspose)
    follower = _Follower(block, uses, reading.output_layout, convolves, free)
    epilogue = gate or Epilogue(activations=reading.activations)
    value = block.bindings[epilogue.positions[-1] if epilogue.positions else position].var
    while (longer := follower.longer(epilogue, value)) is not None:
        epilogue = longer
        value = block.bindings[epilogue.positions[-1]].var
    return epilogue


def gate_at(data: Any, block: Any, position: int, layout: str, uses: Uses) -> Epilogue | None:
    """The gate of ``data`` that begins at ``position``, as activations of a copy; the positions are its later ones."""
    found = _gate(data, block, position, layout, uses)
    return None if found is None else replace(found, positions=found.positions[1:])


@dataclass(frozen=True, slots=True)
class _Follower:
    """Takes one more binding into an epilogue.

    Attributes:
        layout: the axes of the value.
        convolves: the operator takes a bias and a clip of its own.
        free: which positions may be taken.
    """

    block: Any
    uses: Uses
    layout: str
    convolves: bool
    free: Callable[[int], bool]

    def longer(self, epilogue: Epilogue, value: Any) -> Epilogue | None:
        """The epilogue with what comes after ``value``, its last; ``None`` at its end."""
        at = self.uses.sole_consumer(value, self.block)
        if at is None:
            return self._with_gate(epilogue, value)
        binding = self.block.bindings[at]
        if not self.free(at) or not _yields_like(binding, value):
            return None
        epilogue = replace(epilogue, positions=(*epilogue.positions, at))
        if self.convolves and not epilogue.activations:
            if epilogue.bias is None and epilogue.clip is None:
                bias = bias_of(binding.value, value, extents(value, self.layout)["C"], self.layout)
                if bias is not None:
                    return replace(epilogue, bias=bias)
            clip = clip_of(binding.value, value, self.uses.literal)
            if clip is not None:
                return replace(epilogue, clip=clip if epilogue.clip is None else epilogue.clip.then(clip))
        found = _activation(binding.value, value, self.layout, self.uses)
        return None if found is None else _appended(epilogue, found)

    def _with_gate(self, epilogue: Epilogue, value: Any) -> Epilogue | None:
        """The value used twice, and both uses are one gate."""
        places = self.uses.consumers(value, self.block)
        if places is None or len(places) != 2:
            return None
        gate = _gate(value, self.block, min(places), self.layout, self.uses)
        if gate is None or gate.positions[-1] != max(places) or not all(map(self.free, gate.positions)):
            return None
        return replace(
            epilogue,
            activations=(*epilogue.activations, *gate.activations),
            positions=(*epilogue.positions, *gate.positions),
        )


def _yields_like(binding: Any, value: Any) -> bool:
    return (
        isinstance(binding, relax.VarBinding)
        and static_shape(binding.var) == static_shape(value)
        and dtype_of(binding.var) == dtype_of(value)
    )


def _activation(call: Any, value: Any, layout: str, uses: Uses) -> Pointwise | None:
    clip = clip_of(call, value, uses.literal)
    if clip is not None:
        return clip_pointwise(clip)
    found = pointwise_of(call, value, layout, uses)
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


def _gate(value: Any, block: Any, position: int, layout: str, uses: Uses) -> Epilogue | None:
    """What begins at ``position`` with a function of ``value``, if it ends in that function times ``value``."""
    chain: list[Pointwise] = []
    positions: list[int] = []
    current: Any = value
    at: int | None = position
    while at is not None and len(chain) <= _LONGEST_GATE:
        binding = block.bindings[at]
        if not _yields_like(binding, value):
            return None
        positions.append(at)
        if chain and _multiplies(binding.value, value, current):
            activations = _gate_activations(chain)
            return Epilogue(activations=activations, positions=tuple(positions)) if activations else None
        found = _activation(binding.value, current, layout, uses)
        if found is None or found.partner == "vector":
            return None
        chain.append(found)
        current, at = binding.var, uses.sole_consumer(binding.var, block)
    return None


def _multiplies(call: Any, first: Any, second: Any) -> bool:
    if op_name(call) != "relax.multiply":
        return False
    return {identity(argument) for argument in call.args} == {identity(first), identity(second)}


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
