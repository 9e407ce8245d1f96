from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import relax_graphs as graphs
import tvm
from tvm import relax
from tvm.relax import op

from tvm_sramtile import relax as front
from tvm_sramtile.attributes import RegionAttributes
from tvm_sramtile.errors import DoesNotFit, ModelError, UnsupportedOp
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.options import Options

SPEC = AcceleratorSpec(name="small", sram_bytes=2820, channel_align=4)
STRICT = Options(on_refusal="error")
SEED = Options(strategy="seed")
X = graphs.tensor("x", 1, 4, 16, 10)
W, B = graphs.literal(1, 4, 4, 3, 3), graphs.literal(3, 1, 4, 1, 1)
INPUT = graphs.random(0, 1, 4, 16, 10)


def conv(x: Any, w: Any = W, padding: Any = 1) -> Any:
    return op.nn.conv2d(x, w, padding=padding)


def layer(builder: Any, x: Any, w: Any = W, bias: Any = B) -> Any:
    return op.nn.relu(builder.emit(op.add(builder.emit(conv(x, w)), bias)))


def region_attributes(mod: tvm.IRModule, name: str) -> RegionAttributes:
    return RegionAttributes.from_attrs(dict(mod[name].attrs), name)


def test_both_ways_to_a_region_make_the_same_region() -> None:
    mod = graphs.module([X], layer)
    outlined = front.SplitOversized(SPEC, SEED, outline=True)(mod)
    results = [
        front.PartitionForSramtile(SPEC, SEED)(outlined),
        front.PartitionForSramtile(SPEC, SEED)(mod),
        front.partition_for_sramtile(mod, SPEC, SEED),
    ]
    for result in results:
        assert graphs.is_well_formed(result)
        assert graphs.ops_of(result) == ["sramtile_conv2d_0"]
        assert list(graphs.functions_with(result, "Codegen")) == ["sramtile_conv2d_0"]
        assert [str(param.name) for param in result["sramtile_conv2d_0"].params] == ["data"]
    attributes = [region_attributes(result, "sramtile_conv2d_0") for result in results]
    assert attributes[0] == attributes[1] == attributes[2]
    assert attributes[0].plan.chunk_count == 4
    assert [tensor.digest is not None for tensor in attributes[0].region.steps[0].inputs] == [False, True, True]


def test_parameters_stay_parameters() -> None:
    params = [X, graphs.tensor("w", 4, 4, 3, 3), graphs.tensor("b", 1, 4, 1, 1)]
    mod = graphs.module(params, layer)
    for result in (front.partition_for_sramtile(mod, SPEC), front.PartitionForSramtile(SPEC)(mod)):
        (region,) = front.regions(result)
        assert [tensor.name for tensor in region.region.inputs] == ["data", "weight", "bias"]
        assert region.region.constants == ()


def test_params_are_bound() -> None:
    params = [X, graphs.tensor("w", 4, 4, 3, 3), graphs.tensor("b", 4)]

    def build(builder: Any, x: Any, w: Any, b: Any) -> Any:
        return layer(builder, x, w, builder.emit(op.reshape(b, (1, 4, 1, 1))))

    mod = graphs.module(params, build)
    values = {"w": graphs.random(1, 4, 4, 3, 3), "b": tvm.runtime.tensor(graphs.random(2, 4))}
    expected = graphs.run_plain(mod, INPUT, values["w"], graphs.random(2, 4))
    for given in (values, {"main": list(values.values())}):
        result = front.partition_for_sramtile(mod, SPEC, params=given)
        assert [str(param.name) for param in result["main"].params] == ["x"]
        (region,) = front.regions(result)
        assert [tensor.name for tensor in region.region.inputs] == ["data"]
        graphs.assert_close(front.run_accelerator(result, {"x": INPUT}).outputs, expected, 1e-5)
    with pytest.raises(ModelError) as caught:
        front.partition_for_sramtile(mod, SPEC, params={"v": graphs.random(1, 4)})
    assert str(caught.value) == "params has 'v', which is no parameter: parameters are b, w, x"


def test_names_that_are_taken() -> None:
    builder = relax.BlockBuilder()
    graphs.add_function(builder, [X], lambda b, x: layer(b, b.emit(conv(x))))
    graphs.add_function(builder, [graphs.tensor("x", 2)], lambda _, x: op.nn.relu(x), name="sramtile_conv2d_0")
    graphs.add_function(
        builder, [graphs.tensor("x", 3)], lambda _, x: op.nn.relu(x), name="sramtile_conv2d_1__counters"
    )
    result = front.partition_for_sramtile(builder.get(), SPEC)
    assert [region.region.name for region in front.regions(result)] == ["sramtile_conv2d_2", "sramtile_conv2d_3"]
    assert graphs.ops_of(result, "sramtile_conv2d_0") == ["nn.relu"]


def test_outlined_weights_move_inside_only_where_all_calls_agree() -> None:
    outlined = front.SplitOversized(SPEC, outline=True)(graphs.module([X], layer))
    function = outlined["sramtile_conv2d_0"]
    builder = relax.BlockBuilder()
    helper = builder.add_func(function, "sramtile_conv2d_0")
    other = graphs.literal(9, 4, 4, 3, 3)

    def build(builder: Any, x: Any) -> Any:
        value = builder.emit(relax.Call(helper, [x, W, B]))
        return relax.Call(helper, [value, other, B])

    graphs.add_function(builder, [graphs.tensor("x", 1, 4, 16, 10)], build)
    result = front.PartitionForSramtile(SPEC)(builder.get())
    assert graphs.is_well_formed(result)
    (region,) = front.regions(result)
    assert [tensor.name for tensor in region.region.inputs] == ["data", "weight"]
    assert graphs.ops_of(result) == ["sramtile_conv2d_0"] * 2


@pytest.mark.parametrize(("limit", "is_chunked"), [(3, False), (4, True), (None, True)])
def test_bodies(limit: int | None, is_chunked: bool) -> None:
    options = SEED.replace(max_unrolled_chunks=limit)
    for run in (front.partition_for_sramtile, lambda mod, *a: front.PartitionForSramtile(*a)(mod)):
        ops = graphs.ops_of(run(graphs.module([X], layer), SPEC, options), "sramtile_conv2d_0")
        assert ("concat" in ops) == is_chunked
        assert ops.count("nn.conv2d") == (4 if is_chunked else 1)


def test_the_default_spec() -> None:
    mod = graphs.module([X], layer)
    for result in (front.partition_for_sramtile(mod), front.PartitionForSramtile()(mod)):
        assert [region.spec for region in front.regions(result)] == [AcceleratorSpec.preset("edge-256k")]


def half_conv(builder: Any, x: Any) -> Any:
    half = builder.emit(op.astype(x, "float16"), "half")
    return builder.emit(conv(half, relax.const(np.ones((4, 4, 3, 3), np.float16))), "last")


def test_an_error_on_refusal_comes_before_anything_is_rewritten() -> None:
    mod = graphs.module([X], lambda b, x: half_conv(b, b.emit(layer(b, x), "first")))
    with pytest.raises(UnsupportedOp) as caught:
        front.partition_for_sramtile(mod, SPEC, STRICT)
    assert str(caught.value) == "conv2d last: dtype float16 of data: the accelerator takes float32"
    assert graphs.ops_of(mod) == ["nn.conv2d", "add", "nn.relu", "astype", "nn.conv2d"]
    relaxed = front.partition_for_sramtile(mod, SPEC)
    assert graphs.ops_of(relaxed) == ["sramtile_conv2d_0", "astype", "nn.conv2d"]
    reasons = {o.name: o.reason for o in front.host_ops(relaxed)}
    assert reasons["half"] == "no unit of the accelerator computes it"
    assert reasons["last"] == str(caught.value).removeprefix("conv2d last: ")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda _, x: conv(x), "conv2d gv (1x4x16x10): not even 1 row, 1 column and 4 channels of output fit small: "),
        (lambda _, x: op.nn.conv2d_transpose(x, W), "conv2d_transpose gv (1x4x16x10): not even 1 row, "),
        (lambda _, x: op.image.resize2d(x, (32, 20)), "resize2d gv (1x4x16x10): not even 1 row, 1 column and "),
    ],
)
def test_what_does_not_fit_in_any_cut(build: Any, message: str) -> None:
    mod = graphs.module([X], lambda b, x: b.emit(build(b, x), "gv"))
    tiny = SPEC.replace(sram_bytes=64)
    for run in (front.partition_for_sramtile, lambda mod, *a: front.PartitionForSramtile(*a)(mod)):
        with pytest.raises(DoesNotFit) as caught:
            run(mod, tiny, STRICT)
        assert str(caught.value).startswith(message)
        assert front.regions(run(mod, tiny)) == ()
        assert len(front.regions(run(mod, SPEC, STRICT))) == 1


def test_passes_of_tvm_between_partitioning_and_compiling() -> None:
    mod = graphs.module([X], layer)
    result = front.partition_for_sramtile(mod, SPEC)
    expected = graphs.run_plain(mod, INPUT)
    passes = (
        relax.transform.FoldConstant(),
        relax.transform.LegalizeOps(),
        relax.transform.CanonicalizeBindings(),
        relax.transform.DeadCodeElimination(),
        relax.transform.InlinePrivateFunctions(),
    )
    for transform in passes:
        run = front.run_accelerator(transform(result), {"x": INPUT})
        graphs.assert_close(run.outputs, expected, 1e-5)
        assert list(run.regions) == ["sramtile_conv2d_0"]


def test_without_the_codegen_attribute_regions_run_on_tvm() -> None:
    mod = graphs.module([X], layer)
    result = front.partition_for_sramtile(mod, SPEC)
    plain = tvm.IRModule({var: f.without_attr("Codegen") for var, f in result.functions_items()})
    graphs.assert_close(graphs.run_plain(plain, INPUT), graphs.run_plain(mod, INPUT), 1e-5)


def test_a_region_shared_by_nothing_of_constants_only() -> None:
    mod = graphs.module([X], lambda b, x: op.add(b.emit(conv(graphs.literal(5, 1, 4, 16, 10))), x))
    result = front.PartitionForSramtile(SPEC)(mod)
    assert front.regions(result)[0].region.inputs == ()
    run = front.run_accelerator(result, {"x": INPUT})
    graphs.assert_close(run.outputs, graphs.run_plain(mod, INPUT), 1e-5)


def test_order_of_regions_and_host_ops_is_that_of_execution() -> None:
    builder = relax.BlockBuilder()
    inner = graphs.module([graphs.tensor("x", 1, 4, 16, 10)], lambda b, x: op.cos(b.emit(conv(x), "inside")))["main"]
    var = builder.add_func(inner.with_attr("global_symbol", "a_helper"), "a_helper")

    def build(builder: Any, x: Any) -> Any:
        value = builder.emit(op.sin(builder.emit(conv(x), "before")))
        value = builder.emit(relax.Call(var, [value]))
        return op.floor(builder.emit(conv(value), "after"))

    graphs.add_function(builder, [X], build)
    result = front.partition_for_sramtile(builder.get(), SPEC)
    assert [region.region.steps[0].name for region in front.regions(result)] == ["before", "inside", "after"]
    assert [o.op for o in front.host_ops(result)] == ["sin", "cos", "floor"]
    run = front.run_accelerator(result, {"x": INPUT})
    graphs.assert_close(run.outputs, graphs.run_plain(builder.get(), INPUT), 1e-5)
    assert len(run.regions) == 3  # those that main calls, itself or by way of other functions


def test_constants_by_digest() -> None:
    result = front.partition_for_sramtile(graphs.module([X], layer), SPEC)
    (region,) = front.regions(result)
    values = front.constants(result)
    assert {tensor.digest for tensor in region.region.constants} <= set(values)
    np.testing.assert_array_equal(values[str(region.region.steps[0].weight.digest)], graphs.random(1, 4, 4, 3, 3))
