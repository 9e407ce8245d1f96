"""Regions planned and lowered, then run by the reference: right values, and measured equals predicted."""

from __future__ import annotations

import numpy as np
from core.programs import ConvCase, Float, conv_case

from tvm_sramtile.compile import compile_region
from tvm_sramtile.engine.reference import Measured, interpret
from tvm_sramtile.errors import DoesNotFit
from tvm_sramtile.geometry import Conv2d
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ints import Range
from tvm_sramtile.ir import Clip, Region, Step, Tensor, digest_of
from tvm_sramtile.isa import Traffic
from tvm_sramtile.options import Options

UNITS = tuple((rows, cols) for rows in range(1, 5) for cols in range(1, 5))


def region_of(case: ConvCase, *, constant: bool) -> Region:
    """The case as a region of one step, its weights and bias constants or parameters."""

    def parameter(name: str, value: Float) -> Tensor:
        return Tensor(name, value.shape, "float32", digest_of(value) if constant else None)

    op, images = case.op, len(case.data)
    data = Tensor("data", case.data.shape, "float32")
    weight = parameter("weight", case.weight)
    bias = None if case.bias is None else parameter("bias", case.bias)
    output = Tensor("output", (images, op.out_channels, op.out_rows, op.out_cols), "float32")
    step = Step("conv", op, data, weight, output, images, bias, None if case.clip is None else Clip(*case.clip))
    return Region("region", (data,) if constant else step.inputs, (output,), (step,))


def memories(rng: np.random.Generator, spec: AcceleratorSpec, unit_bytes: int) -> AcceleratorSpec:
    """Another SRAM: small or large, one pool or three buffers, with or without one for accumulators."""
    size = int(rng.choice([400, 3000, 12000])) + int(rng.integers(100))
    total = size * unit_bytes
    if rng.integers(2):
        spec = spec.replace(sram_bytes=total)
    else:
        half = size // 2 * unit_bytes
        spec = spec.replace(sram_bytes=None, input_bytes=half, weight_bytes=total, output_bytes=half)
    return spec.replace(accumulator_bytes=size // 2 * unit_bytes) if rng.integers(2) else spec


def run(case: ConvCase, seed: int, unit_bytes: int = 4) -> int:
    """Compile, run, compare; the number of chunks, 0 when the operator does not fit at all."""
    rng = np.random.default_rng(seed)
    spec = memories(rng, case.spec.replace(unit_kernels=UNITS), unit_bytes)
    constant, double_buffer = bool(rng.integers(2)), bool(rng.integers(2))
    region = region_of(case, constant=constant)
    parameters = [case.weight] if case.bias is None else [case.weight, case.bias]
    try:
        constants = {digest_of(value): value for value in parameters} if constant else {}
        compiled = compile_region(region, spec, Options(double_buffer=double_buffer), constants)
    except DoesNotFit:
        return 0
    output = np.full(region.outputs[0].shape, np.nan, np.float32)
    arguments = [case.data, *([] if constant else parameters), output]
    measured = interpret(compiled.program, arguments, len(case.data), checked=True)
    np.testing.assert_allclose(output, case.expected(), rtol=case.tolerance, atol=case.tolerance, err_msg=str(seed))
    traffic, peak_bytes = compiled.predicted.traffic, compiled.predicted.sram_peak_bytes
    kinds = (traffic.input_bytes, traffic.weight_bytes, traffic.output_bytes, traffic.partial_sum_bytes)
    predicted = Measured(dict(zip(Traffic, kinds, strict=True)), len(case.data) * case.op.macs, peak_bytes)
    assert measured == predicted, f"seed {seed}"
    return len(compiled.plan.steps[0].chunks)


def wholly_left_or_right(case: ConvCase) -> bool:
    """Whether the outputs read no column of the map at all."""
    return not len(case.op.col_window(Range(0, case.op.out_cols)).read)


def test_random_regions() -> None:
    cases = [(seed, conv_case(seed)) for seed in range(400)]
    chunks = [run(case, seed) for seed, case in cases if not wholly_left_or_right(case)]
    assert sum(count == 1 for count in chunks) > 100
    assert sum(count > 1 for count in chunks) >= 25
    assert 0 < sum(count == 0 for count in chunks) < 200


def test_outputs_that_read_no_column() -> None:
    op = Conv2d(1, 3, 1, 1, (1, 1), strides=(1, 2), padding=(0, 1, 0, 0))
    data, weight, bias = (np.ones(shape, np.float32) for shape in ((1, 1, 3, 1), (1, 1, 1, 1), (1,)))
    case = ConvCase(op, data, weight, bias)
    assert wholly_left_or_right(case)
    assert run(case, seed=0) == 1


def test_memories_of_any_size() -> None:
    for seed in range(100):
        case = conv_case(seed)
        if not wholly_left_or_right(case):
            run(case, seed, unit_bytes=5)
