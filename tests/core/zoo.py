"""Small regions that have each command and each way to be cut, on chips so small that they are cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from core.regions import SEED, SPEC, Case, region_case

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose, Elementwise, Operator, Pool2d, Resize2d
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Activation, Clip, Region, Step, Tensor, digest_of
from tvm_sramtile.isa import Program
from tvm_sramtile.lower import lower
from tvm_sramtile.lower.check import check_program
from tvm_sramtile.options import Options
from tvm_sramtile.plan import Plan, plan_region


@dataclass(slots=True)
class Builder:
    """Collects the steps of a region with values for its tensors."""

    images: int = 1
    constant: bool = False
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    values: dict[str, Any] = field(default_factory=dict)
    inputs: list[Tensor] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def tensor(self, *shape: int, layout: str = "", constant: bool = False) -> Tensor:
        """A new tensor of random values, an input of the region unless it is constant."""
        name = f"t{len(self.values)}"
        value = self.values[name] = self.rng.standard_normal(shape, np.float32)
        tensor = Tensor(name, shape, "float32", digest_of(value) if constant else None, layout)
        self.inputs += [] if constant else [tensor]
        return tensor

    def map(self, channels: int, rows: int, cols: int, layout: str = "NCHW", *, constant: bool = False) -> Tensor:
        return self.tensor(*self.shape(channels, rows, cols, layout), layout=layout, constant=constant)

    def shape(self, channels: int, rows: int, cols: int, layout: str) -> tuple[int, ...]:
        extents = {"N": self.images, "C": channels, "H": rows, "W": cols}
        return tuple(extents[letter] for letter in layout)

    def step(self, op: Operator, data: Tensor, output: Tensor | None = None, **more: Any) -> Tensor:
        """A step on ``data``; weights are made where it needs some, and where ``bias`` is true a bias."""
        index = len(self.steps)
        weight = bias = None
        if isinstance(op, Conv2d | Conv2dTranspose):
            weight = self.tensor(*op.weight_shape, constant=self.constant)
            bias = self.tensor(op.out_channels, constant=self.constant) if more.pop("bias", False) else None
        if output is None:
            layout = more.pop("layout", "NCHW")
            shape = self.shape(op.out_channels, op.out_rows, op.out_cols, layout)
            output = Tensor(f"y{index}", shape, "float32", layout=layout)
        self.steps.append(Step(f"step{index}", op, data, weight, output, self.images, bias, **more))
        return output

    def case(self, *outputs: Tensor) -> Case:
        return Case(Region("region", tuple(self.inputs), outputs, tuple(self.steps)), self.values)


Made = tuple[Case, AcceleratorSpec] | tuple[Case, AcceleratorSpec, Options]


def rows() -> Made:
    """Rows of a convolution, constants, an epilogue."""
    op = Conv2d(4, 6, 3, 4, (3, 3), padding=(1, 1, 1, 1))
    return region_case(op, bias=True, clips=(Clip(0.0, None),), constant=True), SPEC.replace(sram_bytes=1151)


def groups() -> Made:
    """Separate memories, groups, attributes that differ by axis, two images."""
    op = Conv2d(3, 11, 3, 6, (3, 3), strides=(2, 1), padding=(4, 0, 3, 2), dilation=(2, 1), groups=3)
    buffers: dict[str, Any] = {"sram_bytes": None, "input_bytes": 1201, "weight_bytes": 1501, "output_bytes": 401}
    return region_case(op, images=2, bias=True), SPEC.replace(**buffers, accumulator_bytes=201, lines=2)


def padding() -> Made:
    """Chunks that lie wholly in padding."""
    return region_case(Conv2d(1, 1, 2, 1, (1, 1), padding=(2, 0, 1, 0))), SPEC.replace(sram_bytes=80)


def two_steps() -> Made:
    """A tensor in the workspace."""
    first = Conv2d(4, 6, 3, 4, (3, 3), padding=(1, 1, 1, 1))
    second = Conv2d(4, 6, 3, 6, (3, 3), strides=(2, 1), padding=(2, 1, 1, 1), dilation=(1, 1), groups=2)
    return region_case(first, second, clips=(Clip(0.0, None),), outputs=(1,)), SPEC.replace(sram_bytes=1100)


def sums() -> Made:
    """Sub-kernels one after the other, input channels in parts, accumulators apart."""
    build = Builder(constant=True)
    op = Conv2d(6, 4, 3, 3, (3, 2), padding=(0, 1, 0, 0))
    build.step(op, build.map(6, 4, 3, "NHWC"), bias=True, layout="NHWC")
    spec = SPEC.replace(unit_kernels=((2, 2),), sram_bytes=None, input_bytes=144, weight_bytes=288, output_bytes=96)
    return build.case(build.steps[0].output), spec.replace(accumulator_bytes=48)


def turns() -> Made:
    """Sub-kernels far apart, each with its own part of the input."""
    build = Builder()
    build.step(Conv2d(2, 5, 2, 2, (2, 1), dilation=(3, 1)), build.map(2, 5, 2))
    return build.case(build.steps[0].output), SPEC.replace(unit_kernels=((1, 1),), sram_bytes=96)


def rolled() -> Made:
    """Rows that stay in SRAM, the chunks in an order of their own."""
    build = Builder()
    build.step(Conv2d(3, 6, 3, 2, (3, 2)), build.map(3, 6, 3))
    spec = SPEC.replace(sram_bytes=600, unit_kernels=((3, 2),))
    return build.case(build.steps[0].output), spec, Options(strategy="search", double_buffer=False)


def shelves() -> Made:
    """Chunks of channels that take turns at each place, rows that stay: the weights of two at a time, then of one."""
    build = Builder()
    chain = (Activation("prelu", build.tensor(9)),)
    build.step(Conv2d(2, 4, 2, 9, (2, 1)), build.map(2, 4, 2), bias=True, activations=chain)
    spec = SPEC.replace(sram_bytes=288, unit_kernels=((2, 1),))
    return build.case(build.steps[0].output), spec, Options(strategy="search")


def channels() -> Made:
    """Columns, and output channels of groups in parts."""
    build = Builder()
    op = Conv2d(4, 1, 3, 12, (1, 2), groups=2)
    build.step(op, build.map(4, 1, 3))
    return build.case(build.steps[0].output), SPEC.replace(unit_kernels=((1, 2),), sram_bytes=128)


def phases() -> Made:
    """A transposed convolution: phases with and without taps."""
    build = Builder(constant=True)
    op = Conv2dTranspose(2, 3, 3, 3, (3, 1), (2, 2), padding=(1, 0, 0, 0), output_padding=(1, 0))
    build.step(op, build.map(2, 3, 3), bias=True, clip=Clip(-1.0, 1.0))
    return build.case(build.steps[0].output), SPEC.replace(sram_bytes=512)


def pool() -> Made:
    """Pooling, activations with a vector and without."""
    build = Builder(images=2)
    op = Pool2d(5, 7, 3, 4, 2, (3, 2), (2, 2), (1, 1), (1, 1), "average_valid")
    chain = (Activation("prelu", build.tensor(5)), Activation("leaky_relu", None, 0.5))
    build.step(op, build.map(5, 7, 3), activations=chain)
    return build.case(build.steps[0].output), SPEC.replace(sram_bytes=700)


def resize() -> Made:
    """A resize by tables, in columns."""
    build = Builder()
    build.step(Resize2d(2, 3, 4, 2, 6), build.map(2, 3, 4))
    return build.case(build.steps[0].output), SPEC.replace(sram_bytes=220)


def pointwise() -> Made:
    """Maps with each other, with a constant, and with one value a channel."""
    build = Builder()
    data = build.map(5, 4, 2)
    other = build.map(5, 4, 2, constant=True)
    limits = (Activation("clip", None, -0.5, 1.0),)
    first = build.step(Elementwise(5, 4, 2, "subtract", "map"), data, other=other, activations=limits)
    last = build.step(Elementwise(5, 4, 2, "multiply", "vector"), first, other=build.tensor(5))
    return build.case(last), SPEC.replace(sram_bytes=600)


def joined() -> Made:
    """Two steps write the channels of one tensor, a third reads it."""
    build = Builder()
    data = build.map(3, 4, 2)
    both = Tensor("both", (1, 5, 4, 2), "float32")
    build.step(Elementwise(3, 4, 2, "add", "value", 0.5), data, both, output_channel=2)
    build.step(Pool2d(2, 4, 2, 4, 2, (1, 1), (1, 1), (0, 0), (1, 1), "max"), build.map(2, 4, 2), both)
    last = build.step(Elementwise(5, 4, 2, "copy"), both)
    return build.case(last), SPEC.replace(sram_bytes=256)


def stays() -> Made:
    """Maps that stay in SRAM: one is added to what is made of it, one goes to DRAM as well; weights come in parts."""
    build = Builder(images=2)
    first = build.step(Conv2d(2, 4, 2, 5, (1, 1)), build.map(2, 4, 2))
    second = build.step(Conv2d(5, 4, 2, 8, (3, 1), padding=(1, 0, 1, 0)), first, bias=True)
    third = build.step(Conv2d(8, 4, 2, 5, (1, 1)), second, activations=(Activation("sigmoid"),))
    fourth = build.step(Elementwise(5, 4, 2, "add", "map"), third, other=first)
    last = build.step(Pool2d(5, 4, 2, 2, 2, (2, 1), (2, 1), (0, 0), (1, 1), "max"), fourth)
    return build.case(fourth, last), SPEC.replace(sram_bytes=700), Options(strategy="search")


CASES = (
    *(rows, groups, padding, two_steps, sums, turns, rolled, shelves),
    *(channels, phases, pool, resize, pointwise, joined, stays),
)
ZOO: dict[str, Callable[[], Made]] = {made.__name__: made for made in CASES}


@dataclass(frozen=True, slots=True)
class Lowered:
    """A case of the zoo with its plan and program."""

    case: Case
    spec: AcceleratorSpec
    plan: Plan
    program: Program

    @classmethod
    def of(cls, case: Case, spec: AcceleratorSpec, options: Options | None = None) -> Lowered:
        plan = plan_region(case.region, spec, options or SEED)
        return cls(case, spec, plan, lower(case.region, plan, spec, case.constants))


@cache
def lowered(name: str) -> Lowered:
    """A case of the zoo by its name."""
    return Lowered.of(*ZOO[name]())


def check(made: Lowered, program: Program | None = None) -> None:
    """Prove the case's program, or another in its place."""
    check_program(made.case.region, made.plan, program or made.program, made.spec)


def with_command(made: Lowered, index: int, **changes: Any) -> Program:
    """The program with fields, flags or waits of one command of the body changed."""
    command = made.program.body[index]
    names = [field.name for field in command.opcode.fields]
    values = list(command.values)
    for name in [name for name in changes if name in names]:
        values[names.index(name)] = changes.pop(name)
    body = list(made.program.body)
    body[index] = replace(command, values=tuple(values), **changes)
    return replace(made.program, body=tuple(body))
