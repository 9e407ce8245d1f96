"""Every operator cut inline: right values, as slices where these do, and all that the pass makes fits."""

from __future__ import annotations

from typing import Any

import pytest
import relax_graphs as graphs
import tvm
from core.whole_chips import whole_case
from tvm import relax
from tvm.relax import op

from tvm_sramtile import relax as front
from tvm_sramtile.attributes import RegionAttributes
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.plan import plan_region
from tvm_sramtile.relax.emit import region_function

SPEC = AcceleratorSpec(name="small", sram_bytes=2820, channel_align=4)
FINE = SPEC.replace(sram_bytes=1500)
NCHW, NHWC = (1, 4, 16, 10), (1, 16, 10, 4)


def conv(x: Any, *shape: int, **attrs: Any) -> Any:
    return op.nn.conv2d(x, graphs.literal(1, *shape), **attrs)


def transposed(x: Any, *shape: int, **attrs: Any) -> Any:
    return op.nn.conv2d_transpose(x, graphs.literal(1, *shape), **attrs)


def resize(x: Any, size: tuple[int, int], method: str, **attrs: Any) -> Any:
    return op.image.resize2d(x, size, method=method, **attrs)


OPERATORS: dict[str, tuple[tuple[int, ...], Any]] = {
    "nhwc_hwio": (NHWC, lambda x: conv(x, 3, 3, 4, 4, data_layout="NHWC", kernel_layout="HWIO")),
    "nhwc_ohwi": (NHWC, lambda x: conv(x, 4, 3, 3, 2, data_layout="NHWC", kernel_layout="OHWI", padding=1, groups=2)),
    "depthwise": (NCHW, lambda x: conv(x, 8, 1, 3, 3, padding=(0, 2, 1, 0), groups=4, dilation=(2, 1))),
    "sub_kernels": (NCHW, lambda x: conv(x, 4, 4, 5, 4, padding=2, strides=(2, 1))),
    "transposed": (NCHW, lambda x: transposed(x, 4, 4, 3, 3, strides=2, padding=1, output_padding=1)),
    "transposed_without_contributor": (NCHW, lambda x: transposed(x, 4, 4, 1, 2, strides=3)),
    "transposed_sub_kernels": (NCHW, lambda x: transposed(x, 4, 2, 7, 5, strides=(2, 1), groups=2)),
    "max_pool": (NCHW, lambda x: op.nn.max_pool2d(x, (3, 2), strides=2, padding=1, ceil_mode=True)),
    "average_pool": (NCHW, lambda x: op.nn.avg_pool2d(x, 3, strides=1, padding=(2, 1, 0, 1), count_include_pad=True)),
    "average_pool_of_real": (NHWC, lambda x: op.nn.avg_pool2d(x, 3, padding=2, dilation=2, layout="NHWC")),
    "nearest": (NCHW, lambda x: resize(x, (32, 30), "nearest_neighbor")),
    "linear": (NCHW, lambda x: resize(x, (32, 20), "linear")),
    "linear_other_scale": (NCHW, lambda x: resize(x, (23, 17), "linear")),
    "cubic": (NHWC, lambda x: resize(x, (32, 20), "cubic", layout="NHWC")),
    "cubic_corners": (NCHW, lambda x: resize(x, (31, 7), "cubic", coordinate_transformation_mode="align_corners")),
}


def module(name: str) -> tvm.IRModule:
    shape, build = OPERATORS[name]
    return graphs.module([graphs.tensor("x", *shape)], lambda _, x: build(x))


def split_ops(name: str, spec: AcceleratorSpec = SPEC) -> list[str]:
    return graphs.ops_of(front.SplitOversized(spec)(module(name)))


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator(name: str) -> None:
    mod = module(name)
    result = front.SplitOversized(SPEC)(mod)
    assert "concat" in graphs.ops_of(result)
    values = graphs.random(0, *OPERATORS[name][0])
    graphs.assert_close(graphs.run_plain(result, values), graphs.run_plain(mod, values), 1e-5)
    outlined = front.SplitOversized(SPEC, outline=True)(mod)
    assert len(graphs.functions_with(outlined, "sramtile.plan")) == 1
    for spec in (SPEC, FINE):
        once = front.SplitOversized(spec)(mod)
        assert front.SplitOversized(spec)(once).same_as(once)


@pytest.mark.parametrize("name", ["nearest", "linear", "cubic"])
def test_a_resize_of_slices_where_these_have_the_coordinates_of_the_whole(name: str) -> None:
    assert set(split_ops(name)) == {"strided_slice", "image.resize2d", "concat"}


def test_a_resize_by_rows_taken_with_weights_elsewhere() -> None:
    assert {"take", "multiply", "add"} <= set(split_ops("linear_other_scale"))


def test_rows_without_contributor_are_zeros() -> None:
    assert "nn.pad" in split_ops("transposed_without_contributor", FINE)


def test_twice_is_once() -> None:
    """All that the pass makes fits: whatever the operator, its attributes and the memory."""
    cut = 0
    for seed in [*range(90), 250]:  # 250: the weights of only one pass of a transposed convolution fit at a time
        case, spec, options = whole_case(seed)
        attributes = RegionAttributes(case.region, plan_region(case.region, spec, options), spec, options)
        if attributes.plan.chunk_count > 60:
            continue
        literals = {digest: relax.const(value) for digest, value in case.constants.items()}
        function = region_function(attributes, literals, chunked=False, codegen=False)
        plain = relax.Function(function.params, function.body, function.ret_ty, True)
        mod = tvm.IRModule({"main": plain.with_attr("global_symbol", "main")})
        once = front.SplitOversized(spec, options)(mod)
        cut += not once.same_as(mod)
        assert front.SplitOversized(spec, options)(once).same_as(once), seed
    assert cut > 40
