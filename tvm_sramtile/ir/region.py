"""Tensors, steps and regions."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter, ValidationError

from tvm_sramtile.errors import CheckFailed
from tvm_sramtile.geometry import Elementwise, Operator
from tvm_sramtile.geometry.elementwise import Function, Partner

Role = Literal["data", "weight", "vector", "output"]
_DTYPE_BYTES = {"float32": 4, "int32": 4, "int8": 1, "uint8": 1}


def dtype_bytes(dtype: str) -> int:
    """Bytes of one element of a dtype the accelerator stores; ``KeyError`` for others."""
    return _DTYPE_BYTES[dtype]


def digest_of(array: NDArray[np.generic]) -> str:
    """The identity of a constant: a hash of its dtype, shape and bytes."""
    head = f"{array.dtype.name}{array.shape}".encode()
    return hashlib.sha256(head + np.ascontiguousarray(array).tobytes()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a region, as TVM sees it.

    Attributes:
        name: unique within the region.
        shape: as in TVM (NCHW maps, OIHW weights, a bias in any shape with one element a channel).
        dtype: TVM's name of the element type.
        layout: the axis of each dimension by its letter: N, C, H, W of maps; O, I, H, W of weights. Missing axes have
            extent 1. By default NCHW, OIHW (IOHW of transposed convolutions); of no account for vectors.
        digest: for a constant, the identity of its value (``digest_of``); ``None`` for values known at run time only.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    digest: str | None = None
    layout: str = ""

    @property
    def elems(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Size in DRAM."""
        return self.elems * dtype_bytes(self.dtype)


@dataclass(frozen=True, slots=True)
class Clip:
    """Limits of the values that a step puts out; ``None`` is no limit. ReLU is ``Clip(0.0, None)``."""

    low: float | None = None
    high: float | None = None

    def then(self, other: Clip) -> Clip:
        """The one clip that equals this one followed by ``other``."""

        def limit(value: float | None) -> float | None:
            if value is None:
                return None
            value = value if other.low is None else max(value, other.low)
            return value if other.high is None else min(value, other.high)

        low = other.low if self.low is None else limit(self.low)
        high = other.high if self.high is None else limit(self.high)
        return Clip(low, high)


@dataclass(frozen=True, slots=True)
class Activation:
    """A function of each element, applied after the bias and the clip.

    Attributes:
        function: one of ``geometry.elementwise.Function``.
        vector: its partner, one value a channel; ``None`` where it has none or a constant one.
        value0, value1: its parameters.
    """

    function: Function
    vector: Tensor | None = None
    value0: float = 0.0
    value1: float = 0.0

    @property
    def partner(self) -> Partner:
        """Where its second operand comes from."""
        if self.vector is not None:
            return "vector"
        return "value" if self.function in _BINARY else "none"


_BINARY = get_args(Function)[1:10]  # add to prelu: those with a partner


@dataclass(frozen=True, slots=True)
class Step:
    """One operator with its epilogue: ``output = activations(clip(op(data, weight or other) + bias))``.

    Attributes:
        name: unique within the region.
        data: the map that the operator reads.
        weight: the kernel of a convolution, plain or transposed.
        other: the partner of an elementwise operator: a second map, or one value a channel.
        output: the map that it writes; from channel ``output_channel`` on, where several steps write one tensor.
        images: batch size; the program is made for one image.
        bias, clip: of convolutions.
        origin: names of the front end's values that this step computes, in order, for reports.
    """

    name: str
    op: Annotated[Operator, Field(discriminator="kind")]
    data: Tensor
    weight: Tensor | None
    output: Tensor
    images: int = 1
    bias: Tensor | None = None
    clip: Clip | None = None
    other: Tensor | None = None
    activations: tuple[Activation, ...] = ()
    output_channel: int = 0
    origin: tuple[str, ...] = ()

    @property
    def uses(self) -> tuple[tuple[Tensor, Role], ...]:
        """The tensors that the step reads, with their roles: data, weight, bias, other, activations' vectors."""
        other: Role = "vector" if isinstance(self.op, Elementwise) and self.op.partner == "vector" else "data"
        found: list[tuple[Tensor | None, Role]] = [
            (self.data, "data"),
            (self.weight, "weight"),
            (self.bias, "vector"),
            (self.other, other),
        ]
        found += [(activation.vector, "vector") for activation in self.activations]
        return tuple((tensor, role) for tensor, role in found if tensor is not None)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors that the step reads."""
        return tuple(tensor for tensor, _ in self.uses)

    def with_inputs(self, change: Callable[[Tensor], Tensor]) -> Step:
        """The step with each tensor that it reads replaced by what ``change`` makes of it."""

        def changed(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else change(tensor)

        return replace(
            self,
            data=change(self.data),
            weight=changed(self.weight),
            bias=changed(self.bias),
            other=changed(self.other),
            activations=tuple(replace(each, vector=changed(each.vector)) for each in self.activations),
        )


@dataclass(frozen=True, slots=True)
class Region:
    """A convex graph of steps in an order of execution, compiled to one program.

    Attributes:
        name: the function's global symbol.
        inputs: run-time tensors in the order of the function's parameters.
        outputs: results in the order of the function's return value.
    """

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    steps: tuple[Step, ...]

    @property
    def constants(self) -> tuple[Tensor, ...]:
        """The constants that the steps read, each once, in order of first use."""
        found = {t.name: t for step in self.steps for t in step.inputs if t.digest is not None}
        return tuple(found.values())

    @property
    def images(self) -> int:
        """The batch size, the same for all steps."""
        return self.steps[0].images

    def to_json(self) -> str:
        """JSON text that ``from_json`` reads back to an equal region."""
        return json.dumps(_named(_REGION.dump_python(self)), separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Region:
        """Parse ``to_json``'s text; raises ``CheckFailed`` when it is not one."""
        try:
            return _REGION.validate_json(text)
        except ValidationError as error:
            fault = error.errors()[0]
            where = ".".join(str(part) for part in fault["loc"])
            raise CheckFailed(f"region attribute is damaged at {where or 'its root'}: {fault['msg']}") from None


_REGION: TypeAdapter[Region] = TypeAdapter(Region)


def _named(value: object) -> object:
    """Data with infinities as strings, which are read back as numbers: JSON has none, and pydantic writes null."""
    if isinstance(value, dict):
        return {key: _named(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_named(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
