"""Regions as Relax code that TVM itself can run: the operator, or its row chunks, with the epilogue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import relax
from tvm.script import relax as R  # noqa: N812 (what everyone calls it)

from tvm_sramtile.attributes import CODEGEN, RegionAttributes
from tvm_sramtile.ints import Range
from tvm_sramtile.ir import Clip, Step, Tensor
from tvm_sramtile.plan import Chunk, StepPlan
from tvm_sramtile.relax.read import BIAS, DATA, WEIGHT

DEFAULT_UNROLLED_CHUNKS = 64
ROW_AXIS, COL_AXIS = 2, 3

Operands = Mapping[str, Any]
"""The expressions of a step's tensors by role: data, weight, bias."""


class Emitter:
    """Collects bindings for one block."""

    def __init__(self, name: str, *, dataflow: bool) -> None:
        self.bindings: list[Any] = []
        self._builder = relax.BlockBuilder()
        self._variable = relax.DataflowVar if dataflow else relax.Var
        self._name = name

    def typed(self, expr: Any) -> Any:
        """The expression with its type inferred."""
        return self._builder.normalize(expr)

    def emit(self, expr: Any) -> Any:
        """Bind an expression to a new variable."""
        typed = self.typed(expr)
        var = self._variable(f"{self._name}_{len(self.bindings)}", typed.ty)
        self.bindings.append(relax.VarBinding(var, typed))
        return var

    def bind(self, var: Any, expr: Any) -> None:
        """Bind an expression to a variable that is there already."""
        self.bindings.append(relax.VarBinding(var, self.typed(expr)))


def whole_step(out: Emitter, step: Step, operands: Operands) -> Any:
    """The operator with its epilogue; the last call is returned, not bound."""
    op = step.op
    result = relax.op.nn.conv2d(
        operands[DATA],
        operands[WEIGHT],
        strides=op.strides,
        padding=op.padding,
        dilation=op.dilation,
        groups=op.groups,
        out_dtype=step.output.dtype,
    )
    return _finish(out, result, step, operands)


def chunked_step(out: Emitter, step: Step, plan: StepPlan, operands: Operands) -> Any:
    """The operator on slices of rows, put together again; the last call is returned, not bound.

    Each chunk gets its bias and limits before the chunks are joined: what is joined is finished.
    """
    chunks = [_chunk(out, step, plan, chunk, operands) for chunk in plan.chunks]
    if len(chunks) == 1:
        return chunks[0]
    return relax.op.concat([out.emit(chunk) for chunk in chunks], axis=ROW_AXIS)


def _chunk(out: Emitter, step: Step, plan: StepPlan, chunk: Chunk, operands: Operands) -> Any:
    op = step.op
    if not len(chunk.in_rows) or not len(plan.in_cols):  # wholly in padding: there is nothing to convolve
        shape = (step.images, op.out_channels, len(chunk.out_rows), op.out_cols)
        return _finish(out, relax.op.zeros(shape, step.output.dtype), step, operands)
    data = _sliced(out, operands[DATA], chunk.in_rows, plan.in_cols, (op.in_rows, op.in_cols))
    right = op.col_window(Range(0, op.out_cols)).pad_after
    result = relax.op.nn.conv2d(
        data,
        operands[WEIGHT],
        strides=op.strides,
        padding=(chunk.pad_top, plan.pad_left, chunk.pad_bottom, right),
        dilation=op.dilation,
        groups=op.groups,
        out_dtype=step.output.dtype,
    )
    return _finish(out, result, step, operands)


def _sliced(out: Emitter, data: Any, rows: Range, cols: Range, extents: tuple[int, int]) -> Any:
    cuts = [
        (axis, part)
        for axis, part, extent in ((ROW_AXIS, rows, extents[0]), (COL_AXIS, cols, extents[1]))
        if len(part) < extent
    ]
    if not cuts:
        return data
    axes, begin, end = ([*values] for values in zip(*((a, p.start, p.stop) for a, p in cuts), strict=True))
    return out.emit(relax.op.strided_slice(data, axes, begin, end))


def _finish(out: Emitter, result: Any, step: Step, operands: Operands) -> Any:
    if step.bias is not None:
        result = relax.op.add(out.emit(result), operands[BIAS])
    if step.clip is not None:
        result = _clipped(out, result, step.clip, step.output.dtype)
    return result


def _clipped(out: Emitter, value: Any, clip: Clip, dtype: str) -> Any:
    low, high = clip.low, clip.high
    if low is None and high is None:
        return value
    value = out.emit(value)
    if low == 0 and high is None:
        return relax.op.nn.relu(value)
    if high is None:
        return relax.op.maximum(value, relax.const(low, dtype))
    if low is None:
        return relax.op.minimum(value, relax.const(high, dtype))
    return relax.op.clip(value, relax.prim_value(low), relax.prim_value(high))


def body_is_chunked(attributes: RegionAttributes) -> bool:
    """Whether a region's body is written as chunks: it is cut, but not into too many."""
    limit = attributes.options.max_unrolled_chunks or DEFAULT_UNROLLED_CHUNKS
    plan = attributes.plan
    return any(step.is_split for step in plan.steps) and plan.chunk_count <= limit


def region_function(
    attributes: RegionAttributes, constants: Mapping[str, Any], *, chunked: bool, codegen: bool
) -> relax.Function:
    """The function of a region.

    Args:
        attributes: the region, its plan, and what else the function carries.
        constants: literal tensors by digest.
        chunked: the chunked subgraph as body, else the operator.
        codegen: hand it to our back end; else it is an ordinary function that carries the plan.
    """
    region = attributes.region
    params = [relax.Var(tensor.name, R.Tensor(tensor.shape, tensor.dtype)) for tensor in region.inputs]
    values: dict[str, Any] = {tensor.name: param for tensor, param in zip(region.inputs, params, strict=True)}
    values |= {tensor.name: constants[str(tensor.digest)] for tensor in region.constants}
    out = Emitter("chunk" if chunked else "lv", dataflow=True)
    last = len(region.steps) - 1
    for index, (step, plan) in enumerate(zip(region.steps, attributes.plan.steps, strict=True)):
        operands = _operands(step, values)
        result = chunked_step(out, step, plan, operands) if chunked else whole_step(out, step, operands)
        if index < last or len(region.outputs) > 1:
            values[step.output.name] = out.emit(result)
    if len(region.outputs) > 1:
        result = relax.Tuple([values[tensor.name] for tensor in region.outputs])
    typed = out.typed(result)
    returned = relax.Var("out", typed.ty)
    out.bind(returned, typed)
    body = relax.SeqExpr([relax.DataflowBlock(out.bindings)], returned)
    relax.expr._update_type(body, typed.ty)
    marks = {"Codegen": CODEGEN} if codegen else {}
    function = relax.Function(params, body, typed.ty, True)
    return function.with_attrs({"global_symbol": region.name, **marks, **attributes.to_attrs()})


def _operands(step: Step, values: Mapping[str, Any]) -> Operands:
    roles: tuple[tuple[str, Tensor | None], ...] = ((DATA, step.data), (WEIGHT, step.weight), (BIAS, step.bias))
    return {role: values[tensor.name] for role, tensor in roles if tensor is not None}
