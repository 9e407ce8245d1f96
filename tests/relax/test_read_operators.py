"""Operators beside plain convolutions: what steps they become, what is refused and why, and that they compute right."""

from __future__ import annotations

from typing import Any

import pytest
import relax_graphs as graphs
from core import oracle
from relax_reading import GATES, Build, X, all_found, functions, refusal_of, step_of
from tvm import relax
from tvm.relax import op

from tvm_sramtile import relax as front
from tvm_sramtile.geometry import Conv2d, Conv2dTranspose, Pool2d, Resize2d
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Clip

SMALL = AcceleratorSpec(name="small", sram_bytes=3000, channel_align=4, mac_array=(4, 4))


# Convolutions.


@pytest.mark.parametrize("kernel_layout", ["OIHW", "HWIO", "OHWI", "HWOI"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_conv2d_in_any_layout(layout: str, kernel_layout: str) -> None:
    extents = {"N": 2, "C": 4, "H": 9, "W": 7}
    kernel = {"O": 8, "I": 2, "H": 3, "W": 1}
    x = graphs.tensor("x", *(extents[letter] for letter in layout))
    weight = graphs.literal(1, *(kernel[letter] for letter in kernel_layout))
    attrs = {"strides": (2, 1), "padding": (1, 0, 2, 3), "dilation": (1, 2), "groups": 2}
    step = step_of(lambda b, x: op.nn.conv2d(x, weight, data_layout=layout, kernel_layout=kernel_layout, **attrs), x)
    assert step.op == Conv2d(4, 9, 7, 8, (3, 1), (2, 1), (1, 0, 2, 3), (1, 2), 2)
    assert (step.data.layout, step.output.layout, step.images) == (layout, layout, 2)
    assert step.weight is not None
    assert step.weight.layout == kernel_layout


def test_conv2d_transpose() -> None:
    x, weight = graphs.tensor("x", 1, 4, 5, 6), graphs.literal(1, 4, 3, 3, 4)
    attrs = {"strides": (2, 3), "padding": (1, 0, 0, 1), "output_padding": (1, 2), "dilation": (1, 2), "groups": 2}
    step = step_of(lambda b, x: op.nn.relu(b.emit(op.nn.conv2d_transpose(x, weight, **attrs))), x)
    assert step.op == Conv2dTranspose(4, 5, 6, 6, (3, 4), (2, 3), (1, 0, 0, 1), (1, 2), (1, 2), 2)
    assert step.clip == Clip(0.0, None)


def test_conv2d_transpose_in_nhwc_which_stock_tvm_does_not_build() -> None:
    data, weight = graphs.random(0, 1, 6, 5, 4), graphs.random(1, 4, 3, 3, 3)
    attrs: dict[str, Any] = {"strides": (2, 2), "padding": (1, 1, 1, 1), "dilation": (2, 2)}
    mod = graphs.module(
        [graphs.tensor("x", *data.shape)],
        lambda b, x: op.nn.conv2d_transpose(x, relax.const(weight, "float32"), data_layout="NHWC", **attrs),
    )
    partitioned = front.partition_for_sramtile(mod, SMALL)
    expected = oracle.conv2d_transpose(data.transpose(0, 3, 1, 2), weight, None, **attrs).transpose(0, 2, 3, 1)
    graphs.assert_close(front.run_accelerator(partitioned, {"x": data}).outputs, (expected,), 1e-5)


@pytest.mark.parametrize(("rank", "layout"), [(2, "WC"), (3, "HWC"), (4, "NHWC")])
def test_a_product_with_a_matrix_is_a_convolution(rank: int, layout: str) -> None:
    shape = (2, 3, 6, 20)[4 - rank :]
    x, weight, bias = graphs.tensor("x", *shape), graphs.literal(1, 20, 9), graphs.literal(2, 9)
    step = step_of(lambda b, x: op.sigmoid(b.emit(op.add(b.emit(op.matmul(x, weight)), bias))), x)
    assert step.op == Conv2d(20, 3 if rank > 2 else 1, 6, 9, (1, 1))
    assert (step.data.layout, step.output.layout, step.images) == (layout, layout, 2 if rank == 4 else 1)
    assert step.weight is not None
    assert step.weight.layout == "IO"
    assert step.bias is not None
    assert functions(step) == ["sigmoid"]


def test_products_of_maps_are_refused() -> None:
    x, y = graphs.tensor("x", 2, 3, 4), graphs.tensor("y", 2, 4, 5)
    reason = "shape of weight = (2, 4, 5): the accelerator takes a matrix"
    assert refusal_of(lambda b, x, y: op.matmul(x, y), x, y) == reason
    x, y = graphs.tensor("x", 4), graphs.tensor("y", 4, 5)
    reason = "shape of data = (4): the accelerator takes maps of 2 to 4 axes"
    assert refusal_of(lambda b, x, y: op.matmul(x, y), x, y) == reason


# Windows over each channel.


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_pools(layout: str) -> None:
    extents = {"N": 1, "C": 5, "H": 11, "W": 8}
    x = graphs.tensor("x", *(extents[letter] for letter in layout))
    window: dict[str, Any] = {"strides": (2, 3), "padding": (1, 0, 2, 1), "dilation": (2, 1), "layout": layout}
    expected = ((3, 2), (2, 3), (1, 0), (2, 1))
    largest = step_of(lambda b, x: op.nn.max_pool2d(x, (3, 2), ceil_mode=True, **window), x)
    assert largest.op == Pool2d(5, 11, 8, 6, 3, *expected, "max")
    for counted, pooling in ((True, "average_all"), (False, "average_valid")):
        step = step_of(lambda b, x, c=counted: op.nn.avg_pool2d(x, (3, 2), count_include_pad=c, **window), x)
        assert step.op == Pool2d(5, 11, 8, 5, 3, *expected, pooling)
        assert step.output.layout == layout


@pytest.mark.parametrize(("padding", "taken"), [(0, True), ((1, 0, 0, 0), False)])
def test_an_average_beyond_the_padding(padding: Any, taken: bool) -> None:
    """TVM never counts what ``ceil_mode`` adds to the padding."""
    x = graphs.tensor("x", 1, 3, 11 if padding else 10, 9)
    mod = graphs.module(
        [x],
        lambda b, x: op.nn.avg_pool2d(x, 3, strides=2, padding=padding, ceil_mode=True, count_include_pad=True),
    )
    partitioned = front.partition_for_sramtile(mod, SMALL)
    assert len(front.regions(partitioned)) == taken
    data = graphs.random(0, 1, 3, 11 if padding else 10, 9)
    graphs.assert_close(front.run_accelerator(partitioned, {"x": data}).outputs, graphs.run_plain(mod, data), 1e-5)
    reason = (
        "ceil_mode with count_include_pad and padding, a window beyond it: the accelerator divides by all positions "
        "of a window, or by those in the map"
    )
    assert [each.reason for each in front.host_ops(partitioned)] == [] if taken else [reason]


@pytest.mark.parametrize(("size", "outs", "kernel"), [((7, 6), (1, 1), (7, 6)), ((8, 6), (4, 2), (2, 3))])
def test_adaptive_pools_with_equal_windows(size: tuple[int, int], outs: Any, kernel: Any) -> None:
    x = graphs.tensor("x", 1, 5, *size)
    step = step_of(lambda b, x: op.nn.adaptive_avg_pool2d(x, outs), x)
    assert step.op == Pool2d(5, *size, *outs, kernel, kernel, (0, 0), (1, 1), "average_valid")


def test_adaptive_pools_with_other_windows_are_refused() -> None:
    reason = "output_size = (3, 2) of (7, 6): the accelerator takes divisors of the map's extents"
    assert refusal_of(lambda b, x: op.nn.adaptive_avg_pool2d(x, (3, 2))) == reason


@pytest.mark.parametrize(
    ("apply", "axes", "keepdims", "outs", "layout"),
    [
        (op.mean, [2, 3], True, (1, 1), "NCHW"),
        (op.mean, [-1, -2], False, (1, 1), "NC"),
        (op.max, [2, 3], True, (1, 1), "NCHW"),
        (op.mean, [2], True, (1, 6), "NCHW"),
        (op.max, [3], False, (7, 1), "NCH"),
    ],
)
def test_reductions_over_rows_and_columns(apply: Any, axes: Any, keepdims: bool, outs: Any, layout: str) -> None:
    step = step_of(lambda b, x: apply(x, axes, keepdims))
    kernel = (7 // outs[0], 6 // outs[1])
    pooling = "max" if apply is op.max else "average_valid"
    assert step.op == Pool2d(5, 7, 6, *outs, kernel, kernel, (0, 0), (1, 1), pooling)
    assert step.output.layout == layout


def test_a_mean_in_nhwc() -> None:
    step = step_of(lambda b, x: op.mean(x, [1, 2], True), graphs.tensor("x", 2, 7, 6, 5))
    assert isinstance(step.op, Pool2d)
    assert (step.op.channels, step.op.kernel, step.images, step.output.layout) == (5, (7, 6), 2, "NHWC")


@pytest.mark.parametrize("axes", [[1], [1, 2, 3], None])
def test_reductions_over_channels_are_refused(axes: Any) -> None:
    shown = tuple(axes or (0, 1, 2, 3))
    reason = f"axis = {shown} of (1, 5, 7, 6): the accelerator takes the rows and columns of a map"
    assert refusal_of(lambda b, x: op.mean(x, axes, True)) == reason


def test_a_window_that_does_not_fit_is_taken_in_two_passes() -> None:
    x = graphs.tensor("x", 2, 4, 40, 30)
    mod = graphs.module([x], lambda b, x: op.nn.relu(b.emit(op.mean(x, [2, 3], True))))
    partitioned = front.partition_for_sramtile(mod, SMALL)
    (region,) = front.regions(partitioned)
    assert [step.op.kernel for step in region.region.steps if isinstance(step.op, Pool2d)] == [(1, 30), (40, 1)]
    assert [functions(step) for step in region.region.steps] == [[], ["clip"]]
    data = graphs.random(0, 2, 4, 40, 30)
    graphs.assert_close(front.run_accelerator(partitioned, {"x": data}).outputs, graphs.run_plain(mod, data), 1e-5)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_resize2d(layout: str) -> None:
    extents = {"N": 1, "C": 3, "H": 5, "W": 6}
    x = graphs.tensor("x", *(extents[letter] for letter in layout))
    attrs: dict[str, Any] = {
        "method": "cubic",
        "coordinate_transformation_mode": "align_corners",
        "rounding_method": "ceil",
        "cubic_alpha": -0.5,
        "cubic_exclude": 1,
    }
    step = step_of(lambda b, x: op.nn.relu(b.emit(op.image.resize2d(x, (12, 4), layout=layout, **attrs))), x)
    assert step.op == Resize2d(3, 5, 6, 12, 4, "cubic", "align_corners", "ceil", -0.5, True)
    assert functions(step) == ["clip"]


def test_a_resize_of_a_region_of_interest_is_refused() -> None:
    mode = "tf_crop_and_resize"
    reason = refusal_of(lambda b, x: op.image.resize2d(x, (9, 9), coordinate_transformation_mode=mode))
    assert reason.startswith("coordinate_transformation_mode 'tf_crop_and_resize' is not supported, only 'half_pixel'")


# Several steps, and tensors in several roles.


@pytest.mark.parametrize(("layout", "axis"), [("NCHW", 1), ("NHWC", -1)])
def test_a_concatenation_is_a_copy_of_each_part(layout: str, axis: int) -> None:
    params = []
    for name, channels in (("x", 5), ("y", 3)):
        extents = {"N": 1, "C": channels, "H": 7, "W": 6}
        params.append(graphs.tensor(name, *(extents[letter] for letter in layout)))
    (only,) = all_found(lambda b, x, y: op.concat([x, y, x], axis), *params)
    assert [step.output_channel for step in only.steps] == [0, 5, 8]
    assert [step.op.in_channels for step in only.steps] == [5, 3, 5]
    assert {step.output for step in only.steps} == {only.steps[0].output}
    assert [step.data.name for step in only.steps] == ["data", "data1", "data"]


@pytest.mark.parametrize(("axis", "shown"), [(2, 2), (0, 0), (None, -1)])
def test_other_concatenations_are_refused(axis: int | None, shown: int) -> None:
    reason = f"axis = {shown} of {1 if axis is None else 4}: the accelerator joins the channels of maps with 4 axes"
    x = graphs.tensor("x", 6) if axis is None else X
    assert refusal_of(lambda b, x: op.concat([x, x], axis), x) == reason


def test_a_tensor_has_a_name_for_each_way_it_is_read() -> None:
    step = step_of(lambda b, x: op.nn.conv2d(x, x, padding=1), graphs.tensor("x", 3, 3, 3, 3))
    assert step.weight is not None
    assert step.data.name != step.weight.name
    squared = step_of(lambda b, x: op.multiply(x, x))
    assert squared.data == squared.other

    def build(builder: Any, x: Any, v: Any) -> Any:
        value = builder.emit(op.add(builder.emit(op.nn.conv2d(x, graphs.literal(1, 5, 5, 3, 3))), v))
        return op.multiply(value, v)

    twice = step_of(build, X, graphs.tensor("v", 5, 1, 1))
    assert twice.bias is not None
    assert twice.activations[0].vector == twice.bias


def test_constants_of_several_images_are_refused() -> None:
    mod = graphs.module([graphs.tensor("x", 2, 5, 7, 6)], lambda b, x: op.add(x, graphs.literal(0, 2, 5, 7, 6)))
    (only,) = front.host_ops(front.partition_for_sramtile(mod))
    assert only.reason == "other is a constant of 2 images: the accelerator takes constants of one"


def squeeze_and_excite(builder: Any, x: Any) -> Any:
    value = builder.emit(op.mean(x, [2, 3], True))
    value = builder.emit(op.nn.relu(builder.emit(op.nn.conv2d(value, graphs.literal(1, 4, 5, 1, 1)))))
    value = builder.emit(op.sigmoid(builder.emit(op.nn.conv2d(value, graphs.literal(2, 5, 4, 1, 1)))))
    return op.multiply(x, value)


@pytest.mark.parametrize(("images", "regions"), [(1, 4), (2, 3)])
def test_a_vector_that_is_computed_is_taken_for_one_image(images: int, regions: int) -> None:
    mod = graphs.module([graphs.tensor("x", images, 5, 7, 6)], squeeze_and_excite)
    partitioned = front.partition_for_sramtile(mod, SMALL)
    assert len(front.regions(partitioned)) == regions
    data = graphs.random(0, images, 5, 7, 6)
    graphs.assert_close(front.run_accelerator(partitioned, {"x": data}).outputs, graphs.run_plain(mod, data), 1e-5)


def residual(builder: Any, x: Any) -> Any:
    value = builder.emit(op.nn.conv2d(x, graphs.literal(1, 5, 5, 3, 3), padding=1))
    return op.nn.leakyrelu(builder.emit(op.add(value, x)), 0.1)


def two_layouts(builder: Any, x: Any) -> Any:
    weight = graphs.literal(1, 3, 3, 6, 5)
    value = builder.emit(op.nn.conv2d(x, weight, padding=1, data_layout="NHWC", kernel_layout="HWIO"))
    return op.concat([builder.emit(op.sigmoid(value)), builder.emit(op.image.resize2d(x, (5, 7), layout="NHWC"))], 3)


@pytest.mark.parametrize(
    "build",
    [residual, two_layouts, *(lambda b, x, g=gate: g(b, x) for gate, _ in GATES)],
    ids=lambda build: build.__name__,
)
def test_the_accelerator_agrees_with_tvm(build: Build) -> None:
    mod = graphs.module([X], build)
    data = graphs.random(0, 1, 5, 7, 6)
    partitioned = front.partition_for_sramtile(mod, SMALL)
    assert front.host_ops(partitioned) == ()
    graphs.assert_close(front.run_accelerator(partitioned, {"x": data}).outputs, graphs.run_plain(mod, data), 1e-5)


def test_what_joins_two_operators_belongs_to_one_of_them() -> None:
    values = {"x": graphs.random(0, 1, 4, 6, 5), "y": graphs.random(1, 1, 4, 6, 5)}

    def build(b: Any, *maps: Any) -> Any:
        return op.add(*(b.emit(op.mean(value, axis=[2, 3], keepdims=True)) for value in maps))

    mod = graphs.module([graphs.tensor(name, *value.shape) for name, value in values.items()], build)
    partitioned = front.partition_for_sramtile(mod, SMALL)
    activations = [len(step.activations) for region in front.regions(partitioned) for step in region.region.steps]
    assert sorted(activations) == [0, 1]
    graphs.assert_close(front.run_accelerator(partitioned, values).outputs, front.run_host(mod, values), 1e-6)
