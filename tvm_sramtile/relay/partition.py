"""``PartitionForSramtile``: what the accelerator takes becomes regions, functions with the back end ``sramtile``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tvm
from tvm import relay

from tvm_sramtile.attributes import RegionAttributes
from tvm_sramtile.errors import CheckFailed
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Region, Step, Tensor, digest_of
from tvm_sramtile.options import Options
from tvm_sramtile.relay.functions import (
    Names,
    as_region,
    exchange,
    is_outlined,
    marks_of,
    plain_functions,
    read_attributes,
    typed_copy,
    with_text_attrs,
)
from tvm_sramtile.relay.graph import Graph, graph_of
from tvm_sramtile.relay.prepare import prepare_module
from tvm_sramtile.relay.split import (
    Edits,
    call_of,
    candidates,
    outline_step,
    raise_refusals,
    spec_of,
    split_module,
)


@tvm.transform.module_pass(opt_level=0, name="PartitionForSramtile")
class PartitionForSramtile:
    """A pass that makes a region of each operator, with its epilogue, that the accelerator takes.

    Functions that ``SplitOversized(outline=True)`` has made become regions as they stand, by their own plans, their
    constant arguments bound. Regions and functions of other back ends are left alone.

    Args:
        spec: the accelerator, or a preset's name or file.
        options: how to plan, and what to do with operators that the accelerator does not take.

    Raises (when the pass runs):
        UnsupportedOp, DoesNotFit: an operator is refused, with ``options.on_refusal == "error"``.
    """

    def __init__(self, spec: AcceleratorSpec | str | Path | None = None, options: Options | None = None) -> None:
        self.spec, self.options = spec_of(spec), options or Options()

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM."""
        return partition_module(mod, self.spec, self.options)


def partition_for_sramtile(
    mod: tvm.IRModule,
    spec: AcceleratorSpec | str | Path | None = None,
    options: Options | None = None,
    *,
    params: Mapping[str, Any] | None = None,
) -> tvm.IRModule:
    """Everything from an imported module to one with regions: bind, fold, split, partition.

    Args:
        mod: left as it is.
        spec: the accelerator, or a preset's name or file; by default ``edge-256k``.
        options: how to plan, and what to do with operators that the accelerator does not take.
        params: values of parameters of ``main`` by name, to become constants.

    Raises:
        UnsupportedOp, DoesNotFit: an operator is refused, with ``options.on_refusal == "error"``.
        SpecError: the spec is unknown or makes no sense.
        ModelError: ``params`` has a name that is no parameter's.
    """
    chip, choices = spec_of(spec), options or Options()
    prepared = prepare_module(mod, params or {})
    if choices.on_refusal == "error":
        raise_refusals(prepared, chip, choices)
    return partition_module(split_module(prepared, chip, choices, outline=True), chip, choices)


def partition_module(mod: tvm.IRModule, spec: AcceleratorSpec, options: Options) -> tvm.IRModule:
    """See ``PartitionForSramtile``."""
    typed = typed_copy(mod)
    if options.on_refusal == "error":
        raise_refusals(typed, spec, options)
    names = Names(typed)
    functions = plain_functions(typed)
    graphs = {var: graph_of(function.body) for var, function in functions.items()}
    edits = {var: Edits() for var in functions}
    changed: dict[Any, Any] = {}
    gone: list[Any] = []
    for var, function in typed.functions.items():
        if is_outlined(function):
            taken = _take_outlined(var, function, graphs, edits)
            gone.append(var)
            changed.update([taken])
    for var, graph in graphs.items():
        for candidate in candidates(graph, spec, options):
            if candidate.plan is not None:
                name = names.fresh(candidate.kind)
                target, region = outline_step(candidate, name, spec, options)
                changed[target] = as_region(region, name)
                operands = _run_time(candidate.match.operands, candidate.step)
                edits[var].take(candidate.match, call_of(target, operands))
        if edits[var].replace:
            changed[var] = edits[var].apply(functions[var], graph)
    return exchange(typed, changed, gone, marks_of(spec, options))


def _run_time(operands: Sequence[Any], step: Step | None) -> list[Any]:
    tensors = step.inputs if step is not None else ()
    return [node for node, tensor in zip(operands, tensors, strict=True) if tensor.digest is None]


def _take_outlined(var: Any, function: Any, graphs: Mapping[Any, Graph], edits: Mapping[Any, Edits]) -> tuple[Any, Any]:
    """The region of an outlined function, its constant arguments bound; notes the change of its calls."""
    name = var.name_hint
    attributes = read_attributes(name, function)
    if len(function.params) != len(attributes.region.inputs):
        raise CheckFailed(
            f"function {name}: it has {len(function.params)} parameters, its region {len(attributes.region.inputs)}"
        )
    bound = _bindable(var, attributes.region, graphs)
    values = {function.params[index]: constant for index, constant in bound.items()}
    digests = {
        attributes.region.inputs[index].name: digest_of(constant.data.numpy()) for index, constant in bound.items()
    }
    target = relay.GlobalVar(name)
    for owner, graph in graphs.items():
        for call in _calls(graph, var):
            kept = [argument for index, argument in enumerate(call.args) if index not in bound]
            edits[owner].replace[call] = call_of(target, kept)
    region = with_digests(replace(attributes.region, name=name), digests)
    changed = RegionAttributes(region, replace(attributes.plan, region=name), attributes.spec, attributes.options)
    body = relay.bind(function.body, values) if values else function.body
    params = [param for index, param in enumerate(function.params) if index not in bound]
    fresh = relay.Function(params, body, function.ret_type, function.type_params)
    return target, as_region(with_text_attrs(fresh, changed.to_attrs()), name)


def _calls(graph: Graph, var: Any) -> list[Any]:
    return [node for node in graph.order if isinstance(node, relay.Call) and node.op.same_as(var)]


def _bindable(var: Any, region: Region, graphs: Mapping[Any, Graph]) -> dict[int, Any]:
    """By parameter index the constant that every call hands over; maps are never bound."""
    maps = {step.data.name for step in region.steps}
    calls = [(graph, call) for graph in graphs.values() for call in _calls(graph, var)]
    bound: dict[int, Any] = {}
    for index, tensor in enumerate(region.inputs):
        values = [graph.resolve(call.args[index]) for graph, call in calls]
        if tensor.name in maps or not values or not all(isinstance(value, relay.Constant) for value in values):
            continue
        if len({digest_of(value.data.numpy()) for value in values}) == 1:
            bound[index] = values[0]
    return bound


def with_digests(region: Region, digests: Mapping[str, str]) -> Region:
    """The region with some tensors known to be constants; they are inputs no more."""

    def known(tensor: Tensor) -> Tensor:
        return replace(tensor, digest=digests[tensor.name]) if tensor.name in digests else tensor

    def steps(old: Iterable[Step]) -> tuple[Step, ...]:
        return tuple(
            replace(step, weight=known(step.weight), bias=None if step.bias is None else known(step.bias))
            for step in old
        )

    inputs = tuple(tensor for tensor in region.inputs if tensor.name not in digests)
    return replace(region, inputs=inputs, steps=steps(region.steps))
