"""Commands of a region: step by step, chunk by chunk: load what is not there yet, compute, store."""

from __future__ import annotations

from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Region
from tvm_sramtile.isa import Program
from tvm_sramtile.lower.step import StepLowering
from tvm_sramtile.lower.tensors import Constants, TensorTable
from tvm_sramtile.lower.waits import Sequencer
from tvm_sramtile.plan import Plan


def lower(region: Region, plan: Plan, spec: AcceleratorSpec, constants: Constants | None) -> Program:
    """The program of ``region`` for one image; the same plan always gives the same program.

    Args:
        region: what to compute.
        plan: how.
        spec: the accelerator that the plan was made for.
        constants: the values of the region's constants by their digests; ``None`` for a program that is only counted,
            with zeros in their place.

    Raises:
        CheckFailed: a constant is missing, or the plan's buffers do not fit the spec.
    """
    table = TensorTable(region, constants, spec.channel_align)
    prologue, body = Sequencer(), Sequencer()
    for index, (step, step_plan) in enumerate(zip(region.steps, plan.steps, strict=True)):
        StepLowering(index, step, step_plan, plan.stays, spec, table, prologue, body).run()
    return Program(
        **Program.chip(spec),
        argument_count=len(region.inputs) + len(region.outputs),
        tensors=tuple(table.records),
        prologue=tuple(prologue.commands),
        body=tuple(body.commands),
        steps=len(region.steps),
        constants=bytes(table.blob),
        workspace_bytes=table.workspace_bytes,
    )
