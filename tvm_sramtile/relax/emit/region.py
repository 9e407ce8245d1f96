"""Regions as functions that TVM itself can run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import relax
from tvm.script import relax as R  # noqa: N812 (what everyone calls it)

from tvm_sramtile.attributes import CODEGEN, RegionAttributes
from tvm_sramtile.ir import Step, Tensor
from tvm_sramtile.relax.emit.emitter import Emitter
from tvm_sramtile.relax.emit.site import NCHW
from tvm_sramtile.relax.emit.steps import chunked_step, whole_step

DEFAULT_UNROLLED_CHUNKS = 64

CONSTANTS = "sramtile.constants"
"""The attribute with the literal tensors of a region, by digest."""


def body_is_chunked(attributes: RegionAttributes) -> bool:
    """Whether a region's body is written as chunks."""
    return attributes.body_is_chunked(DEFAULT_UNROLLED_CHUNKS)


def region_function(
    attributes: RegionAttributes, constants: Mapping[str, Any], *, chunked: bool, codegen: bool
) -> relax.Function:
    """The function of a region.

    Args:
        attributes: the region, its plan, and what else the function carries.
        constants: literal tensors by digest.
        chunked: the chunked subgraph as body, else the operators.
        codegen: hand it to our back end; else it is an ordinary function that carries the plan.
    """
    region = attributes.region
    params = [relax.Var(tensor.name, R.Tensor(tensor.shape, tensor.dtype)) for tensor in region.inputs]
    out = Emitter("chunk" if chunked else "lv", dataflow=True)
    values = _Values(out, {tensor.name: param for tensor, param in zip(region.inputs, params, strict=True)})
    values.known |= {tensor.name: constants[str(tensor.digest)] for tensor in region.constants}
    units = attributes.spec.unit_kernels
    for step, plan in zip(region.steps, attributes.plan.steps, strict=True):
        operands = {tensor.name: values.of(tensor) for tensor in step.inputs}
        result = chunked_step(out, step, plan, operands, units) if chunked else whole_step(out, step, operands)
        values.add(step, result)
    results = [values.of(tensor, last=len(region.outputs) == 1) for tensor in region.outputs]
    typed = out.typed(results[0] if len(results) == 1 else relax.Tuple(results))
    returned = relax.Var("out", typed.ty)
    out.bind(returned, typed)
    body = relax.SeqExpr([relax.DataflowBlock(out.bindings)], returned)
    relax.expr._update_type(body, typed.ty)
    marks: dict[str, Any] = {"Codegen": CODEGEN} if codegen else {}
    if region.constants:
        marks[CONSTANTS] = {str(tensor.digest): constants[str(tensor.digest)] for tensor in region.constants}
    function = relax.Function(params, body, typed.ty, True)
    return function.with_attrs({"global_symbol": region.name, **marks, **attributes.to_attrs()})


@dataclass(slots=True)
class _Values:
    """The tensors of a region by name: those that are known, and those that steps write part by part.

    A step's result stays unbound until it is asked for, so that the last one can be bound to what is returned.
    """

    out: Emitter
    known: dict[str, Any]
    parts: dict[str, list[tuple[int, Any]]] = field(default_factory=dict)

    def add(self, step: Step, result: Any) -> None:
        """What a step writes: all of a tensor, or some of its channels."""
        self.parts.setdefault(step.output.name, []).append((step.output_channel, result))

    def of(self, tensor: Tensor, *, last: bool = False) -> Any:
        """A tensor; ``last``: its call need not be bound."""
        if tensor.name in self.known:
            return self.known[tensor.name]
        value = _concatenated(self.out, tensor, self.parts[tensor.name])
        self.known[tensor.name] = value if last else self.out.leaf(value)
        return self.known[tensor.name]


def _concatenated(out: Emitter, tensor: Tensor, parts: Sequence[tuple[int, Any]]) -> Any:
    """A tensor that several steps write: on the accelerator each stores its channels in their place."""
    if len(parts) == 1:
        return parts[0][1]
    ordered = [out.leaf(value) for _, value in sorted(parts, key=lambda part: part[0])]
    return relax.op.concat(ordered, axis=(tensor.layout or NCHW).index("C"))
