"""What one step computes in two steps that take less room each."""

from __future__ import annotations

from dataclasses import replace

from tvm_sramtile.geometry import Pool2d
from tvm_sramtile.ir import Step, Tensor


def pool_in_two(step: Step) -> tuple[Step, Step] | None:
    """A pool as one over columns and one over rows, which take less room; ``None`` for a pool of one axis.

    The greatest of greatest ones, and the mean of means of equally many: positions in the map are counted axis by axis.
    """
    op = step.op
    if not isinstance(op, Pool2d) or 1 in op.kernel:
        return None
    (rows, cols), (row_stride, col_stride), (top, left), (row_step, col_step) = (
        op.kernel,
        op.strides,
        op.padding,
        op.dilation,
    )
    sides = (op.out_cols, (1, cols), (1, col_stride), (0, left), (1, col_step), op.pooling)
    heights = (op.out_rows, op.out_cols, (rows, 1), (row_stride, 1), (top, 0), (row_step, 1), op.pooling)
    across = Pool2d(op.channels, op.in_rows, op.in_cols, op.in_rows, *sides)
    down = Pool2d(op.channels, op.in_rows, op.out_cols, *heights)
    layout = step.data.layout
    found = {"N": step.images, "C": op.channels, "H": op.in_rows, "W": op.out_cols}
    between = Tensor("between", tuple(found[letter] for letter in layout), step.output.dtype, layout=layout)
    first = replace(step, name=f"{step.name}.cols", op=across, output=between, activations=())
    return first, replace(step, name=f"{step.name}.rows", op=down, data=between)
