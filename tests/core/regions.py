"""Small regions with the values of their tensors, what they must yield, and ways to run their programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np
from core import oracle, oracle_steps
from numpy.typing import NDArray

from tvm_sramtile.engine.reference import Measured, interpret
from tvm_sramtile.geometry import Conv2d
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Clip, Region, Step, Tensor, digest_of
from tvm_sramtile.isa import Program, Traffic
from tvm_sramtile.options import Options
from tvm_sramtile.plan import Plan

Float = NDArray[np.float32]

# Four lanes, and so little else that numbers can be followed by hand.
SPEC = AcceleratorSpec(name="test", sram_bytes=1 << 20, channel_align=4, mac_array=(4, 4))

# Its cuts can be worked out by hand; what the search finds has tests of its own.
SEED = Options(strategy="seed")


@dataclass(frozen=True, slots=True)
class Case:
    """A region and the values of its inputs and constants.

    Attributes:
        values: by tensor name.
    """

    region: Region
    values: Mapping[str, Float]

    @property
    def constants(self) -> dict[str, Float]:
        return {str(tensor.digest): self.values[tensor.name] for tensor in self.region.constants}

    def expected(self) -> list[Float]:
        """The region's outputs by the oracle."""
        values = oracle_steps.evaluate(self.region, self.values)
        return [values[tensor.name] for tensor in self.region.outputs]

    def arguments(self) -> list[Float]:
        """Inputs, then outputs to be written."""
        outputs = [np.full(tensor.shape, np.nan, np.float32) for tensor in self.region.outputs]
        return [self.values[tensor.name] for tensor in self.region.inputs] + outputs

    def compare(self, arguments: Sequence[Float]) -> None:
        """Fail where the outputs among ``arguments`` are not the oracle's."""
        for output, wanted in zip(arguments[len(self.region.inputs) :], self.expected(), strict=True):
            terms = sum(map(oracle_steps.terms, self.region.steps))
            tolerance = 10 * len(self.region.steps) * oracle.tolerance(terms)
            np.testing.assert_allclose(output, wanted, rtol=tolerance, atol=tolerance)

    def run(self, program: Program) -> Measured:
        """Run ``program`` by the reference, and compare its outputs."""
        arguments = self.arguments()
        measured = interpret(program, arguments, self.region.images, checked=True)
        self.compare(arguments)
        return measured

    def measures(self, plan: Plan) -> Measured:
        """What a run must measure by the plan."""
        traffic = plan.traffic
        kinds = (traffic.input_bytes, traffic.weight_bytes, traffic.output_bytes, traffic.partial_sum_bytes)
        macs = sum(map(oracle_steps.macs, self.region.steps))
        return Measured(dict(zip(Traffic, kinds, strict=True)), macs, plan.sram_peak_bytes)


def region_case(
    *ops: Conv2d,
    images: int = 1,
    constant: bool = False,
    bias: bool = False,
    clips: Sequence[Clip | None] = (None,),
    outputs: Sequence[int] = (-1,),
    seed: int = 0,
) -> Case:
    """A chain of convolutions, each on the output of the one before.

    ``constant``: weights and biases are constants, else parameters. ``bias``: all steps have one. ``clips``: of the
    steps, the last for all the rest. ``outputs``: which steps' outputs are the region's.
    """
    rng = np.random.default_rng(seed)
    first = ops[0]
    data = Tensor("x", (images, first.in_channels, first.in_rows, first.in_cols), "float32")
    values: dict[str, Float] = {"x": rng.standard_normal(data.shape, np.float32)}

    def parameter(name: str, shape: tuple[int, ...]) -> Tensor:
        value = rng.standard_normal(shape, np.float32) / np.float32(1 + len(ops) // 2)
        values[name] = value
        return Tensor(name, shape, "float32", digest_of(value) if constant else None)

    inputs, steps = [data], []
    for index, op in enumerate(ops):
        weight = parameter(f"w{index}", op.weight_shape)
        vector = parameter(f"b{index}", (op.out_channels,)) if bias else None
        output = Tensor(f"y{index}", (images, op.out_channels, op.out_rows, op.out_cols), "float32")
        clip = clips[min(index, len(clips) - 1)]
        name = f"conv{index}"
        steps.append(Step(name, op, data, weight, output, images, vector, clip, origin=(name,)))
        inputs += [] if constant else [weight, *([] if vector is None else [vector])]
        data = output
    region = Region("region", tuple(inputs), tuple(steps[index].output for index in outputs), tuple(steps))
    return Case(region, values)


def mutants(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every way to change one thing in frozen data: (what was changed, the changed value).

    Numbers by 1 up and down; truths turned; enumerations to each other member; texts made longer; of a tuple each item
    changed, dropped, or put twice, and two neighbours exchanged.
    """
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            for what, changed in mutants(getattr(value, field.name), f"{path}.{field.name}"):
                try:
                    yield what, replace(value, **{field.name: changed})
                except ValueError:  # a range that ends before it starts: cannot even be made
                    continue
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            for what, changed in mutants(item, f"{path}[{index}]"):
                yield what, (*value[:index], changed, *value[index + 1 :])
            yield f"{path}: drop {index}", (*value[:index], *value[index + 1 :])
            yield f"{path}: put {index} twice", (*value[:index], item, *value[index:])
        for index in range(len(value) - 1):
            exchanged = (*value[:index], value[index + 1], value[index], *value[index + 2 :])
            if exchanged != value:
                yield f"{path}: exchange {index}", exchanged
    elif isinstance(value, bool):
        yield path, not value
    elif isinstance(value, IntEnum):
        yield from ((path, other) for other in type(value) if other is not value)
    elif isinstance(value, int | float):
        yield from ((path, other) for other in (value - 1, value + 1) if other != value)
        if value in (float("inf"), float("-inf")):
            yield path, 0.0
    elif isinstance(value, str):
        yield path, value + "x"
