"""What becomes of each operator: a region with its plan, or the reason why it stays on the host."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import tvm

from tvm_sramtile.attributes import RegionAttributes
from tvm_sramtile.errors import DoesNotFit, SramtileError, UnsupportedOp
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Region, Step, Tensor, digest_of
from tvm_sramtile.options import Options
from tvm_sramtile.plan import Plan, plan_region
from tvm_sramtile.relay.access import constant_value, is_constant, named_ops, op_name, short_name
from tvm_sramtile.relay.functions import plain_functions
from tvm_sramtile.relay.graph import Graph, graph_of
from tvm_sramtile.relay.read import Found, find_steps

DEFAULT_SPEC = "edge-256k"
NO_UNIT = "no unit of the accelerator computes it"

# Operators that users expect on the accelerator: where they stay on the host, `on_refusal="error"` says so.
_HEAVY = ("nn.conv2d", "nn.conv2d_transpose", "image.resize2d", "nn.upsampling")


def load_spec(spec: AcceleratorSpec | str | Path | None) -> AcceleratorSpec:
    """A spec from what users give: itself, a preset's name, a file's path, or nothing for the default."""
    if isinstance(spec, AcceleratorSpec):
        return spec
    return AcceleratorSpec.load(DEFAULT_SPEC if spec is None else spec)


@dataclass(frozen=True, slots=True)
class Decision:
    """An operator and what becomes of it: ``region`` and ``plan``, or ``error``.

    The region has no name yet; ``attributes`` gives it one.
    """

    found: Found
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
        return Decision(found, spec, options, None, None, error)

    prefix = f"{found.kind} {found.name}: "
    if not found.steps:
        return refused(UnsupportedOp(prefix + found.refusal))
    steps = tuple(_with_digests(step, found) for step in found.steps) if constants else found.steps
    if reason := _several_images(found):
        return refused(UnsupportedOp(prefix + reason))
    try:
        region = _region(steps)
        return Decision(found, spec, options, region, plan_region(region, spec, options), None)
    except (DoesNotFit, UnsupportedOp) as error:
        return refused(type(error)(with_kind(str(error), found)))


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


def with_kind(text: str, found: Found) -> str:
    """The planner's text with the operator's name as in TVM."""
    for step in found.steps:
        own = f"{step.op.kind} {step.name}"
        if text.startswith(own):
            return f"{found.kind} {found.name}{text.removeprefix(own)}"
    return text


def decide_function(
    graph: Graph, spec: AcceleratorSpec, options: Options, *, constants: bool = True
) -> tuple[Decision, ...]:
    """The decisions for all operators with a reader; where one does not fit with its epilogue, without it.

    Args:
        graph: of a function whose types have been inferred.
        spec: the accelerator.
        options: how to plan.
        constants: see ``decide``.
    """
    made: dict[int, Decision] = {}

    def accept(found: Found) -> bool:
        made[id(found)] = decide(found, spec, options, constants=constants)
        return made[id(found)].error is None

    return tuple(made[id(found)] for found in find_steps(graph, accept))


def raise_refusals(mod: tvm.IRModule, spec: AcceleratorSpec, options: Options) -> None:
    """Raise the error of the first operator, among those that belong on the accelerator, that stays on the host."""
    for function in plain_functions(mod).values():
        graph = graph_of(function.body)
        raise_first(graph, decide_function(graph, spec, options))


def raise_first(graph: Graph, decisions: Iterable[Decision]) -> None:
    """See ``raise_refusals``, for one function."""
    errors = {node: decision.error for decision in decisions for node in decision.found.nodes}
    for node, name in named_ops(graph):
        if op_name(node) in _HEAVY:
            error = errors.get(node, UnsupportedOp(f"{short_name(node)} {name}: {NO_UNIT}"))
            if error is not None:
                raise error
