"""The parts of Relax expressions that the front end reads, whatever a release of TVM calls them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

# A literal tensor is a `relax.Constant` in 0.26 and a `GenericConst` in 0.27.
_CONSTANT = type(relax.const(0.0, "float32"))


def is_constant(expr: Any) -> bool:
    """Whether ``expr`` is a literal tensor."""
    return isinstance(expr, _CONSTANT)


def constant_value(expr: Any) -> NDArray[np.generic]:
    """The value of a literal tensor."""
    tensor = expr.value if hasattr(expr, "value") else expr.data
    return tensor.numpy()


def op_name(expr: Any) -> str:
    """The operator that a call applies, as ``relax.nn.conv2d``; "" for anything else."""
    if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
        return str(expr.op.name)
    return ""


def called_function(expr: Any) -> tvm.ir.GlobalVar | None:
    """The function of the module that ``expr`` calls directly."""
    if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.GlobalVar):
        return expr.op
    return None


def is_tensor(expr: Any) -> bool:
    """Whether the type of ``expr`` is a tensor's."""
    return isinstance(expr.ty, relax.TensorType)


def dtype_of(expr: Any) -> str:
    """TVM's name of a tensor's element type; "" where it is unknown."""
    return str(expr.ty.dtype or "") if is_tensor(expr) else ""


def static_shape(expr: Any) -> tuple[int, ...] | None:
    """The shape of a tensor, where all of it is known."""
    shape = expr.ty.shape if is_tensor(expr) else None
    if not isinstance(shape, relax.ShapeExpr):
        return None
    extents = tuple(extent for extent in shape.values if isinstance(extent, tvm.tirx.IntImm))
    return tuple(int(extent) for extent in extents) if len(extents) == len(shape.values) else None


def shape_text(expr: Any) -> str:
    """A shape for messages, its unknown extents by name."""
    if not is_tensor(expr) or not isinstance(expr.ty.shape, relax.ShapeExpr):
        return "unknown"
    return "(" + ", ".join(str(getattr(v, "value", v)) for v in expr.ty.shape.values) + ")"


def number_of(expr: Any) -> float | None:
    """The value of a literal number or of a literal tensor of one element."""
    if is_constant(expr):
        tensor = constant_value(expr)
        return float(tensor.reshape(())) if tensor.size == 1 else None
    value = getattr(expr, "value", None)
    value = getattr(value, "value", value)  # a PrimValue holds an immediate
    return float(value) if isinstance(value, int | float) else None


def attributes_of(function: Any) -> Mapping[str, Any]:
    """The attributes of a function or module; empty where there are none."""
    return dict(function.attrs) if function.attrs else {}


def elements_of(expr: Any) -> int:
    """Number of elements of a tensor; 0 where its shape is not known."""
    shape = static_shape(expr)
    return 0 if shape is None else math.prod(shape)
