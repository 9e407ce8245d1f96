"""Regions as functions that TVM itself can run."""

from __future__ import annotations

from collections.abc import Mapping

from tvm import relay

from tvm_sramtile.attributes import RegionAttributes
from tvm_sramtile.ir import Tensor
from tvm_sramtile.relay.emit.site import NCHW
from tvm_sramtile.relay.emit.steps import chunked_step, whole_step
from tvm_sramtile.relay.graph import Node

DEFAULT_UNROLLED_CHUNKS = 16


def body_is_chunked(attributes: RegionAttributes) -> bool:
    """Whether a region's body is written as chunks."""
    return attributes.body_is_chunked(DEFAULT_UNROLLED_CHUNKS)


def region_function(attributes: RegionAttributes, constants: Mapping[str, Node], *, chunked: bool) -> relay.Function:
    """The function of a region, without attributes.

    Args:
        attributes: the region and its plan.
        constants: literal tensors by digest.
        chunked: the chunked subgraph as body, else the operators.
    """
    region = attributes.region
    params = [relay.var(tensor.name, shape=tensor.shape, dtype=tensor.dtype) for tensor in region.inputs]
    values = {tensor.name: param for tensor, param in zip(region.inputs, params, strict=True)}
    values |= {tensor.name: constants[str(tensor.digest)] for tensor in region.constants}
    results = [relay.TensorType(tensor.shape, tensor.dtype) for tensor in region.outputs]
    kind = results[0] if len(results) == 1 else relay.TupleType(results)
    return relay.Function(params, region_body(attributes, values, chunked=chunked), kind)


def region_body(attributes: RegionAttributes, values: Mapping[str, Node], *, chunked: bool) -> Node:
    """What a region computes of its inputs and constants, which are given by the tensors' names."""
    known = dict(values)
    parts: dict[str, list[tuple[int, Node]]] = {}
    region, units = attributes.region, attributes.spec.unit_kernels

    def value(tensor: Tensor) -> Node:
        if tensor.name not in known:
            known[tensor.name] = _concatenated(tensor, parts[tensor.name])
        return known[tensor.name]

    for step, plan in zip(region.steps, attributes.plan.steps, strict=True):
        operands = {tensor.name: value(tensor) for tensor in step.inputs}
        result = chunked_step(step, plan, operands, units) if chunked else whole_step(step, operands)
        parts.setdefault(step.output.name, []).append((step.output_channel, result))
    results = [value(tensor) for tensor in region.outputs]
    return results[0] if len(results) == 1 else relay.Tuple(results)


def _concatenated(tensor: Tensor, parts: list[tuple[int, Node]]) -> Node:
    """A tensor that several steps write: on the accelerator each stores its channels in their place."""
    if len(parts) == 1:
        return parts[0][1]
    ordered = [value for _, value in sorted(parts, key=lambda part: part[0])]
    return relay.concatenate(ordered, axis=(tensor.layout or NCHW).index("C"))
