"""Whether the accelerator takes a step at all, whatever its size."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose, Pool2d
from tvm_sramtile.ir import Step

_DTYPES = ("float32",)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Yes, or no with the reason."""

    ok: bool
    reason: str = ""


def judge(step: Step) -> Verdict:
    """Whether the accelerator has the units for ``step``: dtypes and extents."""
    op = step.op
    for tensor in (*step.inputs, step.output):
        if tensor.dtype not in _DTYPES:
            return Verdict(False, f"dtype {tensor.dtype} of {tensor.name}: the accelerator takes {', '.join(_DTYPES)}")
    if 0 in step.output.shape or 0 in step.data.shape:
        return Verdict(False, f"shape {step.data.shape} -> {step.output.shape}: nothing to compute")
    padding = op.padding if isinstance(op, Conv2d | Conv2dTranspose | Pool2d) else ()
    if max(*(t.elems for t in (*step.inputs, step.output)), *padding) >= 2**31:
        return Verdict(False, "a tensor of 2**31 elements or more: beyond the width of the program's fields")
    return Verdict(True)
