"""``SplitOversized``: operators that overflow the SRAM become chunks of rows that fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tvm
from tvm import relay

from tvm_sramtile.attributes import RegionAttributes
from tvm_sramtile.errors import DoesNotFit, UnsupportedOp
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Region, Step
from tvm_sramtile.options import Options
from tvm_sramtile.plan import Plan, plan_region
from tvm_sramtile.relay.emit import Operands, chunked_body, whole_body
from tvm_sramtile.relay.functions import Names, exchange, plain_functions, typed_copy, with_text_attrs
from tvm_sramtile.relay.graph import Graph, Lookup, Node, graph_of, rewrite
from tvm_sramtile.relay.read import Match, Refusal, find_matches, named_ops, op_name, read_step, region_of, short_name

MAX_UNROLLED_CHUNKS = 16
"""Bodies with more chunks are written as the operator itself, unless the options say otherwise."""

DEFAULT_SPEC = "edge-256k"
UNTAKEN = ("nn.conv2d_transpose", "image.resize2d", "nn.upsampling")
"""Operators that the accelerator is meant for but does not take yet."""
NO_UNIT = "no unit of the accelerator computes it"
REFERENCES = "its function uses references, whose order of execution must not change"


@tvm.transform.module_pass(opt_level=0, name="SplitOversized")
class SplitOversized:
    """A pass that rewrites each ``nn.conv2d`` that overflows into chunks of rows; all else is left as it is.

    Inline (``outline=False``) the chunks stand in place of the operator, as plain Relay that runs on any target. With
    ``outline=True`` each split operator becomes, with its epilogue, one global function that takes the whole weight
    as a parameter and carries its description and plan as attributes. Relay's virtual machine runs that as it is; its
    graph executor takes no calls of functions. Functions of back ends and outlined ones are left alone.

    Args:
        spec: the accelerator, or a preset's name or file.
        options: how to plan, and what to do with operators that cannot be split.
        outline: see above.

    Raises (when the pass runs):
        UnsupportedOp, DoesNotFit: an operator is refused, with ``options.on_refusal == "error"``.
    """

    def __init__(
        self, spec: AcceleratorSpec | str | Path | None = None, options: Options | None = None, outline: bool = False
    ) -> None:
        self.spec, self.options, self.outline = spec_of(spec), options or Options(), outline

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM."""
        return split_module(mod, self.spec, self.options, outline=self.outline)


def spec_of(spec: AcceleratorSpec | str | Path | None) -> AcceleratorSpec:
    """A spec from what users may give: a spec, a preset's name, a file's path, or nothing for the default."""
    return spec if isinstance(spec, AcceleratorSpec) else AcceleratorSpec.load(spec or DEFAULT_SPEC)


def split_module(mod: tvm.IRModule, spec: AcceleratorSpec, options: Options, *, outline: bool) -> tvm.IRModule:
    """See ``SplitOversized``."""
    typed = typed_copy(mod)
    if options.on_refusal == "error":
        raise_refusals(typed, spec, options, alone=not outline)
    names = Names(typed)
    changed: dict[Any, Any] = {}
    for var, function in plain_functions(typed).items():
        graph = graph_of(function.body)
        edits = Edits()
        for candidate in candidates(graph, spec, options, alone=not outline, digests=False):
            if candidate.plan is None or not candidate.plan.steps[0].is_split:
                continue
            if outline:
                target, outlined = outline_step(candidate, names.fresh(candidate.kind), spec, options)
                changed[target] = outlined
                edits.take(candidate.match, call_of(target, candidate.match.operands))
            else:
                edits.take(candidate.match, _inline(candidate))
        if edits.replace:
            changed[var] = edits.apply(function, graph)
    return exchange(typed, changed) if changed else mod


@dataclass(frozen=True, slots=True)
class Edits:
    """What is to be replaced in one function."""

    replace: dict[Node, Callable[[Lookup], Node]] = field(default_factory=dict)
    absorbed: set[Node] = field(default_factory=set)

    def take(self, match: Match, build: Callable[[Lookup], Node]) -> None:
        """Replace all nodes of a match by what ``build`` makes."""
        self.replace[match.root] = build
        self.absorbed.update(match.nodes[:-1])

    def apply(self, function: Any, graph: Graph) -> Any:
        """The function with its body rewritten."""
        body = rewrite(graph, self.replace, frozenset(self.absorbed))
        return relay.Function(function.params, body, function.ret_type, function.type_params, function.attrs)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A match and what became of it: a step with its plan, or the reason why not.

    Attributes:
        error: the exception that ``on_refusal="error"`` raises.
    """

    match: Match
    step: Step | None = None
    plan: Plan | None = None
    error: UnsupportedOp | DoesNotFit | None = None

    @property
    def reason(self) -> str:
        """Why the operator stays on the host, without its name; "" where it does not."""
        return "" if self.error is None else str(self.error).removeprefix(f"{self.kind} {self.match.name}: ")

    @property
    def kind(self) -> str:
        """The operator's short name."""
        return short_name(self.match.nodes[0])

    def region(self, name: str) -> Region:
        """The region of this name."""
        if self.step is None:
            raise ValueError(f"{self.match.name} is no step")
        return region_of(name, (self.step,))


def candidates(
    graph: Graph, spec: AcceleratorSpec, options: Options, *, alone: bool = False, digests: bool = True
) -> Iterator[Candidate]:
    """Every convolution of a function with its plan or its refusal, in order of execution.

    Args:
        graph: of a function whose types have been inferred.
        spec: the accelerator.
        options: how to plan.
        alone: without epilogues.
        digests: see ``read_step``.
    """
    for found in find_matches(graph):
        match = found.alone() if alone else found
        if graph.has_references:
            yield Candidate(match, error=UnsupportedOp(f"conv2d {match.name}: {REFERENCES}"))
            continue
        step = read_step(match, digests=digests)
        if isinstance(step, Refusal):
            yield Candidate(match, error=UnsupportedOp(f"conv2d {match.name}: {step}"))
            continue
        try:
            plan = plan_region(region_of(match.name, (step,)), spec, options)
        except (UnsupportedOp, DoesNotFit) as error:
            yield Candidate(match, step, error=error)
        else:
            yield Candidate(match, step, plan)


def raise_refusals(mod: tvm.IRModule, spec: AcceleratorSpec, options: Options, *, alone: bool = False) -> None:
    """Raise for the first operator that the accelerator is meant for and does not take."""
    for function in plain_functions(mod).values():
        graph = graph_of(function.body)
        for node, name in named_ops(graph):
            if op_name(node) in UNTAKEN:
                raise UnsupportedOp(f"{short_name(node)} {name}: {NO_UNIT}")
        for candidate in candidates(graph, spec, options, alone=alone):
            if candidate.error is not None:
                raise candidate.error


def outline_step(candidate: Candidate, name: str, spec: AcceleratorSpec, options: Options) -> tuple[Any, Any]:
    """A global variable and its function, which computes the step from its run-time operands."""
    step, plan, region = candidate.step, candidate.plan, candidate.region(name)
    if step is None or plan is None:
        raise ValueError(f"{candidate.match.name} has no plan")
    params = {tensor.name: relay.var(tensor.name, shape=tensor.shape, dtype=tensor.dtype) for tensor in region.inputs}
    values = [params.get(tensor.name, node) for tensor, node in zip(step.inputs, candidate.match.operands, strict=True)]
    body = step_body(step, plan, Operands(*values), options)
    result = relay.TensorType(step.output.shape, step.output.dtype)
    function = relay.Function(list(params.values()), body, result)
    attributes = RegionAttributes(region, replace(plan, region=name), spec, options)
    return relay.GlobalVar(name), with_text_attrs(function, attributes.to_attrs())


def step_body(step: Step, plan: Plan, operands: Operands, options: Options) -> Node:
    """The body of a step's function: chunks, or the operator where it is not split or the chunks are too many."""
    (step_plan,) = plan.steps
    limit = MAX_UNROLLED_CHUNKS if options.max_unrolled_chunks is None else options.max_unrolled_chunks
    if step_plan.is_split and len(step_plan.chunks) <= limit:
        return chunked_body(step, step_plan, operands)
    return whole_body(step, operands)


def call_of(target: Any, operands: Sequence[Node]) -> Callable[[Lookup], Node]:
    """Makes a call of a global function on what stands for some nodes."""
    return lambda lookup: relay.Call(target, [lookup(node) for node in operands])


def _inline(candidate: Candidate) -> Callable[[Lookup], Node]:
    step, plan = candidate.step, candidate.plan
    if step is None or plan is None:
        raise ValueError(f"{candidate.match.name} has no plan")
    return lambda lookup: chunked_body(step, plan.steps[0], Operands(*map(lookup, candidate.match.operands)))
