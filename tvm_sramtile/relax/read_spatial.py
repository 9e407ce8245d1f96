"""Readers of what looks at a window of each channel: pools, means over rows and columns, resizes."""

from __future__ import annotations

from typing import Any, Literal

from tvm_sramtile.errors import UnsupportedOp
from tvm_sramtile.geometry import Pool2d, Resize2d
from tvm_sramtile.geometry.pool2d import Pooling
from tvm_sramtile.relax.access import shape_text, static_shape
from tvm_sramtile.relax.reading import (
    CHANNELS_FIRST,
    CHANNELS_LAST,
    Reading,
    RefusedError,
    Scene,
    check_operands,
    extents,
    map_layout,
)


def read_max_pool2d(call: Any, _: Scene) -> Reading:
    """``nn.max_pool2d``."""
    return _pool(call, "max")


def read_avg_pool2d(call: Any, _: Scene) -> Reading:
    """``nn.avg_pool2d``, with both ways to count what lies in the padding.

    With ``ceil_mode`` the last window may reach beyond the padding. What lies there never counts in TVM.
    """
    if not call.attrs.count_include_pad:
        return _pool(call, "average_valid")
    reading = _pool(call, "average_all")
    if isinstance(reading.op, Pool2d) and _overshoots(reading.op, call.attrs):
        if any(int(extent) for extent in call.attrs.padding):
            raise RefusedError(
                "ceil_mode with count_include_pad and padding, a window beyond it: the accelerator divides by all "
                "positions of a window, or by those in the map"
            )
        return _pool(call, "average_valid")
    return reading


def _overshoots(op: Pool2d, attrs: Any) -> bool:
    """Whether the last window of an axis reaches beyond the padded map."""
    top, left, bottom, right = (int(extent) for extent in attrs.padding)
    axes = ((op.in_rows + top + bottom, op.out_rows), (op.in_cols + left + right, op.out_cols))
    return any(
        (outs - 1) * stride + dilation * (kernel - 1) + 1 > size
        for (size, outs), stride, dilation, kernel in zip(axes, op.strides, op.dilation, op.kernel, strict=True)
    )


def _pool(call: Any, pooling: Pooling) -> Reading:
    attrs, (data,) = call.attrs, call.args
    check_operands(call, {"data": data})
    layout = map_layout(attrs, "layout")
    top, left, *rest = (int(extent) for extent in attrs.padding)
    if min(top, left, *rest) < 0:
        raise RefusedError(f"padding = {(top, left, *rest)}: the accelerator takes padding of at least 0")
    kernel, strides, dilation = (
        (int(pair[0]), int(pair[1])) for pair in (attrs.pool_size, attrs.strides, attrs.dilation)
    )
    source, out = extents(data, layout), extents(call, layout)
    rows, cols = (source["H"], source["W"])
    op = Pool2d(source["C"], rows, cols, out["H"], out["W"], kernel, strides, (top, left), dilation, pooling)
    return Reading(op, data, layout, layout)


def read_adaptive_avg_pool2d(call: Any, _: Scene) -> Reading:
    """``nn.adaptive_avg_pool2d`` where all windows are of one size and meet none twice."""
    attrs, (data,) = call.attrs, call.args
    check_operands(call, {"data": data})
    layout = map_layout(attrs, "layout")
    source, out = extents(data, layout), extents(call, layout)
    size, wanted = (source["H"], source["W"]), (out["H"], out["W"])
    if size[0] % wanted[0] or size[1] % wanted[1]:
        raise RefusedError(f"output_size = {wanted} of {size}: the accelerator takes divisors of the map's extents")
    kernel = (size[0] // wanted[0], size[1] // wanted[1])
    op = Pool2d(source["C"], *size, *wanted, kernel, kernel, (0, 0), (1, 1), "average_valid")
    return Reading(op, data, layout, layout)


def read_mean(call: Any, scene: Scene) -> Reading:
    """``mean`` over rows, columns or both: a pool of the whole axis."""
    return _reduction(call, scene, "average_valid")


def read_max(call: Any, scene: Scene) -> Reading:
    """``max`` over rows, columns or both."""
    return _reduction(call, scene, "max")


def _reduction(call: Any, scene: Scene, pooling: Literal["max", "average_valid"]) -> Reading:
    attrs, (data,) = call.attrs, call.args
    check_operands(call, {"data": data})
    shape = static_shape(data) or ()
    axes = sorted(int(axis) % len(shape) for axis in (range(len(shape)) if attrs.axis is None else attrs.axis))
    layout = scene.layout_of(data)
    if len(shape) == 4 and len(axes) == 2:
        layout = {(2, 3): CHANNELS_FIRST, (1, 2): CHANNELS_LAST}.get((axes[0], axes[1]), layout)
    letters = {layout[axis] for axis in axes}
    if len(shape) != 4 or not letters or not letters <= {"H", "W"}:
        raise RefusedError(
            f"axis = {tuple(axes)} of {shape_text(data)}: the accelerator takes the rows and columns of a map"
        )
    source = extents(data, layout)
    rows, cols = (source[letter] if letter in letters else 1 for letter in "HW")
    outs = (source["H"] // rows, source["W"] // cols)
    op = Pool2d(source["C"], source["H"], source["W"], *outs, (rows, cols), (rows, cols), (0, 0), (1, 1), pooling)
    kept = layout if attrs.keepdims else "".join(letter for letter in layout if letter not in letters)
    return Reading(op, data, layout, kept)


def read_resize2d(call: Any, _: Scene) -> Reading:
    """``image.resize2d``; the region of interest counts for tf_crop_and_resize only, which is refused."""
    attrs, data = call.attrs, call.args[0]
    check_operands(call, {"data": data})
    layout = map_layout(attrs, "layout")
    source, out = extents(data, layout), extents(call, layout)
    try:
        op = Resize2d(
            in_channels=source["C"],
            in_rows=source["H"],
            in_cols=source["W"],
            out_rows=out["H"],
            out_cols=out["W"],
            method=str(attrs.method),  # type: ignore[arg-type]
            coordinate_transformation_mode=str(attrs.coordinate_transformation_mode),  # type: ignore[arg-type]
            rounding_method=str(attrs.rounding_method),  # type: ignore[arg-type]
            cubic_alpha=float(attrs.cubic_alpha),
            cubic_exclude=bool(attrs.cubic_exclude),
        )
    except UnsupportedOp as error:
        raise RefusedError(str(error).removeprefix("resize2d: ")) from None
    return Reading(op, data, layout, layout)
