"""The cases that are no success, by front end: those that TVM itself gets wrong, and what stays on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnx_suite.run import Outcome

_NO_UNIT = "no unit of the accelerator computes it"
_PADS = "convolutions pad with 0"
_NO_READER = "no unit of the accelerator pads: convolutions do, where they alone read the map"
_ROI = "coordinate_transformation_mode 'tf_crop_and_resize' is not supported"
_DTYPE = "dtype uint8 of data: the accelerator takes float32"


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a front end.

    Attributes:
        faults: why TVM gets a case wrong; a newer TVM may get it right.
        host: parts of what is said of the operators on the host, for each case that has some.
    """

    faults: Mapping[str, str]
    host: Mapping[str, tuple[str, ...]]


def _all(reason: str, *names: str) -> dict[str, str]:
    return {f"test_{name}": reason for name in names}


_RESIZE_FAULTS = {
    **_all(
        "computes the scale from the rounded size",
        "resize_downsample_scales_cubic",
        "resize_downsample_scales_cubic_A_n0p5_exclude_outside",
        "resize_downsample_scales_cubic_align_corners",
        "resize_downsample_scales_linear",
    ),
    **_all("divides by 0 for an output of one row", "resize_downsample_scales_linear_align_corners"),
    **_all(
        "has no antialiasing",
        "resize_downsample_scales_cubic_antialias",
        "resize_downsample_scales_linear_antialias",
        "resize_downsample_sizes_cubic_antialias",
        "resize_downsample_sizes_linear_antialias",
    ),
    **_all(
        "has no mode half_pixel_symmetric",
        "resize_downsample_scales_linear_half_pixel_symmetric",
        "resize_upsample_scales_linear_half_pixel_symmetric",
    ),
    **_all(
        "takes sizes and scales of all axes only",
        "resize_downsample_sizes_nearest_not_larger",
        "resize_downsample_sizes_nearest_not_smaller",
        "resize_tf_crop_and_resize_axes_2_3",
        "resize_tf_crop_and_resize_axes_3_2",
        "resize_upsample_scales_nearest_axes_2_3",
        "resize_upsample_scales_nearest_axes_3_2",
        "resize_upsample_sizes_nearest_axes_2_3",
        "resize_upsample_sizes_nearest_axes_3_2",
        "resize_upsample_sizes_nearest_not_larger",
        "resize_upsample_sizes_nearest_not_smaller",
    ),
}
_FAULTS = {
    **_RESIZE_FAULTS,
    **_all(
        "has no second output of max pool",
        "maxpool_with_argmax_2d_precomputed_pads",
        "maxpool_with_argmax_2d_precomputed_strides",
    ),
}
_HOST = {
    "test_ConstantPad2d": (f"pad: pad_value = 2.0: {_PADS}",),
    "test_ReflectionPad2d": (f"mirror_pad: {_NO_UNIT}",),
    "test_ReplicationPad2d": (f"replicate_pad: {_NO_UNIT}",),
    "test_ZeroPad2d": (f"pad: {_NO_READER}",),
    "test_maxpool_2d_uint8": (_DTYPE,),
    "test_resize_tf_crop_and_resize": (_ROI,),
    "test_resize_tf_crop_and_resize_extrapolation_value": (_ROI,),
    **{
        f"test_lppool_2d_{name}": (f"power: {_NO_UNIT}",)
        for name in ("default", "dilations", "pads", "same_lower", "same_upper", "strides")
    },
}

# Relay's importer pads before the pool where auto_pad is SAME.
_SAME_PADS = {
    **{
        f"test_maxpool_2d_{name}": (f"pad: pad_value = -3.4028234663852886e+38: {_PADS}",)
        for name in ("precomputed_same_upper", "same_lower", "same_upper")
    },
    **{f"test_lppool_2d_{name}": (f"pad: {_NO_READER}", f"power: {_NO_UNIT}") for name in ("same_lower", "same_upper")},
}

RELAX = Known(
    faults={
        **_FAULTS,
        **_all("takes the other sizes for the padding of output_shape", "convtranspose_output_shape"),
        **_all("takes scales as an attribute only", "upsample_nearest"),
    },
    host=_HOST,
)
RELAY = Known(
    faults={
        **_FAULTS,
        **_all("pads on the other side", "convtranspose_autopad_same"),
        **_all("has no dilation of transposed convolutions", "convtranspose_dilations"),
        **_all(
            "keeps windows that start in padding",
            "averagepool_2d_ceil_last_window_starts_on_pad",
            "maxpool_2d_ceil_output_size_reduce_by_one",
        ),
        **_all("has no dilation of Lp pools", "lppool_2d_dilations"),
        **_all("does not count padding in Lp pools", "lppool_2d_pads"),
        **_all("rounds to even", "resize_upsample_sizes_nearest_round_prefer_ceil_asymmetric"),
    },
    host={
        **_HOST,
        **_SAME_PADS,
        "test_ReflectionPad2d": (f"pad: pad_mode = 'reflect': {_PADS}",),
        "test_ReplicationPad2d": (f"pad: pad_mode = 'edge': {_PADS}",),
    },
)


def surprises(outcomes: Sequence[Outcome], known: Known) -> list[str]:
    """What is not as it should be or as is known, one line each."""
    lines = []
    for outcome in outcomes:
        name = outcome.case.name
        if outcome.fault:
            lines += [] if name in known.faults else [f"{name}: {outcome.fault}"]
            continue
        parts = known.host.get(name, ())
        lines += [f"{name}: on the host: {text}" for text in outcome.host if not any(part in text for part in parts)]
        lines += [f"{name}: not on the host: {part}" for part in parts if not any(part in t for t in outcome.host)]
        lines += [f"{name}: not cut: {text}" for text in outcome.uncut]
        lines += [f"{name}: differs: {outcome.problem}"] if outcome.problem else []
    return lines
