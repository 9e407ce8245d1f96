"""The place where a step is emitted: its operands, sliced, with their axes in the order that its operator takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tvm import relax

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose, Elementwise, Resize2d
from tvm_sramtile.ints import Range
from tvm_sramtile.ir import Step, Tensor
from tvm_sramtile.plan import Tile
from tvm_sramtile.relax.emit.emitter import Emitter

NCHW, OIHW, IOHW = "NCHW", "OIHW", "IOHW"

Operands = Mapping[str, Any]
"""The expressions of tensors by the tensors' names."""

Units = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Site:
    """What it takes to emit a step.

    Attributes:
        layout: the order of the axes in which the operator and its epilogue are computed.
        units: the kernels that the accelerator computes; ``None``: any kernel.
        fits: whether an operator on a tile of this size is small enough; asked where there is a choice.
    """

    out: Emitter
    step: Step
    operands: Operands
    layout: str
    units: Units | None
    fits: Callable[[Tile], bool]

    @staticmethod
    def of(
        out: Emitter, step: Step, operands: Operands, units: Units | None, fits: Callable[[Tile], bool] = lambda _: True
    ) -> Site:
        """The site of ``step`` in the layout that suits TVM's operator."""
        return Site(out, step, operands, _computed_layout(step), units, fits)

    @property
    def dtype(self) -> str:
        """Of what the operator yields."""
        return self.step.output.dtype

    @property
    def output_layout(self) -> str:
        """The order of the output's axes."""
        return self.step.output.layout or NCHW

    @property
    def data(self) -> Any:
        """The whole map that the operator reads."""
        return self.map(self.step.data)

    @property
    def weight(self) -> Any:
        """The whole kernel."""
        return self.weight_part({})

    @property
    def weight_layout(self) -> str:
        """The order of the kernel's axes that TVM's operator takes."""
        if is_dense(self.step):
            return "IO"
        given = _layout_of_weight(self.step)
        if isinstance(self.step.op, Conv2dTranspose):
            return IOHW
        return given if _is_taken(given) else OIHW

    def axis(self, letter: str) -> int:
        """The position of an axis."""
        return self.layout.index(letter)

    def map(self, tensor: Tensor, parts: Mapping[str, Range] | None = None) -> Any:
        """A map, or the part of it that has these ranges of channels (C), rows (H) and columns (W)."""
        layout = tensor.layout or NCHW
        part = self._part(tensor, layout, parts or {})
        return self.out.leaf(relaid(self.out, part, layout, self.layout))

    def data_part(self, channels: Range, rows: Range, cols: Range) -> Any:
        """A part of the map that the operator reads."""
        return self.map(self.step.data, {"C": channels, "H": rows, "W": cols})

    def weight_part(self, parts: Mapping[str, Range]) -> Any:
        """The part of the kernel that has these ranges of O, I, H and W."""
        if self.step.weight is None:
            raise ValueError(f"step {self.step.name}: {self.step.op.kind} has no weights")
        layout = _layout_of_weight(self.step)
        part = self._part(self.step.weight, layout, parts)
        return self.out.leaf(relaid(self.out, part, layout, self.weight_layout))

    def vector(self, tensor: Tensor, channels: Range) -> Any:
        """One value a channel, in a shape that is broadcast along the channels."""
        part = self._vector_part(tensor, channels)
        trailing = len(self.layout) - 1 - self.axis("C")
        wanted = (len(channels),) + (1,) * trailing
        shape = tuple(len(channels) if extent > 1 else 1 for extent in tensor.shape)
        if len(shape) <= len(self.layout) and shape[-len(wanted) :] == wanted:
            return part
        return self.out.leaf(relax.op.reshape(part, wanted))

    def flat_vector(self, tensor: Tensor, channels: Range) -> Any:
        """One value a channel, of one axis."""
        part = self._vector_part(tensor, channels)
        return part if len(tensor.shape) == 1 else self.out.leaf(relax.op.reshape(part, (len(channels),)))

    def number(self, value: float) -> Any:
        """A literal."""
        return relax.const(value, self.dtype)

    def _vector_part(self, tensor: Tensor, channels: Range) -> Any:
        cuts = [(axis, channels) for axis, extent in enumerate(tensor.shape) if extent > len(channels)]
        return self.out.sliced(self.operands[tensor.name], cuts)

    def _part(self, tensor: Tensor, layout: str, parts: Mapping[str, Range]) -> Any:
        cuts = [
            (axis, parts[letter])
            for axis, letter in enumerate(layout)
            if letter in parts and len(parts[letter]) < tensor.shape[axis]
        ]
        return self.out.sliced(self.operands[tensor.name], cuts)


def relaid(out: Emitter, expr: Any, layout: str, wanted: str) -> Any:
    """The same elements with their axes in another order; axes that either side lacks have extent 1."""
    gone = [axis for axis, letter in enumerate(layout) if letter not in wanted]
    if gone:
        expr = relax.op.squeeze(out.leaf(expr), gone)
    kept = [letter for letter in layout if letter in wanted]
    order = [kept.index(letter) for letter in wanted if letter in kept]
    if order != sorted(order):
        expr = relax.op.permute_dims(out.leaf(expr), order)
    new = [axis for axis, letter in enumerate(wanted) if letter not in kept]
    return relax.op.expand_dims(out.leaf(expr), new) if new else expr


def is_dense(step: Step) -> bool:
    """Whether the step is a product of matrices: each element of the map by itself, its channels innermost."""
    op, layout = step.op, step.data.layout or NCHW
    if not isinstance(op, Conv2d) or len(_layout_of_weight(step)) != 2 or layout[-1] != "C":
        return False
    return (op.groups, op.kernel, op.strides, op.padding) == (1, (1, 1), (1, 1), (0, 0, 0, 0))


def _computed_layout(step: Step) -> str:
    layout = step.data.layout or NCHW
    if isinstance(step.op, Elementwise) or is_dense(step):
        return layout
    if isinstance(step.op, Conv2dTranspose):
        return NCHW  # TVM has it in no other
    if isinstance(step.op, Resize2d):
        return layout if layout in (NCHW, "NHWC") else NCHW
    return layout if _is_taken(layout) else NCHW


def _layout_of_weight(step: Step) -> str:
    default = IOHW if isinstance(step.op, Conv2dTranspose) else OIHW
    return (step.weight.layout if step.weight is not None else "") or default


def _is_taken(layout: str) -> bool:
    """Whether TVM's windows slide right in this layout: it takes the first axis of an image for its rows."""
    return len(layout) == 4 and layout.index("H") < layout.index("W")
