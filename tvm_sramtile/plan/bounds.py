"""How little DRAM traffic a step can do with: what every plan is measured against.

The compulsory traffic is what must cross the chip's edge with SRAM without end. The bound for convolutions and SRAM of
a given size is that of J. Demmel and G. Dinh, "Communication-Optimal Convolutional Neural Nets" (2018), with the MACs
as they are usually counted, taps in padding included.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt, prod

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose, Elementwise, Operator, Pool2d, Resize2d
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Step, dtype_bytes
from tvm_sramtile.plan.capacity import vectors
from tvm_sramtile.plan.plan import ALONE, Around


def compulsory_bytes(step: Step) -> int:
    """Each element of the input that is read, of weights and vectors, and of the output, once; bytes of one call."""
    op = step.op
    maps = 2 if isinstance(op, Elementwise) and op.partner == "map" else 1
    elems = maps * op.in_channels * positions_read(op, 0) * positions_read(op, 1)
    moved = step.images * elems * dtype_bytes(step.data.dtype)
    if step.weight is not None and isinstance(op, Conv2d | Conv2dTranspose):
        taps = taps_used(op, 0) * taps_used(op, 1)
        moved += op.out_channels * op.in_channels_per_group * taps * dtype_bytes(step.weight.dtype)
    moved += sum(op.out_channels * dtype_bytes(tensor.dtype) for _, tensor in vectors(step))
    return moved + step.images * op.out_channels * op.out_rows * op.out_cols * dtype_bytes(step.output.dtype)


def communication_bytes(step: Step, sram_bytes: int) -> int:
    """The bound for a convolution with so much SRAM, plain or transposed; 0 for other operators. Bytes of one call.

    With ``S`` the SRAM in elements and ``R = kernel rows * kernel cols / (stride rows * stride cols)``, the reuse of an
    input position, at least ``2*MACs/sqrt(R*S) - 2*S`` elements are moved. A transposed convolution is the convolution
    of its output's positions by phases, of which each has ``R`` taps.
    """
    op = step.op
    if not isinstance(op, Conv2d | Conv2dTranspose) or step.weight is None:
        return 0
    elem_bytes = dtype_bytes(step.data.dtype)
    sram_elems = sram_bytes // elem_bytes
    taps, strides = prod(op.kernel), prod(op.strides)
    reuse = max(taps, strides)  # of R, times the strides; a phase has one tap at least
    fine = 2**20  # sqrt(R*S) times the strides in such fractions, rounded up: the bound stays a bound
    root = isqrt(reuse * sram_elems * strides * fine * fine) + 1
    return max(0, 2 * step.images * op.macs * strides * fine // root - 2 * sram_elems) * elem_bytes


def bound_bytes(step: Step, spec: AcceleratorSpec, around: Around = ALONE) -> int:
    """No plan of a step moves less in one call: the larger of the two bounds, with all memories as SRAM.

    Maps that stay in SRAM (``around``) are not compulsory; and since a step that moved each of them once besides would
    be one of those that the bound of communication is about, that shrinks by them at most.
    """
    unmoved = unmoved_bytes(step, around)
    whole = communication_bytes(step, sum(spec.memories.values()))
    return max(compulsory_bytes(step) - unmoved, whole - unmoved)


def unmoved_bytes(step: Step, around: Around) -> int:
    """What the compulsory traffic has of maps that a step finds in SRAM, or leaves there only."""
    op = step.op
    read = op.in_channels * positions_read(op, 0) * positions_read(op, 1) * dtype_bytes(step.data.dtype)
    kept = read * sum(name in around.maps for name in ("input", "other"))
    if not around.stores:
        kept += op.out_channels * op.out_rows * op.out_cols * dtype_bytes(step.output.dtype)
    return step.images * kept


def positions_read(op: Operator, axis: int) -> int:
    """How many rows (0) or columns (1) of the input some output reads."""
    size = (op.in_rows, op.in_cols)[axis]
    if isinstance(op, Elementwise):
        return size
    if isinstance(op, Resize2d):
        table = (op.rows, op.cols)[axis]
        spans = zip(table.first, table.weights, strict=True)
        return len({first + tap for first, weights in spans for tap in range(len(weights))})
    return len({read for read, _ in _meetings(op, axis)})


def taps_used(op: Conv2d | Conv2dTranspose, axis: int) -> int:
    """How many rows (0) or columns (1) of taps some output needs."""
    return len({tap for _, tap in _meetings(op, axis)})


def _meetings(op: Conv2d | Conv2dTranspose | Pool2d, axis: int) -> Iterator[tuple[int, int]]:
    """Pairs of an input position and a tap that meet for some output."""
    size, outs = (op.in_rows, op.in_cols)[axis], (op.out_rows, op.out_cols)[axis]
    stride, dilation, pad = op.strides[axis], op.dilation[axis], op.padding[axis]
    # A transposed convolution goes the same way from the input to the output.
    spread = isinstance(op, Conv2dTranspose)
    near, far = (size, outs) if spread else (outs, size)
    for start in range(near):
        for tap in range(op.kernel[axis]):
            end = start * stride + tap * dilation - pad
            if 0 <= end < far:
                yield (start if spread else end), tap
