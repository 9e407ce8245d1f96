"""Whether the maps that stay in SRAM can lie where they do, and what each step then knows of them. Part of the proof of
plans; see ``check_plan``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from tvm_sramtile.errors import CheckFailed
from tvm_sramtile.geometry import Conv2d, Conv2dTranspose, Elementwise
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Region, Step
from tvm_sramtile.plan.check_memory import map_bytes
from tvm_sramtile.plan.plan import Plan, Stay, StepPlan


def check_stays(region: Region, plan: Plan, spec: AcceleratorSpec) -> None:
    """Prove that ``plan.stays`` are maps of one step each, apart from one another, and known to the steps beside them.

    Raises:
        CheckFailed: the first fault, naming the tensor or the step.
    """
    if plan.stays and (spec.sram_bytes is None or plan.strategy == "seed"):
        raise CheckFailed(
            f"plan of region {plan.region}: maps stay in SRAM, which {plan.strategy} on {spec.name} forbids"
        )
    for at, stay in enumerate(plan.stays):
        _check_stay(region, stay, spec)
        for other in plan.stays[:at]:
            together = stay.first <= other.last and other.first <= stay.last
            apart = stay.offset_bytes >= other.offset_bytes + other.bytes
            if together and not apart and other.offset_bytes < stay.offset_bytes + stay.bytes:
                raise CheckFailed(
                    f"plan of region {plan.region}: maps {other.tensor} and {stay.tensor} overlap in SRAM"
                )
    for index, (step, step_plan) in enumerate(zip(region.steps, plan.steps, strict=True)):
        _check_step(index, region, plan, step, step_plan)
        _check_cut(step, step_plan, spec)


def _check_stay(region: Region, stay: Stay, spec: AcceleratorSpec) -> None:
    def fail(message: str) -> NoReturn:
        raise CheckFailed(f"plan of region {region.name}: map {stay.tensor}, which stays in SRAM, {message}")

    writers = [at for at, step in enumerate(region.steps) if step.output.name == stay.tensor]
    if writers != [stay.first]:
        fail(f"is made by the steps {writers}, must be made by step {stay.first} alone")
    step = region.steps[stay.first]
    readers = [at for at, later in enumerate(region.steps) if any(one.name == stay.tensor for one in later.inputs)]
    if not readers or readers[0] <= stay.first or stay.last not in readers:
        fail(f"stays from step {stay.first} to step {stay.last}, but the steps that read it are {readers}")
    for at in readers:
        for tensor, role in region.steps[at].uses:
            if tensor.name == stay.tensor and (tensor != step.output or role != "data"):
                fail(f"is read by step {region.steps[at].name} as {role}, in another way than it is made")
    letters = dict(zip(step.output.layout or "NCHW", step.output.shape, strict=True))
    if step.output_channel or letters.get("C", 1) != step.op.out_channels:
        fail("has channels that its step does not make")
    size = map_bytes(spec, step.op.out_rows, step.op.out_cols, step.op.out_channels, step.output.dtype)
    if stay.bytes != size:
        fail(f"has {stay.bytes} B, must have {size}")
    if stay.offset_bytes < 0 or stay.offset_bytes % 4:
        fail(f"begins at byte {stay.offset_bytes}, which is no place of an element")


def _check_step(index: int, region: Region, plan: Plan, step: Step, step_plan: StepPlan) -> None:
    """What the step knows of what stays is so."""
    alive = {stay.tensor: stay for stay in plan.stays if stay.first <= index <= stay.last}
    around = step_plan.around
    maps = tuple(name for name, tensor in _maps(step) if tensor in alive)
    taken = max((stay.offset_bytes + stay.bytes for stay in alive.values()), default=0)
    last = alive[step.output.name].last if step.output.name in alive else -1
    wanted_later = any(step.output in later.inputs for later in region.steps[last + 1 :])
    stored = wanted_later or step.output in region.outputs or not alive
    if (around.maps, around.stored, around.taken_bytes) != (maps, stored, taken):
        raise CheckFailed(
            f"plan of step {step.name}: around it are {around}; of its maps {maps} stay, the output is "
            f"{'' if stored else 'not '}wanted in DRAM, and {taken} B are taken"
        )


def _check_cut(step: Step, plan: StepPlan, spec: AcceleratorSpec) -> None:
    """The chunks of a map that stays can lie in it: whole rows and columns, and blocks of channels."""
    maps, lanes, what = plan.around.maps, spec.channel_align, f"plan of step {step.name}: "
    if not maps:
        return
    if ("output" in maps or isinstance(step.op, Elementwise)) and len(plan.rows) * len(plan.cols) > 1:
        raise CheckFailed(f"{what}a map that stays is cut into {len(plan.rows)} x {len(plan.cols)} rows and columns")
    if "output" in maps and any(part.start % lanes for part in plan.channels):
        raise CheckFailed(f"{what}a chunk of the output, which stays, does not begin a block of {lanes} channels")
    if {"input", "other"} & set(maps) and any(start % lanes for start in _sources(step, plan)):
        raise CheckFailed(f"{what}a part of the input, which stays, does not begin a block of {lanes} channels")
    if "input" in maps and (plan.rolled or plan.input_per_pass):
        raise CheckFailed(f"{what}the input stays in SRAM, but its rows are kept or loaded for each pass")


def _sources(step: Step, plan: StepPlan) -> Iterator[int]:
    """The first input channel of each part that a command reads."""
    op = step.op
    for part in plan.channels:
        if not isinstance(op, Conv2d | Conv2dTranspose):
            yield part.start
            continue
        group = part.start // (op.out_channels // op.groups) * (op.in_channels // op.groups)
        yield from (group + one.start for one in plan.in_channels)


def _maps(step: Step) -> Iterator[tuple[str, str]]:
    yield "input", step.data.name
    if isinstance(step.op, Elementwise) and step.op.partner == "map" and step.other is not None:
        yield "other", step.other.name
    yield "output", step.output.name
