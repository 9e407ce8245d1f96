"""Readers of what looks at a window of each channel: pools, means over rows and columns, resizes."""

from __future__ import annotations

from typing import Literal

from tvm_sramtile.errors import UnsupportedOp
from tvm_sramtile.geometry import Pool2d, Resize2d
from tvm_sramtile.geometry.pool2d import Pooling
from tvm_sramtile.relay.access import four_pads, op_name, pair, shape_text, static_shape
from tvm_sramtile.relay.graph import Node
from tvm_sramtile.relay.reading import (
    CHANNELS_FIRST,
    CHANNELS_LAST,
    Reading,
    RefusedError,
    Scene,
    check_operands,
    extents,
    map_layout,
)

_Reduction = Literal["max", "average_valid"]


def read_max_pool2d(call: Node, _: Scene) -> Reading:
    """``nn.max_pool2d``."""
    return _pool(call, "max")


def read_avg_pool2d(call: Node, _: Scene) -> Reading:
    """``nn.avg_pool2d``, with both ways to count what lies in the padding.

    With ``ceil_mode`` the last window may reach beyond the padding. What lies there never counts in TVM.
    """
    if not call.attrs.count_include_pad:
        return _pool(call, "average_valid")
    reading = _pool(call, "average_all")
    if isinstance(reading.op, Pool2d) and _overshoots(reading.op, four_pads(call.attrs.padding)):
        if any(four_pads(call.attrs.padding)):
            raise RefusedError(
                "ceil_mode with count_include_pad and padding, a window beyond it: the accelerator divides by all "
                "positions of a window, or by those in the map"
            )
        return _pool(call, "average_valid")
    return reading


def _overshoots(op: Pool2d, padding: tuple[int, int, int, int]) -> bool:
    """Whether the last window of an axis reaches beyond the padded map."""
    top, left, bottom, right = padding
    axes = ((op.in_rows + top + bottom, op.out_rows), (op.in_cols + left + right, op.out_cols))
    return any(
        (outs - 1) * stride + dilation * (kernel - 1) + 1 > size
        for (size, outs), stride, dilation, kernel in zip(axes, op.strides, op.dilation, op.kernel, strict=True)
    )


def _pool(call: Node, pooling: Pooling) -> Reading:
    attrs, (data,) = call.attrs, call.args
    check_operands(call, {"data": data})
    layout = map_layout(attrs, "layout")
    padding = four_pads(attrs.padding)
    if min(padding) < 0:
        raise RefusedError(f"padding = {padding}: the accelerator takes padding of at least 0")
    kernel, strides, dilation = pair(attrs.pool_size), pair(attrs.strides), pair(attrs.dilation)
    source, out = extents(data, layout), extents(call, layout)
    rows, cols = (source["H"], source["W"])
    op = Pool2d(source["C"], rows, cols, out["H"], out["W"], kernel, strides, padding[:2], dilation, pooling)
    return Reading(op, data, layout, layout)


def read_adaptive_pool2d(call: Node, _: Scene) -> Reading:
    """``nn.adaptive_avg_pool2d`` and ``_max_``, where all windows are of one size and meet none twice."""
    attrs, (data,) = call.attrs, call.args
    check_operands(call, {"data": data})
    layout = map_layout(attrs, "layout")
    source, out = extents(data, layout), extents(call, layout)
    size, wanted = (source["H"], source["W"]), (out["H"], out["W"])
    if size[0] % wanted[0] or size[1] % wanted[1]:
        raise RefusedError(f"output_size = {wanted} of {size}: the accelerator takes divisors of the map's extents")
    return _windows(data, layout, layout, (size[0] // wanted[0], size[1] // wanted[1]), _pooling_of(call))


def read_global_pool2d(call: Node, _: Scene) -> Reading:
    """``nn.global_avg_pool2d`` and ``nn.global_max_pool2d``."""
    data = call.args[0]
    check_operands(call, {"data": data})
    layout = map_layout(call.attrs, "layout")
    source = extents(data, layout)
    return _windows(data, layout, layout, (source["H"], source["W"]), _pooling_of(call))


def _pooling_of(call: Node) -> _Reduction:
    return "max" if "max" in op_name(call) else "average_valid"


def read_reduction(call: Node, scene: Scene) -> Reading:
    """``mean`` and ``max`` over rows, columns or both: a pool of the whole axis."""
    attrs, (data,) = call.attrs, call.args
    check_operands(call, {"data": data})
    shape = static_shape(data) or ()
    named = {int(axis) % len(shape) for axis in (range(len(shape)) if attrs.axis is None else attrs.axis)}
    axes = sorted(set(range(len(shape))) - named) if attrs.exclude else sorted(named)
    layout = scene.layout_of(data)
    if len(shape) == 4 and len(axes) == 2:
        layout = {(2, 3): CHANNELS_FIRST, (1, 2): CHANNELS_LAST}.get((axes[0], axes[1]), layout)
    letters = {layout[axis] for axis in axes}
    if len(shape) != 4 or not letters or not letters <= {"H", "W"}:
        raise RefusedError(
            f"axis = {tuple(axes)} of {shape_text(data)}: the accelerator takes the rows and columns of a map"
        )
    source = extents(data, layout)
    window = (source["H"] if "H" in letters else 1, source["W"] if "W" in letters else 1)
    kept = layout if attrs.keepdims else "".join(letter for letter in layout if letter not in letters)
    return _windows(data, layout, kept, window, "max" if op_name(call) == "max" else "average_valid")


def _windows(data: Node, layout: str, output_layout: str, window: tuple[int, int], pooling: _Reduction) -> Reading:
    """A pool whose windows stand side by side and fill the map."""
    source = extents(data, layout)
    outs = (source["H"] // max(1, window[0]), source["W"] // max(1, window[1]))
    op = Pool2d(source["C"], source["H"], source["W"], *outs, window, window, (0, 0), (1, 1), pooling)
    return Reading(op, data, layout, output_layout)


def read_resize2d(call: Node, _: Scene) -> Reading:
    """``image.resize2d``; the region of interest counts for tf_crop_and_resize only, which is refused."""
    attrs = call.attrs
    return _resize(
        call,
        str(attrs.method),
        str(attrs.coordinate_transformation_mode),
        rounding_method=str(attrs.rounding_method),
        cubic_alpha=float(attrs.cubic_alpha),
        cubic_exclude=bool(attrs.cubic_exclude),
    )


_UPSAMPLING = {"nearest_neighbor": "nearest_neighbor", "bilinear": "linear", "bicubic": "cubic"}


def read_upsampling(call: Node, _: Scene) -> Reading:
    """``nn.upsampling``, which TVM computes as a resize."""
    method = str(call.attrs.method)
    if method not in _UPSAMPLING:
        raise RefusedError(f"method = {method!r}: the accelerator takes {', '.join(map(repr, _UPSAMPLING))}")
    return _resize(call, _UPSAMPLING[method], "align_corners" if call.attrs.align_corners else "asymmetric")


def _resize(
    call: Node,
    method: str,
    mode: str,
    *,
    rounding_method: str = "",
    cubic_alpha: float = -0.5,
    cubic_exclude: bool = False,
) -> Reading:
    data = call.args[0]
    check_operands(call, {"data": data})
    layout = map_layout(call.attrs, "layout")
    source, out = extents(data, layout), extents(call, layout)
    try:
        op = Resize2d(
            in_channels=source["C"],
            in_rows=source["H"],
            in_cols=source["W"],
            out_rows=out["H"],
            out_cols=out["W"],
            method=method,  # type: ignore[arg-type]
            coordinate_transformation_mode=mode,  # type: ignore[arg-type]
            rounding_method=rounding_method,  # type: ignore[arg-type]
            cubic_alpha=cubic_alpha,
            cubic_exclude=cubic_exclude,
            ties="away",
            whole_scale_floors=True,
        )
    except UnsupportedOp as error:
        raise RefusedError(str(error).removeprefix("resize2d: ")) from None
    return Reading(op, data, layout, layout)
