"""What becomes of each operator: a region with its plan, or the reason why it stays on the host."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import tvm
from tvm import relax

from tvm_sramtile.attributes import RegionAttributes
from tvm_sramtile.errors import DoesNotFit, SramtileError, UnsupportedOp
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Region, Step, Tensor, digest_of
from tvm_sramtile.options import Options
from tvm_sramtile.plan import Plan, plan_region
from tvm_sramtile.relax.access import constant_value, is_constant, op_name
from tvm_sramtile.relax.read import Found, find_steps
from tvm_sramtile.relax.walk import Place, blocks_of, identity, plain_functions

DEFAULT_SPEC = "edge-256k"

# Operators that users expect on the accelerator: where they stay on the host, `on_refusal="error"` says so.
_HEAVY = ("relax.nn.conv2d", "relax.nn.conv2d_transpose", "relax.image.resize2d")
NO_UNIT = "no unit of the accelerator computes it"


def load_spec(spec: AcceleratorSpec | str | Path | None) -> AcceleratorSpec:
    """A spec from what users give: itself, a preset's name, a file's path, or nothing for the default."""
    if isinstance(spec, AcceleratorSpec):
        return spec
    return AcceleratorSpec.load(DEFAULT_SPEC if spec is None else spec)


@dataclass(frozen=True, slots=True)
class Decision:
    """An operator and what becomes of it: ``region`` and ``plan``, or ``error``.

    The region has no name yet; ``attributes`` gives it one.

    Attributes:
        places: the bindings that the region takes in.
    """

    found: Found
    places: tuple[Place, ...]
    spec: AcceleratorSpec
    options: Options
    region: Region | None
    plan: Plan | None
    error: SramtileError | None

    @property
    def is_split(self) -> bool:
        """Whether there is a plan of more than one chunk for a step."""
        return self.plan is not None and any(step.is_split for step in self.plan.steps)

    @property
    def reason(self) -> str:
        """Why the operator stays on the host, without its name; "" where it does not."""
        return "" if self.error is None else str(self.error).removeprefix(f"{self.found.kind} {self.found.name}: ")

    def attributes(self, name: str) -> RegionAttributes:
        """The region under its name."""
        if self.region is None or self.plan is None:
            raise ValueError(f"{self.found.kind} {self.found.name} has no region: {self.reason}")
        return renamed(RegionAttributes(self.region, self.plan, self.spec, self.options), name)


def renamed(attributes: RegionAttributes, name: str) -> RegionAttributes:
    """The same region under another name."""
    return replace(
        attributes,
        region=replace(attributes.region, name=name),
        plan=replace(attributes.plan, region=name),
    )


def decide(found: Found, spec: AcceleratorSpec, options: Options, *, constants: bool = True) -> Decision:
    """Plan what was found.

    Args:
        found: the operator.
        spec: the accelerator.
        options: how to plan.
        constants: literal operands become constants of the region; else inputs like all others.
    """

    def refused(error: SramtileError) -> Decision:
        return Decision(found, found.places, spec, options, None, None, error)

    prefix = f"{found.kind} {found.name}: "
    if not found.steps:
        return refused(UnsupportedOp(prefix + found.refusal))
    steps = tuple(_with_digests(step, found) for step in found.steps) if constants else found.steps
    if reason := _several_images(found):
        return refused(UnsupportedOp(prefix + reason))
    try:
        region = _region(steps)
        return Decision(found, found.places, spec, options, region, plan_region(region, spec, options), None)
    except (DoesNotFit, UnsupportedOp) as error:
        return refused(type(error)(_with_kind(str(error), found)))


def _region(steps: tuple[Step, ...]) -> Region:
    """The steps as a region: its inputs in order of first use, its output that of the last step."""
    made = {step.output.name for step in steps}
    read = {tensor.name: tensor for step in steps for tensor in step.inputs if tensor.digest is None}
    inputs = {name: tensor for name, tensor in read.items() if name not in made}
    return Region("", tuple(inputs.values()), (steps[-1].output,), steps)


def _with_digests(step: Step, found: Found) -> Step:
    """The step with its literal operands as constants."""

    def known(tensor: Tensor) -> Tensor:
        literal = found.operands.get(tensor.name)
        return replace(tensor, digest=digest_of(constant_value(literal))) if is_constant(literal) else tensor

    return step.with_inputs(known)


def _several_images(found: Found) -> str:
    """Why a literal map of several images is none that a region can hold; "" where there is none."""
    for step in found.steps:
        for tensor, role in step.uses:
            if role == "data" and step.images > 1 and is_constant(found.operands.get(tensor.name)):
                return f"{tensor.name} is a constant of {step.images} images: the accelerator takes constants of one"
    return ""


def _with_kind(text: str, found: Found) -> str:
    """The planner's text with the operator's name as in TVM."""
    for step in found.steps:
        own = f"{step.op.kind} {step.name}"
        if text.startswith(own):
            return f"{found.kind} {found.name}{text.removeprefix(own)}"
    return text


def decide_function(
    function: relax.Function,
    spec: AcceleratorSpec,
    options: Options,
    *,
    epilogue: bool = True,
    constants: bool = True,
) -> tuple[Decision, ...]:
    """The decisions for all operators with a reader; where one does not fit with its epilogue, without it.

    Args:
        function: where to look.
        spec: the accelerator.
        options: how to plan.
        epilogue: operators with their epilogues; else each operator alone.
        constants: see ``decide``.
    """
    made: dict[int, Decision] = {}

    def accept(found: Found) -> bool:
        made[id(found)] = decide(found, spec, options, constants=constants)
        return made[id(found)].error is None

    return tuple(made[id(found)] for found in find_steps(function, accept, epilogue=epilogue))


def decide_all(
    mod: tvm.IRModule, spec: AcceleratorSpec, options: Options, *, epilogue: bool = True, constants: bool = True
) -> dict[str, tuple[Decision, ...]]:
    """The decisions of ``decide_function`` for all functions that passes may change, by function.

    Raises:
        UnsupportedOp, DoesNotFit: with ``on_refusal="error"``, for the first operator that would stay on the host.
    """
    decisions: dict[str, tuple[Decision, ...]] = {}
    for var, function in plain_functions(mod):
        found = decide_function(function, spec, options, epilogue=epilogue, constants=constants)
        decisions[var.name_hint] = found
        if options.on_refusal == "error":
            _raise_first(function, found)
    return decisions


def _raise_first(function: relax.Function, decisions: tuple[Decision, ...]) -> None:
    known = {place: decision.error for decision in decisions for place in decision.places}
    for block in blocks_of(function.body):
        for position, binding in enumerate(block.bindings):
            name = op_name(getattr(binding, "value", None))
            if name not in _HEAVY:
                continue
            missing = UnsupportedOp(f"{name.rpartition('.')[2]} {binding.var.name}: {NO_UNIT}")
            error = known.get((identity(block), position), missing)
            if error is not None:
                raise error
