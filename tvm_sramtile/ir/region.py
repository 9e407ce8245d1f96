"""Tensors, steps and regions."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, TypeAdapter, ValidationError

from tvm_sramtile.errors import CheckFailed
from tvm_sramtile.geometry import Conv2d

_DTYPE_BYTES = {"float32": 4}


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
        digest: for a constant, the identity of its value (``digest_of``); ``None`` for values known at run time only.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    digest: str | None = None

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

    # JSON has no infinity; without this it would be written as null, and read back as no limit.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(ser_json_inf_nan="strings")

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
class Step:
    """One operator with its epilogue: ``output = clip(op(data, weight) + bias)``.

    Attributes:
        name: unique within the region.
        origin: names of the front end's values that this step computes, in order, for reports.
        images: batch size; the program is made for one image.
    """

    name: str
    op: Conv2d
    data: Tensor
    weight: Tensor
    output: Tensor
    images: int = 1
    bias: Tensor | None = None
    clip: Clip | None = None
    origin: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors that the step reads: data, weight, bias."""
        return (self.data, self.weight) if self.bias is None else (self.data, self.weight, self.bias)


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
        return _REGION.dump_json(self).decode()

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
