"""What becomes of each operator: a region with its plan, or the reason why it stays on the host."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import tvm
from tvm import relax

from tvm_sramtile.attributes import RegionAttributes
from tvm_sramtile.errors import DoesNotFit, SramtileError, UnsupportedOp
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Region, Tensor, digest_of
from tvm_sramtile.options import Options
from tvm_sramtile.plan import Plan, judge, plan_region
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


def decide(
    found: Found, spec: AcceleratorSpec, options: Options, *, epilogue: bool = True, constants: bool = True
) -> Decision:
    """Plan an operator.

    Args:
        found: the operator.
        spec: the accelerator.
        options: how to plan.
        epilogue: with its bias and limits; else the operator alone.
        constants: literal operands become constants of the region; else inputs like all others.
    """
    places = found.places if epilogue else found.places[:1]

    def decision(region: Region | None, plan: Plan | None, error: SramtileError | None) -> Decision:
        return Decision(found, places, spec, options, region, plan, error)

    step = found.step
    if step is None:
        return decision(None, None, UnsupportedOp(f"{found.kind} {found.name}: {found.refusal}"))
    if not epilogue:
        step = replace(step, bias=None, clip=None, origin=step.origin[:1])
    verdict = judge(step, spec)
    if not verdict.ok:
        return decision(None, None, UnsupportedOp(f"{found.kind} {found.name}: {verdict.reason}"))
    if constants:
        step = replace(
            step,
            data=_with_digest(step.data, found),
            weight=_with_digest(step.weight, found),
            bias=None if step.bias is None else _with_digest(step.bias, found),
        )
    inputs = tuple(tensor for tensor in step.inputs if tensor.digest is None)
    region = Region("", inputs, (step.output,), (step,))
    try:
        return decision(region, plan_region(region, spec, options), None)
    except (DoesNotFit, UnsupportedOp) as error:
        return decision(None, None, error)


def _with_digest(tensor: Tensor, found: Found) -> Tensor:
    value = found.operands[tensor.name]
    return replace(tensor, digest=digest_of(constant_value(value))) if is_constant(value) else tensor


def decide_all(
    mod: tvm.IRModule, spec: AcceleratorSpec, options: Options, **choices: bool
) -> dict[str, tuple[Decision, ...]]:
    """The decisions for all operators with a reader, by function.

    Raises:
        UnsupportedOp, DoesNotFit: with ``on_refusal="error"``, for the first operator that would stay on the host.
    """
    decisions: dict[str, tuple[Decision, ...]] = {}
    for var, function in plain_functions(mod):
        decisions[var.name_hint] = tuple(decide(found, spec, options, **choices) for found in find_steps(function))
        if options.on_refusal == "error":
            _raise_first(function, decisions[var.name_hint])
    return decisions


def _raise_first(function: relax.Function, decisions: tuple[Decision, ...]) -> None:
    known = {decision.places[0]: decision.error for decision in decisions}
    for block in blocks_of(function.body):
        for position, binding in enumerate(block.bindings):
            name = op_name(getattr(binding, "value", None))
            if name not in _HEAVY:
                continue
            missing = UnsupportedOp(f"{name.rpartition('.')[2]} {binding.var.name}: {NO_UNIT}")
            error = known.get((identity(block), position), missing)
            if error is not None:
                raise error
