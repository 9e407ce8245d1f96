"""What a Relax function asks of the accelerator: its convolutions with their epilogues, or why they are refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tvm import relax

from tvm_sramtile.geometry import Conv2d
from tvm_sramtile.ir import Clip, Step, Tensor
from tvm_sramtile.relax.access import (
    constant_value,
    dtype_of,
    is_constant,
    number_of,
    op_name,
    shape_text,
    static_shape,
)
from tvm_sramtile.relax.walk import Place, Uses, blocks_of, identity

DATA, WEIGHT, BIAS, OUTPUT = "data", "weight", "bias", "output"


@dataclass(frozen=True, slots=True)
class Found:
    """An operator that has a reader, with its epilogue.

    Attributes:
        kind: short name of the operator, as ``conv2d``.
        name: the variable it is bound to.
        places: its bindings: the operator, then what the epilogue takes in. They are all in one block.
        operands: the expressions behind the step's tensors, by the tensors' names.
        step: what is computed; the name of each tensor is its role; without the constants' digests.
        refusal: why there is no step.
    """

    kind: str
    name: str
    places: tuple[Place, ...]
    operands: Mapping[str, Any]
    step: Step | None
    refusal: str = ""


class _RefusedError(Exception):
    """An attribute that no step can express."""


def find_steps(function: relax.Function) -> tuple[Found, ...]:
    """All operators of ``function`` that have a reader, in program order."""
    if not any(_reader(binding) for block in blocks_of(function.body) for binding in block.bindings):
        return ()
    uses = Uses.of(function)
    return tuple(
        _read(block, position, uses)
        for block in blocks_of(function.body)
        for position, binding in enumerate(block.bindings)
        if _reader(binding)
    )


def _reader(binding: Any) -> _Reader | None:
    return _READERS.get(op_name(binding.value)) if isinstance(binding, relax.VarBinding) else None


def _read(block: Any, position: int, uses: Uses) -> Found:
    binding = block.bindings[position]
    call, name = binding.value, str(binding.var.name)
    kind = op_name(call).rpartition(".")[2]
    place = (identity(block), position)
    reader = _READERS[op_name(call)]
    try:
        op = reader(call)
    except _RefusedError as reason:
        return Found(kind, name, (place,), {}, None, str(reason))
    data, weight = (uses.literal(argument) for argument in call.args)
    operands = {DATA: data, WEIGHT: weight}
    epilogue = _Epilogue.of(block, position, uses, op.out_channels)
    if epilogue.bias is not None:
        operands[BIAS] = uses.literal(epilogue.bias)
    step = Step(
        name=name,
        op=op,
        data=_tensor(DATA, data),
        weight=_tensor(WEIGHT, weight),
        output=_tensor(OUTPUT, binding.var),
        images=static_shape(data)[0],  # type: ignore[index]
        bias=_tensor(BIAS, operands[BIAS]) if BIAS in operands else None,
        clip=epilogue.clip,
        origin=(name, *epilogue.names),
    )
    return Found(kind, name, (place, *((identity(block), at) for at in epilogue.positions)), operands, step)


def _tensor(name: str, expr: Any) -> Tensor:
    return Tensor(name, static_shape(expr) or (), dtype_of(expr))


def _read_conv2d(call: Any) -> Conv2d:
    attrs = call.attrs
    for role, argument in zip((DATA, WEIGHT), call.args, strict=True):
        if static_shape(argument) is None:
            raise _RefusedError(f"shape of {role} = {shape_text(argument)}: the accelerator takes static shapes")
        device = argument.ty.vdevice
        if device is not None and str(device.target.kind.name) != "llvm":
            raise _RefusedError(f"vdevice of {role} = {device.target.kind.name}: the accelerator is called by the host")
    for name, taken in (("data_layout", "NCHW"), ("kernel_layout", "OIHW"), ("out_layout", "NCHW")):
        found = str(getattr(attrs, name) or taken)
        if found != taken:
            raise _RefusedError(f"{name} = {found!r}: the accelerator takes {taken!r}")
    data, weight = (argument for argument in call.args)
    if dtype_of(call) != dtype_of(data):
        raise _RefusedError(
            f"out_dtype = {dtype_of(call)!r}: the accelerator takes the dtype of data, {dtype_of(data)!r}"
        )
    padding = tuple(int(extent) for extent in attrs.padding)
    if min(padding) < 0:
        raise _RefusedError(f"padding = {padding}: the accelerator takes padding of at least 0")
    _, channels, rows, cols = static_shape(data) or ()
    out_channels, _, *kernel = static_shape(weight) or ()
    return Conv2d(
        in_channels=channels,
        in_rows=rows,
        in_cols=cols,
        out_channels=out_channels,
        kernel=(kernel[0], kernel[1]),
        strides=_pair(attrs.strides),
        padding=(padding[0], padding[1], padding[2], padding[3]),
        dilation=_pair(attrs.dilation),
        groups=int(attrs.groups),
    )


def conv2d_of(call: Any) -> Conv2d | str:
    """The convolution that a ``relax.nn.conv2d`` is, or why it is none that we can express."""
    try:
        return _read_conv2d(call)
    except _RefusedError as reason:
        return str(reason)


def _pair(values: Any) -> tuple[int, int]:
    rows, cols = values
    return int(rows), int(cols)


_Reader = Callable[[Any], Conv2d]
_READERS: dict[str, _Reader] = {"relax.nn.conv2d": _read_conv2d}


@dataclass(frozen=True, slots=True)
class _Epilogue:
    """What follows an operator and can be done to each of its outputs at once: a bias, then limits."""

    bias: Any = None
    clip: Clip | None = None
    positions: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    @staticmethod
    def of(block: Any, position: int, uses: Uses, channels: int) -> _Epilogue:
        """Follow the value as long as it has one use and that use is one we know."""
        epilogue = _Epilogue()
        value = block.bindings[position].var
        shape = static_shape(value)
        while (at := uses.sole_consumer(value, block)) is not None:
            binding = block.bindings[at]
            if not isinstance(binding, relax.VarBinding) or static_shape(binding.var) != shape:
                break
            longer = epilogue._with(binding, value, channels, at, uses)
            if longer is None:
                break
            epilogue, value = longer, binding.var
        return epilogue

    def _with(self, binding: Any, value: Any, channels: int, at: int, uses: Uses) -> _Epilogue | None:
        positions, names = (*self.positions, at), (*self.names, str(binding.var.name))
        if self.bias is None and self.clip is None:
            bias = bias_of(binding.value, value, channels)
            if bias is not None:
                return _Epilogue(bias, None, positions, names)
        clip = clip_of(binding.value, value, uses.literal)
        if clip is None:
            return None
        return _Epilogue(self.bias, clip if self.clip is None else self.clip.then(clip), positions, names)


def bias_of(call: Any, value: Any, channels: int) -> Any:
    """What ``call`` adds to each channel of ``value`` (NCHW): one element a channel and nothing else, else ``None``."""
    if op_name(call) != "relax.add":
        return None
    other = _other_operand(call, value)
    shape = None if other is None else static_shape(other)
    if shape is None or dtype_of(other) != dtype_of(value):
        return None
    return other if ((1,) * (4 - len(shape)) + shape) == (1, channels, 1, 1) else None


def _other_operand(call: Any, value: Any) -> Any:
    first, second = call.args
    if identity(first) == identity(value):
        return second
    return first if identity(second) == identity(value) else None


def clip_of(call: Any, value: Any, literal: Callable[[Any], Any] = lambda expr: expr) -> Clip | None:
    """The limits that ``call`` puts on ``value``; ``None`` for any other call."""
    name = op_name(call)
    if name == "relax.nn.relu":
        return Clip(0.0, None)
    if name == "relax.clip":
        return _limits(number_of(call.args[1]), number_of(call.args[2]))
    if name in ("relax.maximum", "relax.minimum"):
        other = _other_operand(call, value)
        other = None if other is None else literal(other)
        if other is None or not is_constant(other) or constant_value(other).size != 1:
            return None
        number = number_of(other)
        return _limits(number, math.inf) if name == "relax.maximum" else _limits(-math.inf, number)
    return None


def _limits(low: float | None, high: float | None) -> Clip | None:
    """A clip, where both limits are numbers and in order: what TVM makes of others is not ours to say."""
    if low is None or high is None or not low <= high or low == math.inf or high == -math.inf:
        return None
    return Clip(None if low == -math.inf else low, None if high == math.inf else high)
