"""How far two correct executions may be apart: it follows from the operands and the lengths of the sums."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tvm_sramtile.frontend import Array
from tvm_sramtile.geometry import Conv2d, Conv2dTranspose, Elementwise, Pool2d, Resize2d
from tvm_sramtile.ir import Clip, Region, Step, Tensor

_UNIT_ROUNDOFF = 2.0**-24
_CONFIDENCE = 8.0
_FUNCTION_LENGTH = 16  # exp and its kin are right to a few units in the last place
_RESIZE_LENGTH = 16  # of at most 4x4 taps
# By how much a function without a partner can enlarge an error.
_SLOPES = {"sigmoid": 0.25, "tanh": 1.0, "silu": 1.1, "hard_swish": 1.5}
_INNER = {"sigmoid": 1.0, "tanh": 1.0}  # functions that yield no more than this


@dataclass(frozen=True, slots=True)
class Bound:
    """What is known of a tensor's values.

    Attributes:
        magnitude: no value is larger.
        error: two correct executions differ by no more.
        least: no value is nearer to 0.
    """

    magnitude: float
    error: float = 0.0
    least: float = 0.0

    def rounded(self, length: int) -> Bound:
        """With the rounding errors of sums of ``length`` products."""
        return replace(self, error=self.error + rounding(length) * self.magnitude)


def rounding(length: int) -> float:
    """The relative difference of two float32 sums of the same ``length`` products in different orders.

    At most about ``sqrt(length) * u`` times a small constant, of the sum of the products' magnitudes (probabilistic
    bound, Higham and Mary 2019, u = 2**-24; the constant here is 8).
    """
    return _CONFIDENCE * math.sqrt(length) * _UNIT_ROUNDOFF


def reduction_length(step: Step) -> int:
    """How many terms an output of the step is the sum of; a function counts as a small constant."""
    op, length = step.op, 0
    if isinstance(op, Conv2d | Conv2dTranspose):
        length = op.in_channels_per_group * op.kernel[0] * op.kernel[1]
    elif isinstance(op, Pool2d):
        length = op.kernel[0] * op.kernel[1] if op.pooling != "max" else 0
    elif isinstance(op, Resize2d):
        length = _RESIZE_LENGTH if op.method != "nearest_neighbor" else 0
    return length + 1 + _FUNCTION_LENGTH * len(step.activations)


def region_tolerance(
    region: Region, inputs: Sequence[Array], outputs: Sequence[Array], constants: Mapping[str, Array]
) -> float:
    """How far two correct executions of ``region`` on ``inputs`` may be apart, as an absolute value.

    Each step enlarges the errors of what it reads by at most its gain (of a convolution the largest sum of weight
    magnitudes over the output channels), and adds its own rounding errors. Never more than the outputs' magnitude.
    """
    arrays = {tensor.name: array for tensor, array in zip(region.inputs, inputs, strict=True)}
    arrays |= {tensor.name: constants[str(tensor.digest)] for tensor in region.constants}
    measured = {tensor.name: magnitude(array) for tensor, array in zip(region.outputs, outputs, strict=True)}
    bounds = {name: _bound_of(array) for name, array in arrays.items()}
    for step in region.steps:
        bound = _step_bound(step, bounds, arrays, measured.get(step.output.name, math.inf))
        other = bounds.get(step.output.name, bound)  # of another step that writes the same tensor
        bounds[step.output.name] = Bound(max(bound.magnitude, other.magnitude), max(bound.error, other.error))
    return max(min(bounds[name].error, known) for name, known in measured.items())


def max_abs_diff(ours: Array, theirs: Array) -> float:
    """The largest difference of two arrays; infinite where shapes, dtypes, NaNs or infinities do not match."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return math.inf
    if not ours.size:
        return 0.0
    with np.errstate(invalid="ignore"):
        diff = np.abs(np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64))
    same = (ours == theirs) | ((ours != ours) & (theirs != theirs))
    diff = np.where(same, 0.0, diff)
    return float(np.nan_to_num(diff, nan=math.inf, posinf=math.inf).max())


def magnitude(array: Array) -> float:
    """The largest magnitude of a finite value."""
    return float(_finite(array).max(initial=0.0))


def _finite(array: Array) -> NDArray[np.float64]:
    magnitudes: NDArray[np.float64] = np.abs(np.asarray(array[np.isfinite(array)], np.float64))
    return magnitudes


def _bound_of(array: Array) -> Bound:
    finite = _finite(array)
    return Bound(float(finite.max(initial=0.0)), 0.0, float(finite.min(initial=math.inf)) if finite.size else 0.0)


def _step_bound(step: Step, bounds: Mapping[str, Bound], arrays: Mapping[str, Array], measured: float) -> Bound:
    bound = _operator_bound(step, bounds, arrays)
    if step.bias is not None:
        bound = replace(bound, magnitude=bound.magnitude + bounds[step.bias.name].magnitude)
    bound = bound.rounded(reduction_length(replace(step, activations=())))
    if step.clip is not None:
        bound = _clipped(bound, step.clip)
    last = len(step.activations) - 1
    for index, activation in enumerate(step.activations):
        known = measured if index == last else math.inf
        vector = None if activation.vector is None else bounds[activation.vector.name]
        values = (activation.value0, activation.value1)
        bound = function_bound(activation.function, bound, vector, values, known).rounded(_FUNCTION_LENGTH)
    return replace(bound, magnitude=min(bound.magnitude, measured))


def _operator_bound(step: Step, bounds: Mapping[str, Bound], arrays: Mapping[str, Array]) -> Bound:
    op, data = step.op, bounds[step.data.name]
    if isinstance(op, Conv2d | Conv2dTranspose) and step.weight is not None:
        weight = arrays.get(step.weight.name)
        gain = bounds[step.weight.name].magnitude * op.in_channels_per_group * op.kernel[0] * op.kernel[1]
        if weight is not None:
            gain = _gain(op, weight, step.weight)
        return Bound(data.magnitude * gain, data.error * gain)
    if isinstance(op, Resize2d):
        gain = max(sum(map(abs, row)) for row in op.rows.weights) * max(sum(map(abs, col)) for col in op.cols.weights)
        return Bound(data.magnitude * gain, data.error * gain)
    if isinstance(op, Elementwise):
        other = None if step.other is None else bounds[step.other.name]
        return function_bound(op.function, data, other, (op.value, 0.0), math.inf)
    return data


def _gain(op: Conv2d | Conv2dTranspose, weight: Array, tensor: Tensor) -> float:
    """The largest sum of magnitudes that one output channel weighs its inputs with."""
    transposed = isinstance(op, Conv2dTranspose)
    layout = tensor.layout or ("IOHW" if transposed else "OIHW")
    values = np.abs(np.asarray(weight, np.float64))
    if not transposed:
        sums = values.sum(axis=tuple(axis for axis, letter in enumerate(layout) if letter != "O"))
        return float(sums.max(initial=0.0))
    order = [layout.index(letter) for letter in "IO"]
    rest = [axis for axis in range(len(layout)) if axis not in order]
    groups = values.transpose([*order, *rest]).reshape(op.groups, op.in_channels_per_group, values.shape[order[1]], -1)
    return float(groups.sum(axis=(1, 3)).max(initial=0.0))


def function_bound(
    function: str, value: Bound, partner: Bound | None, params: tuple[float, float], measured: float
) -> Bound:
    """What is known of a function's values.

    Args:
        function: by its name.
        value: of its operand.
        partner: of the other operand; ``None`` for a number, the first of ``params``.
        params: its parameters.
        measured: the magnitude of what it yielded, where that is known.
    """
    other = partner or Bound(abs(params[0]), 0.0, abs(params[0]))
    size, error = value.magnitude, value.error
    match function:
        case "add" | "subtract" | "reverse_subtract":
            return Bound(size + other.magnitude, error + other.error)
        case "multiply":
            return Bound(size * other.magnitude, _product(error, other.magnitude) + _product(other.error, size))
        case "divide":
            return _quotient(value, other, measured)
        case "reverse_divide":
            return _quotient(other, value, measured)
        case "maximum" | "minimum":
            return Bound(max(size, other.magnitude), max(error, other.error))
        case "prelu" | "leaky_relu":
            slope = max(1.0, other.magnitude)
            return Bound(size * slope, error * slope + _product(other.error, size))
        case "clip":
            return _clipped(value, Clip(*params))
        case "exp":
            largest = min(measured, math.exp(min(size, 88.8)))
            return Bound(largest, _product(largest, error))
        case "sqrt":
            return Bound(math.sqrt(size), math.sqrt(error))
    return Bound(min(size, _INNER.get(function, math.inf)), error * _SLOPES.get(function, 1.0))


def _clipped(bound: Bound, clip: Clip) -> Bound:
    if clip.low is None or clip.high is None:
        return replace(bound, magnitude=max(bound.magnitude, abs(clip.low or 0.0), abs(clip.high or 0.0)), least=0.0)
    return Bound(min(bound.magnitude, max(abs(clip.low), abs(clip.high))), bound.error)


def _quotient(above: Bound, below: Bound, measured: float) -> Bound:
    """Of ``y = a / b``: ``dy = (da + y*db) / b``; where ``b`` may be 0 only what was measured of ``y`` is known."""
    largest = min(measured, above.magnitude / below.least if below.least else math.inf)
    error = above.error + _product(largest, below.error)
    return Bound(largest, error and (error / below.least if below.least else math.inf))


def _product(left: float, right: float) -> float:
    return left * right if left and right else 0.0
