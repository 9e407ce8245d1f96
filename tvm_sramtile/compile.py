"""The one door from a region to its plan and program: plan, check, lower, check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Region
from tvm_sramtile.isa import Program, encode
from tvm_sramtile.lower import Timeline, lower, timeline
from tvm_sramtile.lower.check import check_program
from tvm_sramtile.options import Options
from tvm_sramtile.plan import Plan, Traffic, plan_region
from tvm_sramtile.plan.check import check_plan


@dataclass(frozen=True, slots=True)
class Compiled:
    """A region, its plan and its program."""

    region: Region
    plan: Plan
    program: Program

    @property
    def code(self) -> bytes:
        """The program's bytes."""
        return encode(self.program)

    @property
    def step_names(self) -> tuple[str, ...]:
        """The names of the region's steps, in order."""
        return tuple(step.name for step in self.region.steps)

    @property
    def predicted(self) -> Prediction:
        """What one call with the region's batch will measure."""
        time = timeline(self.program, self.region.images)
        return Prediction(self.plan.traffic, self.plan.sram_peak_bytes, time)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What one call will measure: DRAM bytes and SRAM peak from the plan, cycles from the timeline."""

    traffic: Traffic
    sram_peak_bytes: int
    time: Timeline


def compile_region(
    region: Region,
    spec: AcceleratorSpec,
    options: Options,
    constants: Mapping[str, NDArray[np.generic]] | None,
    plan: Plan | None = None,
) -> Compiled:
    """Compile ``region``; with ``plan``, by that plan, else by one made here.

    Args:
        region: what to compute.
        spec: the accelerator.
        options: how to compile.
        constants: values of the region's constants by their digests (``ir.digest_of``); ``None`` for a program that is
            only counted.
        plan: how to cut it; ``None``: as the options say.

    Raises:
        UnsupportedOp: the accelerator has no unit for a step.
        DoesNotFit: no cut of a step fits the SRAM.
        CheckFailed: the plan, the program or a constant is wrong.
    """
    if plan is None:
        plan = plan_region(region, spec, options)
    check_plan(region, plan, spec)
    program = lower(region, plan, spec, constants)
    check_program(region, plan, program, spec, values=constants is not None)
    return Compiled(region, plan, program)
