"""Whether a step's tensors have the operator's extents. Part of the proof of plans; see ``check_plan``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NoReturn

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose, Elementwise
from tvm_sramtile.ir import Step, Tensor

Fail = Callable[[str], NoReturn]

_MAP = "NCHW"


def check_shapes(step: Step, out_rows: int, out_cols: int, fail: Fail) -> None:
    """Prove that the tensors of ``step`` have the extents that its operator, with these outputs, gives them."""
    op = step.op
    if not out_rows * out_cols * op.out_channels * step.images:
        fail(f"the output has {op.out_channels} channels, {out_rows} rows and {out_cols} columns: nothing to compute")
    _check_map(step, step.data, (op.in_channels, op.in_rows, op.in_cols), "data", fail)
    _check_weights(step, fail)
    _check_other(step, fail)
    outs = step.output_channel + op.out_channels
    channels = extents_of(step.output, _MAP, fail).get("C", 1)
    if step.output_channel < 0 or channels < outs:
        fail(f"channels {step.output_channel}-{outs} of the output, which has {channels}")
    _check_map(step, step.output, (channels, out_rows, out_cols), "output", fail)
    if step.output.digest is not None:
        fail(f"the output {step.output.name} is a constant")


def extents_of(tensor: Tensor, default: str, fail: Fail) -> Mapping[str, int]:
    """The extent of each axis by its letter."""
    letters = tensor.layout or default
    if len(letters) != len(tensor.shape) or set(letters) - set(default) or len(set(letters)) != len(letters):
        fail(f"layout {letters!r} of {tensor.name} {tensor.shape}: must name each axis once, of {default}")
    return dict(zip(letters, tensor.shape, strict=True))


def _check_map(step: Step, tensor: Tensor, wanted: tuple[int, int, int], what: str, fail: Fail) -> None:
    extents = extents_of(tensor, _MAP, fail)
    found = tuple(extents.get(letter, 1) for letter in "CHW")
    if found != wanted:
        fail(f"channels, rows and columns of the {what} are {found}, must be {wanted}")
    # What has no axis of images, or is a constant, is the same for all of them; an output is not.
    images = 1 if what != "output" and (tensor.digest is not None or "N" not in extents) else step.images
    if extents.get("N", 1) != images:
        fail(f"images of the {what} are {extents.get('N', 1)}, must be {images}")


def _check_weights(step: Step, fail: Fail) -> None:
    op, weight = step.op, step.weight
    if not isinstance(op, Conv2d | Conv2dTranspose):
        if weight is not None or step.bias is not None or step.clip is not None:
            fail(f"a {op.kind} has no weights, bias or clip")
        return
    ins, outs, groups = op.in_channels, op.out_channels, op.groups
    if not (groups > 0 and ins % groups == 0 == outs % groups):
        fail(f"{groups} groups do not divide {ins} input and {outs} output channels")
    if weight is None:
        fail("no weights")
    transposed = isinstance(op, Conv2dTranspose)
    extents = extents_of(weight, "IOHW" if transposed else "OIHW", fail)
    found = tuple(extents.get(letter, 1) for letter in "OIHW")
    wanted = (outs // groups, ins, *op.kernel) if transposed else (outs, ins // groups, *op.kernel)
    if found != wanted:
        fail(f"outputs, inputs, rows and columns of the weights are {found}, must be {wanted}")


def _check_other(step: Step, fail: Fail) -> None:
    op = step.op
    partner = op.partner if isinstance(op, Elementwise) else "none"
    if (step.other is not None) != (partner in ("map", "vector")):
        fail(f"partner {partner!r}, but the other operand is {step.other and step.other.name}")
    if step.other is not None and partner == "map":
        _check_map(step, step.other, (op.in_channels, op.in_rows, op.in_cols), "partner", fail)
    vectors = [step.bias, *(activation.vector for activation in step.activations)]
    for vector in (*vectors, step.other if partner == "vector" else None):
        if vector is not None and math.prod(vector.shape) != op.out_channels:
            fail(f"vector {vector.name} has {math.prod(vector.shape)} elements, must have {op.out_channels}")
