"""Random regions over all that steps can be, drawn from seeds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from core.regions import Case
from numpy.typing import NDArray

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose, Elementwise, Operator, Pool2d, Resize2d
from tvm_sramtile.ints import ceil_div
from tvm_sramtile.ir import Activation, Clip, Region, Step, Tensor, digest_of

Float = NDArray[np.float32]
Pair = tuple[int, int]

CLIPS = (None, None, Clip(0.0, None), Clip(None, 0.5), Clip(-0.25, 0.75), Clip(None, None))
PARTNERED = ("add", "subtract", "reverse_subtract", "multiply", "divide", "maximum", "minimum", "prelu")
ALONE = ("copy", "clip", "leaky_relu", "sigmoid", "tanh", "abs", "negative", "silu", "hard_swish")
MODES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn")
KINDS = ("conv2d", "conv2d", "conv2d_transpose", "conv2d_transpose", "pool2d", "resize2d", "elementwise", "dense")


@dataclass(slots=True)
class Maker:
    """Draws the parts of one case, and keeps the tensors' values.

    Attributes:
        constant: weights and vectors are constants, else parameters.
        lanes: of the chip, so that maps have some blocks of channels and a rest.
    """

    rng: np.random.Generator
    images: int
    constant: bool
    lanes: int
    values: dict[str, Float] = field(default_factory=dict)
    inputs: list[Tensor] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def one_of(self, choices: Any) -> Any:
        return choices[self.rng.integers(len(choices))]

    def between(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def pair(self, low: int, high: int) -> Pair:
        return self.between(low, high), self.between(low, high)

    def channels(self) -> int:
        """Mostly less than a block, some blocks, or the rest of a block more."""
        return self.one_of((1, 2, self.between(1, 5), self.lanes, self.between(1, 2 * self.lanes + 3)))

    def tensor(self, shape: tuple[int, ...], layout: str = "", *, constant: bool = False, scale: float = 1) -> Tensor:
        """A tensor of random values that no step writes; none is near 0, so that it may divide."""
        name = f"t{len(self.values)}"
        value = self.rng.standard_normal(shape)
        value = ((value + np.copysign(0.1, value)) * scale).astype(np.float32)
        self.values[name] = value
        tensor = Tensor(name, shape, "float32", digest_of(value) if constant else None, layout)
        if not constant:
            self.inputs.append(tensor)
        return tensor

    def vector(self, channels: int) -> Tensor:
        """One value a channel in any shape."""
        shape = self.one_of(((channels,), (channels, 1, 1), (1, channels, 1, 1)))
        return self.tensor(shape, constant=self.constant)

    def map_tensor(self, channels: int, rows: int, cols: int, images: int, *, constant: bool = False) -> Tensor:
        layout = self.one_of(("", "", "NHWC", "NCHW", "NWCH"))
        return self.tensor(self.map_shape(layout, channels, rows, cols, images), layout, constant=constant)

    @staticmethod
    def map_shape(layout: str, channels: int, rows: int, cols: int, images: int) -> tuple[int, ...]:
        extents = {"N": images, "C": channels, "H": rows, "W": cols}
        return tuple(extents[letter] for letter in layout or "NCHW")

    def region(self, outputs: list[Tensor]) -> Case:
        return Case(Region("region", tuple(self.inputs), tuple(outputs), tuple(self.steps)), self.values)


# Operators.


def convolution(make: Maker, channels: int, rows: int, cols: int) -> Conv2d | None:
    """Any attributes; ``None`` where they leave no output."""
    groups = make.one_of([g for g in (1, 1, channels, 2, 3) if channels % g == 0])
    outs = groups * make.between(1, max(1, 2 * make.lanes // groups + 1)) if groups > 1 else make.channels()
    kernel = make.one_of((make.pair(1, 3), make.pair(1, 3), make.pair(2, 7), (1, make.between(1, 9))))
    dilation = make.one_of(((1, 1), (1, 1), make.pair(1, 3), make.pair(1, 9)))
    pads = make.one_of((0, 1, 2, 8))
    padding = tuple(make.between(0, pads) for _ in range(4))
    op = Conv2d(channels, rows, cols, outs, kernel, make.pair(1, make.one_of((1, 2, 5))), padding, dilation, groups)
    return op if 0 < op.out_rows <= 24 and 0 < op.out_cols <= 24 else None


def transposed(make: Maker, channels: int, rows: int, cols: int) -> Conv2dTranspose | None:
    groups = make.one_of([g for g in (1, 1, channels, 2, 3) if channels % g == 0])
    outs = groups * make.between(1, max(1, 2 * make.lanes // groups + 1)) if groups > 1 else make.channels()
    strides = make.one_of(((1, 1), (2, 2), make.pair(1, 4)))
    op = Conv2dTranspose(
        channels,
        min(rows, make.between(1, 6)),
        min(cols, make.between(1, 6)),
        outs,
        make.one_of((make.pair(1, 3), make.pair(2, 5))),
        strides,
        tuple(make.between(0, make.one_of((0, 1, 3))) for _ in range(4)),
        (make.between(0, strides[0] - 1), make.between(0, strides[1] - 1)),
        make.one_of(((1, 1), (1, 1), make.pair(1, 3))),
        groups,
    )
    return op if 0 < op.out_rows <= 24 and 0 < op.out_cols <= 24 else None


def pooling(make: Maker, channels: int, rows: int, cols: int) -> Pool2d | None:
    whole = make.between(0, 3) == 0
    kernel = (rows, cols) if whole else make.pair(1, 4)
    strides, dilation = make.pair(1, 3), (1, 1) if whole else make.one_of(((1, 1), make.pair(1, 2)))
    padding = (0, 0) if whole else make.pair(0, make.one_of((0, 1, 5)))
    extents = []
    for size, k, s, d, pad in zip((rows, cols), kernel, strides, dilation, padding, strict=True):
        span = size + pad + make.between(0, pad) - d * (k - 1) - 1
        extents.append(1 + (ceil_div(span, s) if make.between(0, 1) else span // s))
    if min(extents) < 1:
        return None
    kind = make.one_of(("max", "average_all", "average_valid"))
    return Pool2d(channels, rows, cols, *extents, kernel, strides, padding, dilation, kind)


def resizing(make: Maker, channels: int, rows: int, cols: int) -> Resize2d:
    scale = make.pair(1, 3)
    extents = make.one_of(((rows * scale[0], cols * scale[1]), make.pair(1, 14)))
    return Resize2d(
        channels,
        rows,
        cols,
        *extents,
        make.one_of(("nearest_neighbor", "linear", "cubic")),
        make.one_of(MODES),
        make.one_of(("", "round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")),
        cubic_exclude=bool(make.between(0, 1)),
    )


def pointwise(make: Maker, channels: int, rows: int, cols: int) -> Elementwise:
    partner = make.one_of(("none", "map", "map", "vector", "value"))
    if partner == "none":
        return Elementwise(channels, rows, cols, "copy")
    function = make.one_of((*PARTNERED, "reverse_divide"))
    return Elementwise(channels, rows, cols, function, partner, 0.75 if partner == "value" else 0.0)


OPERATORS: dict[str, Any] = {
    "conv2d": convolution,
    "conv2d_transpose": transposed,
    "pool2d": pooling,
    "resize2d": resizing,
    "elementwise": pointwise,
}


# Steps.


def add_step(make: Maker, op: Operator, data: Tensor, output: Tensor | None = None, channel: int = 0) -> Tensor:
    """Append a step on ``data`` with a random epilogue; its output, a new tensor unless one is given."""
    name, exact = f"s{len(make.steps)}", data.name in make.values
    if isinstance(op, Elementwise) and op.function == "reverse_divide" and not exact:
        op = replace(op, function="reverse_subtract")  # what was computed may be near 0
    weight = bias = clip = other = None
    if isinstance(op, Conv2d | Conv2dTranspose):
        weight = weights(make, op)
        bias = make.vector(op.out_channels) if make.between(0, 1) else None
        clip = make.one_of(CLIPS)
    elif isinstance(op, Elementwise) and op.partner == "map":
        other = data
        if make.between(0, 3) or op.function == "divide":
            constant = bool(make.between(0, 1))  # a constant has one image
            other = make.map_tensor(op.channels, op.rows, op.cols, 1 if constant else make.images, constant=constant)
    elif isinstance(op, Elementwise) and op.partner == "vector":
        other = make.vector(op.channels)
    if output is None:
        layout = make.one_of(("", "", "NHWC"))
        shape = make.map_shape(layout, op.out_channels, op.out_rows, op.out_cols, make.images)
        output = Tensor(f"y{len(make.steps)}", shape, "float32", None, layout)
    chain = () if reads_nothing(op) else activations(make, op, exact=exact)
    make.steps.append(
        Step(name, op, data, weight, output, make.images, bias, clip, other, chain, channel, origin=(name,))
    )
    return output


def weights(make: Maker, op: Conv2d | Conv2dTranspose) -> Tensor:
    default = "OIHW" if isinstance(op, Conv2d) else "IOHW"
    extents = dict(zip(default, op.weight_shape, strict=True))
    layout = make.one_of(("", "OIHW", "HWIO", "OHWI", "IOHW", "HWOI"))
    shape = tuple(extents[letter] for letter in layout or default)
    scale = 1 / math.sqrt(op.in_channels_per_group * op.kernel[0] * op.kernel[1])
    return make.tensor(shape, layout, constant=make.constant, scale=scale)


def activations(make: Maker, op: Operator, *, exact: bool = False) -> tuple[Activation, ...]:
    """Up to two, or a function that makes small errors large where the data has none."""
    chain = []
    for _ in range(make.one_of((0, 0, 1, 1, 2))):
        function = make.one_of((*PARTNERED, *ALONE))
        vector = make.vector(op.out_channels) if function in PARTNERED and make.between(0, 1) else None
        value0, value1 = {"clip": (-0.5, 0.625), "leaky_relu": (0.125, 0.0)}.get(function, (0.75, 0.0))
        chain.append(Activation(function, vector, value0, value1))
    if exact and isinstance(op, Elementwise) and op.function == "copy" and not chain:
        chain += make.one_of(((Activation("exp"),), (Activation("abs"), Activation("sqrt"))))
    return tuple(chain)


def reads_nothing(op: Operator) -> bool:
    """Whether a window of a maximum may lie wholly in padding: its output is too large to go on with."""
    if not isinstance(op, Pool2d) or op.pooling != "max":
        return False
    for axis, (size, outs) in enumerate(((op.in_rows, op.out_rows), (op.in_cols, op.out_cols))):
        for out in range(outs):
            start = out * op.strides[axis] - op.padding[axis]
            if not any(0 <= start + tap * op.dilation[axis] < size for tap in range(op.kernel[axis])):
                return True
    return False


def draw_operator(make: Maker, kind: str, channels: int, rows: int, cols: int) -> Operator:
    op = None
    while op is None:
        op = OPERATORS[kind](make, channels, rows, cols)
    return op


def whole_region(seed: int) -> tuple[Maker, Case]:
    """The region of a seed, and what drew it."""
    rng = np.random.default_rng(seed)
    lanes = int(rng.choice([1, 3, 4, 16]))
    make = Maker(rng, int(rng.choice([1, 1, 2, 3])), bool(rng.integers(2)), lanes)
    kind = KINDS[seed % len(KINDS)]
    if kind == "dense":
        return make, dense_case(make)
    return make, make.one_of((chain_case, one_step_case, one_step_case, concatenation_case))(make, kind)


def first_operator(make: Maker, kind: str) -> tuple[Operator, Tensor]:
    rows, cols = make.one_of(((1, make.between(1, 9)), make.pair(1, 9), make.pair(4, 12)))
    op = draw_operator(make, kind, make.channels(), rows, cols)
    return op, make.map_tensor(op.in_channels, op.in_rows, op.in_cols, make.images)


def one_step_case(make: Maker, kind: str) -> Case:
    return make.region([add_step(make, *first_operator(make, kind))])


def chain_case(make: Maker, kind: str) -> Case:
    """A second step reads what the first wrote; both are results, or only the last."""
    op, data = first_operator(make, kind)
    while reads_nothing(op):
        op = draw_operator(make, kind, op.in_channels, op.in_rows, op.in_cols)
    middle = add_step(make, op, data)
    second = None
    while second is None or (second.in_rows, second.in_cols) != (op.out_rows, op.out_cols):
        second = draw_operator(make, make.one_of(KINDS[:-1]), op.out_channels, op.out_rows, op.out_cols)
    last = add_step(make, second, middle)
    return make.region([middle, last] if make.between(0, 1) else [last])


def concatenation_case(make: Maker, kind: str) -> Case:
    """Two steps write the channels of one tensor, which a third may read."""
    op, data = first_operator(make, kind)
    while reads_nothing(op):
        op = draw_operator(make, kind, op.in_channels, op.in_rows, op.in_cols)
    more = Elementwise(make.channels(), op.out_rows, op.out_cols, "copy")
    channels = op.out_channels + more.channels
    layout = make.one_of(("", "NHWC"))
    joined = Tensor(
        "joined", make.map_shape(layout, channels, op.out_rows, op.out_cols, make.images), "float32", None, layout
    )
    first = make.between(0, 1)
    add_step(make, op, data, joined, more.channels * first)
    added = make.map_tensor(more.channels, more.rows, more.cols, make.images)
    add_step(make, more, added, joined, op.out_channels * (1 - first))
    if make.between(0, 1):
        return make.region([joined])
    reader = draw_operator(make, "elementwise", channels, op.out_rows, op.out_cols)
    return make.region([add_step(make, reader, joined)])


def dense_case(make: Maker) -> Case:
    """A product of matrices as a 1x1 convolution: the rows are images, or the rows of a map."""
    ins, outs = make.channels(), make.channels()
    rows = make.between(1, 12)
    layout = "HC" if make.between(0, 1) else "NC"
    if layout == "NC":
        rows = 1
    else:
        make.images = 1
    op = Conv2d(ins, rows, 1, outs, (1, 1))
    count = rows if layout == "HC" else make.images
    data = make.tensor((count, ins), layout)
    output = Tensor("y0", (count, outs), "float32", None, layout)
    transposed_weight = make.between(0, 1)
    weight = make.tensor(
        (ins, outs) if transposed_weight else (outs, ins),
        "IO" if transposed_weight else "OI",
        constant=make.constant,
        scale=1 / math.sqrt(ins),
    )
    bias = make.vector(outs) if make.between(0, 1) else None
    make.steps.append(Step("s0", op, data, weight, output, make.images, bias, activations=activations(make, op)))
    return make.region([output])
