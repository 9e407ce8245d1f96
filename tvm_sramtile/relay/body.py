"""Reads the body of a region back and compares it with the plan: TVM would compute what the program computes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn

from tvm import relay

from tvm_sramtile.attributes import RegionAttributes, check_body
from tvm_sramtile.errors import CheckFailed
from tvm_sramtile.geometry import Conv2d
from tvm_sramtile.ints import Range
from tvm_sramtile.ir import Clip, Step, Tensor, digest_of
from tvm_sramtile.plan import Chunk, StepPlan
from tvm_sramtile.relay.emit import right_pad
from tvm_sramtile.relay.graph import Graph, Node, graph_of
from tvm_sramtile.relay.read import Refusal, clip_of, op_name, read_conv2d, shape_of


def check_function(name: str, function: Any, attributes: RegionAttributes) -> None:
    """Prove that a region's body, whole or in chunks, is what its attributes say; raises ``CheckFailed`` if not."""
    region = attributes.region
    if len(function.params) != len(region.inputs):
        raise CheckFailed(f"function {name}: it has {len(function.params)} parameters, its region {len(region.inputs)}")
    graph = graph_of(function.body)
    for param, tensor in zip(function.params, region.inputs, strict=True):
        if shape_of(param) != tensor.shape or param.checked_type.dtype != tensor.dtype:
            raise CheckFailed(f"function {name}: parameter {param.name_hint} is not {tensor.dtype} {tensor.shape}")
    params = {tensor.name: param for param, tensor in zip(function.params, region.inputs, strict=True)}
    (step,), (plan,) = region.steps, attributes.plan.steps
    result = function.body
    while isinstance(result, relay.Let):
        result = result.body
    _Body(name, graph, params, step, plan).check(graph.resolve(result))


class _Body:
    def __init__(self, name: str, graph: Graph, params: dict[str, Node], step: Step, plan: StepPlan) -> None:
        self.name, self.graph, self.params, self.step, self.plan = name, graph, params, step, plan
        self.digests: dict[Node, str] = {}  # all chunks read the same constants

    def check(self, result: Node) -> None:
        """The whole body."""
        if op_name(result) != "concatenate":
            self.whole(result)
            return
        if result.attrs.axis != 2:
            self.fail(f"chunks are put together along axis {result.attrs.axis}, must be 2")
        parts = self.resolve(result.args[0])
        if not isinstance(parts, relay.Tuple):
            self.fail("what is put together is no tuple of chunks")
        seen: list[Chunk] = []
        for index, part in enumerate(parts.fields):
            planned = self.plan.chunks[index] if index < len(self.plan.chunks) else None
            start = seen[-1].out_rows.stop if seen else 0
            seen.append(self.chunk(index, self.resolve(part), start, planned))
        check_body(self.name, self.plan, seen)

    def whole(self, result: Node) -> None:
        """The operator and its epilogue in one piece."""
        core = self.epilogue("its operator", result)
        self.same("its operator", self.convolution("its operator", core), self.step.op)
        self.operand("its operator", core.args[0], self.step.data)

    def chunk(self, index: int, part: Node, start: int, planned: Chunk | None) -> Chunk:
        """The chunk that a part of the concatenation computes."""
        where = f"chunk {index}"
        core = self.epilogue(where, part)
        shape = shape_of(core)
        if shape is None or len(shape) != 4:
            self.fail(f"{where} is no map of static shape")
        out_rows = Range(start, start + shape[2])
        if op_name(core) == "zeros":
            if planned is None or (len(planned.in_rows) and len(self.plan.in_cols)):
                self.fail(f"{where} is zeros, but reads input rows")
            return replace(planned, out_rows=out_rows)
        op = self.convolution(where, core)
        rows, cols = self.slice(where, core.args[0])
        if cols != self.plan.in_cols:
            self.fail(f"{where} reads columns {cols}, its plan {self.plan.in_cols}")
        top, _, bottom, _ = op.padding
        pads = (top, self.plan.pad_left, bottom, right_pad(self.step.op))
        self.same(where, op, replace(self.step.op, in_rows=len(rows), in_cols=len(cols), padding=pads))
        return Chunk(out_rows, rows, top, bottom)

    def epilogue(self, where: str, node: Node) -> Node:
        """Check bias and limits; what is below them."""
        clip = clip_of(node)
        if clip is not None:
            node = self.resolve(node.args[0])
        if (clip or Clip()) != (self.step.clip or Clip()):
            self.fail(f"{where} is limited by {clip}, its step by {self.step.clip}")
        has_bias = op_name(node) in ("add", "nn.bias_add")
        if has_bias != (self.step.bias is not None):
            self.fail(f"{where} has {'a' if has_bias else 'no'} bias, unlike its step")
        if has_bias and self.step.bias is not None:
            self.operand(where, node.args[1], self.step.bias)
            node = self.resolve(node.args[0])
        return node

    def convolution(self, where: str, core: Node) -> Conv2d:
        """The convolution that a node is, with the step's weight."""
        op = read_conv2d(core) if op_name(core) == "nn.conv2d" else None
        if op is None or isinstance(op, Refusal):
            self.fail(f"{where} is no nn.conv2d of the accelerator: {op or op_name(core)}")
        self.operand(where, core.args[1], self.step.weight)
        return op

    def slice(self, where: str, data: Node) -> tuple[Range, Range]:
        """The rows and columns of the step's map that a chunk reads."""
        data = self.resolve(data)
        extents = [Range(0, extent) for extent in self.step.data.shape]
        if op_name(data) == "strided_slice":
            attrs = data.attrs
            axes = range(len(attrs.begin)) if attrs.axes is None else [int(axis) for axis in attrs.axes]
            if attrs.slice_mode != "end" or any(int(stride) != 1 for stride in attrs.strides or ()):
                self.fail(f"{where} reads with a stride")
            for axis, begin, end in zip(axes, attrs.begin, attrs.end, strict=True):
                extents[axis] = Range(int(begin), int(end))
            data = data.args[0]
        self.operand(where, data, self.step.data)
        images, channels, rows, cols = extents
        if (len(images), len(channels)) != self.step.data.shape[:2]:
            self.fail(f"{where} reads images {images} and channels {channels}, must read all")
        return rows, cols

    def operand(self, where: str, node: Node, tensor: Tensor) -> None:
        """``node`` is the tensor: its parameter, or a constant of its value."""
        node = self.resolve(node)
        if tensor.digest is None:
            if not node.same_as(self.params[tensor.name]):
                self.fail(f"{where} does not read parameter {tensor.name} where its step does")
            return
        if isinstance(node, relay.Constant) and node not in self.digests:
            self.digests[node] = digest_of(node.data.numpy())
        if self.digests.get(node) != tensor.digest:
            self.fail(f"{where} does not read the constant {tensor.name} of its step")

    def same(self, where: str, found: Conv2d, wanted: Conv2d) -> None:
        """All attributes are equal."""
        for name in Conv2d.__dataclass_fields__:
            if getattr(found, name) != getattr(wanted, name):
                self.fail(f"{where} has {name} {getattr(found, name)}, must have {getattr(wanted, name)}")

    def resolve(self, node: Node) -> Node:
        """What a ``let`` variable stands for."""
        return self.graph.resolve(node)

    def fail(self, message: str) -> NoReturn:
        """Raise, naming the function."""
        raise CheckFailed(f"function {self.name}: {message}")
