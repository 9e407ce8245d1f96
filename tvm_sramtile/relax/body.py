"""A region's body read back, and compared with its plan: what TVM would run is what the accelerator is told to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tvm import relax

from tvm_sramtile.attributes import RegionAttributes, check_body
from tvm_sramtile.errors import CheckFailed
from tvm_sramtile.geometry import Conv2d
from tvm_sramtile.ints import Range
from tvm_sramtile.ir import Clip, Step, Tensor, digest_of
from tvm_sramtile.plan import Chunk, StepPlan
from tvm_sramtile.relax.access import constant_value, is_constant, op_name, static_shape
from tvm_sramtile.relax.emit import COL_AXIS, ROW_AXIS
from tvm_sramtile.relax.read import bias_of, clip_of, conv2d_of
from tvm_sramtile.relax.walk import blocks_of, identity

_LOWERED = ("relax.call_tir", "relax.call_dps_packed", "relax.call_pure_packed")


def check_region(name: str, attributes: RegionAttributes, function: relax.Function) -> None:
    """Compare the body of a region with its plan.

    Passes that run on a whole module between partitioning and codegen (``LegalizeOps``, ``FoldConstant``, the zero
    pipeline) rewrite the bodies of regions too: operators become ``call_tir``. Such a body has no operators left to
    read, and is accepted: codegen compiles from the attributes, which no pass changes.

    Raises:
        CheckFailed: the body computes something else than the plan says.
    """
    reader = _Reader.of(name, attributes, function)
    if any(op_name(value) in _LOWERED for value in reader.values.values()):
        return
    if len(attributes.region.steps) != 1:
        raise CheckFailed(
            f"function {name}: its region has {len(attributes.region.steps)} steps, its body can have one"
        )
    step, plan = attributes.region.steps[0], attributes.plan.steps[0]
    result = reader.value(function.body.body)
    if op_name(result) == "relax.concat":
        check_body(name, plan, list(reader.chunks(result, step, plan)))
    else:
        reader.check_whole(result, step)


@dataclass(frozen=True, slots=True)
class _Piece:
    """An operator with its epilogue, as it stands in a body."""

    core: Any
    bias: Any
    clip: Clip | None


@dataclass(frozen=True, slots=True)
class _Reader:
    """Follows the values of one function.

    Attributes:
        values: what variables are bound to.
        tensors: the region's tensors that are parameters.
        digests: those of the literals seen so far.
    """

    name: str
    values: Mapping[int, Any]
    tensors: Mapping[int, Tensor]
    digests: dict[int, str] = field(default_factory=dict)

    @staticmethod
    def of(name: str, attributes: RegionAttributes, function: relax.Function) -> _Reader:
        inputs = attributes.region.inputs
        if len(function.params) != len(inputs):
            raise CheckFailed(f"function {name}: it has {len(function.params)} parameters, its region {len(inputs)}")
        values = {
            identity(binding.var): binding.value
            for block in blocks_of(function.body)
            for binding in block.bindings
            if isinstance(binding, relax.VarBinding)
        }
        params = {identity(param): tensor for param, tensor in zip(function.params, inputs, strict=True)}
        return _Reader(name, values, params)

    def value(self, expr: Any) -> Any:
        """What a variable stands for; a parameter or an expression stands for itself."""
        while isinstance(expr, relax.Var) and identity(expr) in self.values:
            expr = self.values[identity(expr)]
        return expr

    def check_whole(self, result: Any, step: Step) -> None:
        """The body is the step itself."""
        piece = self._piece(result, step)
        op = self._conv2d(piece.core)
        if op != step.op:
            self._fail("the operator", op, step.op)
        self._check_operands(piece, piece.core.args[0], piece.core.args[1], step)

    def chunks(self, joined: Any, step: Step, plan: StepPlan) -> Iterator[Chunk]:
        """The chunks of the body, their rows as they are joined."""
        if int(joined.attrs.axis) != ROW_AXIS:
            self._fail("the axis of the concatenation", int(joined.attrs.axis), ROW_AXIS)
        start = 0
        for part in self.value(joined.args[0]).fields:
            piece = self._piece(self.value(part), step)
            shape = static_shape(piece.core) or (0, 0, 0, 0)
            rows = Range(start, start + shape[2])
            start = rows.stop
            yield (
                self._padding_chunk(piece, rows, step, plan)
                if self.is_padding(piece.core)
                else self._chunk(piece, rows, step, plan)
            )

    def is_padding(self, core: Any) -> bool:
        """Whether this stands for a chunk that lies wholly in padding."""
        return op_name(core) == "relax.zeros"

    def _padding_chunk(self, piece: _Piece, rows: Range, step: Step, plan: StepPlan) -> Chunk:
        self._check_operands(piece, None, None, step)
        if not len(plan.in_cols):  # rows are read in name only
            window = step.op.row_window(rows)
            return Chunk(rows, window.read, window.pad_before, window.pad_after)
        op = step.op
        pad = (len(rows) - 1) * op.strides[0] + op.dilation[0] * (op.kernel[0] - 1) + 1
        return Chunk(rows, Range(0, 0), pad, 0)

    def _chunk(self, piece: _Piece, rows: Range, step: Step, plan: StepPlan) -> Chunk:
        found = self._conv2d(piece.core)
        data, in_rows, in_cols = self._slice(piece.core.args[0], step.op)
        self._check_operands(piece, data, piece.core.args[1], step)
        top, left, bottom, right = found.padding
        expected_right = step.op.col_window(Range(0, step.op.out_cols)).pad_after
        if (in_cols, left, right) != (plan.in_cols, plan.pad_left, expected_right):
            self._fail("columns and their pads", (in_cols, left, right), (plan.in_cols, plan.pad_left, expected_right))
        alike = replace(found, in_rows=step.op.in_rows, in_cols=step.op.in_cols, padding=step.op.padding)
        if alike != step.op:
            self._fail("the operator of a chunk", alike, step.op)
        return Chunk(rows, in_rows, top, bottom)

    def _slice(self, expr: Any, op: Conv2d) -> tuple[Any, Range, Range]:
        """The tensor that is sliced, and its rows and columns."""
        parts = {ROW_AXIS: Range(0, op.in_rows), COL_AXIS: Range(0, op.in_cols)}
        value = self.value(expr)
        if op_name(value) != "relax.strided_slice":
            return expr, parts[ROW_AXIS], parts[COL_AXIS]
        data, *bounds = value.args
        axes, begin, end, *strides = ([int(getattr(v, "value", v)) for v in bound.fields] for bound in bounds)
        if strides and set(strides[0]) != {1}:
            self._fail("the step of a slice", strides[0], 1)
        for axis, first, stop in zip(axes, begin, end, strict=True):
            if axis not in parts or not 0 <= first <= stop <= len(parts[axis]):
                self._fail("a slice", (axis, first, stop), "rows and columns of the map")
            parts[axis] = Range(first, stop)
        return data, parts[ROW_AXIS], parts[COL_AXIS]

    def _piece(self, value: Any, step: Step) -> _Piece:
        """Peel limits and bias off, outermost first."""
        clip: Clip | None = None
        while (inner := self._limited(value)) is not None:
            clip = inner[1] if clip is None else inner[1].then(clip)
            value = self.value(inner[0])
        if op_name(value) == "relax.add":
            for core in value.args:
                bias = bias_of(value, core, step.op.out_channels)
                if bias is not None and op_name(self.value(core)) in ("relax.nn.conv2d", "relax.zeros"):
                    return _Piece(self.value(core), bias, clip)
        return _Piece(value, None, clip)

    def _limited(self, value: Any) -> tuple[Any, Clip] | None:
        if not isinstance(value, relax.Call):
            return None
        for operand in value.args[:2]:
            if isinstance(operand, relax.Var):
                clip = clip_of(value, operand)
                if clip is not None:
                    return operand, clip
        return None

    def _conv2d(self, core: Any) -> Conv2d:
        if op_name(core) != "relax.nn.conv2d":
            self._fail("an operator", op_name(core) or "none", "nn.conv2d")
        found = conv2d_of(core)
        if isinstance(found, str):
            raise CheckFailed(f"function {self.name}: a convolution of its body cannot be read: {found}")
        return found

    def _check_operands(self, piece: _Piece, data: Any, weight: Any, step: Step) -> None:
        wanted = ((data, step.data, data is not None), (weight, step.weight, weight is not None))
        for expr, tensor, present in (*wanted, (piece.bias, step.bias, True)):
            if not present or (expr is None and tensor is None):
                continue
            if expr is None or tensor is None or not self._is(expr, tensor):
                role = tensor.name if tensor is not None else "bias"
                self._fail(f"the operand {role}", expr, tensor)
        if piece.clip != step.clip and (piece.clip or Clip()) != (step.clip or Clip()):
            self._fail("the limits", piece.clip, step.clip)

    def _is(self, expr: Any, tensor: Tensor) -> bool:
        expr = self.value(expr)
        if is_constant(expr):
            key = identity(expr)
            if key not in self.digests:
                self.digests[key] = digest_of(constant_value(expr))
            return self.digests[key] == tensor.digest
        return self.tensors.get(identity(expr)) == tensor

    def _fail(self, what: str, found: Any, planned: Any) -> None:
        raise CheckFailed(f"function {self.name}: {what} in its body is {found}, in its plan {planned}")
