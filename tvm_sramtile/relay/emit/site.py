"""The place where a step is emitted: its operands, sliced, with their axes in the order that its operator takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tvm import relay

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose, Elementwise
from tvm_sramtile.ints import Range
from tvm_sramtile.ir import Step, Tensor
from tvm_sramtile.plan import Tile
from tvm_sramtile.relay.graph import Node

NCHW, NHWC, OIHW, IOHW = "NCHW", "NHWC", "OIHW", "IOHW"

Operands = Mapping[str, Node]
"""The nodes of tensors by the tensors' names."""

Units = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Site:
    """What it takes to emit a step.

    Attributes:
        layout: the order of the axes in which the operator and its epilogue are computed.
        units: the kernels that the accelerator computes; ``None``: any kernel.
        fits: whether an operator on a tile of this size is small enough; asked where there is a choice.
    """

    step: Step
    operands: Operands
    layout: str
    units: Units | None
    fits: Callable[[Tile], bool]
    _slices: dict[tuple[Node, tuple[tuple[int, Range], ...]], Node] = field(default_factory=dict)

    @staticmethod
    def of(step: Step, operands: Operands, units: Units | None, fits: Callable[[Tile], bool] = lambda _: True) -> Site:
        """The site of ``step`` in the layout that suits TVM's operator."""
        return Site(step, operands, _computed_layout(step), units, fits)

    @property
    def dtype(self) -> str:
        """Of what the operator yields."""
        return self.step.output.dtype

    @property
    def output_layout(self) -> str:
        """The order of the output's axes."""
        return self.step.output.layout or NCHW

    def axis(self, letter: str) -> int:
        """The position of an axis."""
        return self.layout.index(letter)

    def shape(self, channels: int, rows: int, cols: int) -> tuple[int, ...]:
        """The shape of a map of these extents."""
        extents = {"N": self.step.images, "C": channels, "H": rows, "W": cols}
        return tuple(extents[letter] for letter in self.layout)

    def map(self, tensor: Tensor, parts: Mapping[str, Range] | None = None) -> Node:
        """A map, or the part of it that has these ranges of channels (C), rows (H) and columns (W)."""
        layout = tensor.layout or NCHW
        return relaid(self._part(tensor, layout, parts or {}), layout, self.layout)

    def data_part(self, channels: Range, rows: Range, cols: Range) -> Node:
        """A part of the map that the operator reads."""
        return self.map(self.step.data, {"C": channels, "H": rows, "W": cols})

    def weight_part(self, parts: Mapping[str, Range], layout: str) -> Node:
        """The part of the kernel that has these ranges of O, I, H and W, its axes in the order of ``layout``."""
        if self.step.weight is None:
            raise ValueError(f"step {self.step.name}: {self.step.op.kind} has no weights")
        given = layout_of_weight(self.step)
        return relaid(self._part(self.step.weight, given, parts), given, layout)

    def vector(self, tensor: Tensor, channels: Range) -> Node:
        """One value a channel, in a shape that is broadcast along the channels."""
        part = self._vector_part(tensor, channels)
        trailing = len(self.layout) - 1 - self.axis("C")
        wanted = (len(channels),) + (1,) * trailing
        shape = tuple(len(channels) if extent > 1 else 1 for extent in tensor.shape)
        if len(shape) <= len(self.layout) and shape[-len(wanted) :] == wanted:
            return part
        return relay.reshape(part, wanted)

    def flat_vector(self, tensor: Tensor, channels: Range) -> Node:
        """One value a channel, of one axis."""
        part = self._vector_part(tensor, channels)
        return part if len(tensor.shape) == 1 else relay.reshape(part, (len(channels),))

    def number(self, value: float) -> Node:
        """A literal."""
        return relay.const(value, self.dtype)

    def sliced(self, node: Node, cuts: Sequence[tuple[int, Range]]) -> Node:
        """A slice along some axes; the same slice is taken but once."""
        if not cuts:
            return node
        key = (node, tuple(cuts))
        if key not in self._slices:
            axes, begin, end = ([*values] for values in zip(*((a, p.start, p.stop) for a, p in cuts), strict=True))
            self._slices[key] = relay.strided_slice(node, begin, end, [1] * len(axes), axes)
        return self._slices[key]

    def _vector_part(self, tensor: Tensor, channels: Range) -> Node:
        cuts = [(axis, channels) for axis, extent in enumerate(tensor.shape) if extent > len(channels)]
        return self.sliced(self.operands[tensor.name], cuts)

    def _part(self, tensor: Tensor, layout: str, parts: Mapping[str, Range]) -> Node:
        cuts = [
            (axis, parts[letter])
            for axis, letter in enumerate(layout)
            if letter in parts and len(parts[letter]) < tensor.shape[axis]
        ]
        return self.sliced(self.operands[tensor.name], cuts)


def relaid(node: Node, layout: str, wanted: str) -> Node:
    """The same elements with their axes in another order; axes that either side lacks have extent 1."""
    gone = [axis for axis, letter in enumerate(layout) if letter not in wanted]
    if gone:
        node = relay.squeeze(node, gone)
    kept = [letter for letter in layout if letter in wanted]
    order = [kept.index(letter) for letter in wanted if letter in kept]
    if order != sorted(order):
        node = relay.transpose(node, order)
    for axis, letter in enumerate(wanted):
        if letter not in kept:
            node = relay.expand_dims(node, axis)
    return node


def is_dense(step: Step) -> bool:
    """Whether the step is a product of matrices: each element of the map by itself, its channels innermost."""
    op, layout = step.op, step.data.layout or NCHW
    if not isinstance(op, Conv2d) or len(layout_of_weight(step)) != 2 or layout[-1] != "C":
        return False
    return (op.groups, op.kernel, op.strides, op.padding) == (1, (1, 1), (1, 1), (0, 0, 0, 0))


def layout_of_weight(step: Step) -> str:
    """The order of the kernel's axes."""
    default = IOHW if isinstance(step.op, Conv2dTranspose) else OIHW
    return (step.weight.layout if step.weight is not None else "") or default


def _computed_layout(step: Step) -> str:
    layout = step.data.layout or NCHW
    if isinstance(step.op, Elementwise) or is_dense(step):
        return layout
    if isinstance(step.op, Conv2dTranspose):
        return NCHW  # TVM's CPU has it in no other
    return layout if layout in (NCHW, NHWC) else NCHW
