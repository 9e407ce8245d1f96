"""The passes: what they change, what they leave alone, what they say."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import relay_graphs as graphs
import tvm
from relay_graphs import constant, tensor
from tvm import relay

from tvm_sramtile import relay as front
from tvm_sramtile.errors import DoesNotFit, ModelError, SpecError, UnsupportedOp
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Clip, Step
from tvm_sramtile.options import Options

nn = relay.nn
SMALL = AcceleratorSpec(name="small", sram_bytes=4096, channel_align=4, mac_array=(4, 4))
TINY = SMALL.replace(name="tiny", sram_bytes=64)
STRICT = Options(on_refusal="error")
SEED = Options(strategy="seed")
REGION = "sramtile_conv2d_0"
NOT_PARTITIONED = "the module has not been partitioned"


def conv(x: Any, seed: int = 1, channels: int = 4, inputs: int = 4, **attrs: Any) -> Any:
    return nn.conv2d(x, constant(seed, channels, inputs, 3, 3), **{"padding": (1, 1), **attrs})


def image(name: str = "x", rows: int = 16) -> Any:
    return tensor(name, 1, 4, rows, 12)


def simple(rows: int = 16) -> tvm.IRModule:
    x = image(rows=rows)
    return graphs.module([x], relay.erf(nn.relu(nn.bias_add(conv(x), constant(2, 4)))))


def split(mod: tvm.IRModule, *, outline: bool = False, options: Options = SEED) -> tvm.IRModule:
    return front.SplitOversized(SMALL, options, outline)(mod)


def partition(mod: tvm.IRModule, options: Options = SEED) -> tvm.IRModule:
    return front.partition_for_sramtile(mod, SMALL, options)


def test_what_fits_is_left_as_it_is() -> None:
    mod = simple(rows=4)
    for outline in (False, True):
        assert graphs.equal(split(mod, outline=outline), mod)
    assert graphs.ops_of(partition(mod)) == [REGION, "erf"]


def test_what_overflows_becomes_chunks() -> None:
    mod = split(simple())
    ops = graphs.ops_of(mod)
    assert ops.count("nn.conv2d") == ops.count("strided_slice") == 2
    assert ops[-4:] == ["concatenate", "nn.bias_add", "nn.relu", "erf"]


def test_each_chunk_is_finished_before_they_are_put_together() -> None:
    mod = partition(simple())
    region = mod[REGION]
    chunks = region.body.args[0].fields
    assert region.body.op.name == "concatenate"
    assert len(chunks) == 2
    assert {chunk.op.name for chunk in chunks} == {"nn.relu"}
    assert {chunk.args[0].op.name for chunk in chunks} == {"nn.bias_add"}


def test_passes_in_a_sequential() -> None:
    passes = [
        relay.transform.InferType(),
        front.SplitOversized(SMALL, SEED, outline=True),
        front.PartitionForSramtile(SMALL, SEED),
        relay.transform.InferType(),
    ]
    with tvm.transform.PassContext(opt_level=0):
        mod = tvm.transform.Sequential(passes)(simple())
    assert graphs.equal(mod, partition(simple()))


def test_the_given_module_is_left_as_it_is() -> None:
    mod = simple()
    untyped = tvm.IRModule({relay.GlobalVar("main"): mod["main"]})
    for module in (mod, untyped):
        text, functions = module.astext(), dict(module.functions)
        split(module), split(module, outline=True), partition(module)
        front.PartitionForSramtile(SMALL, SEED)(module)
        assert module.astext() == text
        assert all(module[var].same_as(function) for var, function in functions.items())


def test_an_outlined_function_is_ordinary_relay_with_attributes() -> None:
    mod = split(simple(), outline=True)
    function = mod[REGION]
    assert graphs.ops_of(mod) == [REGION, "erf"]
    assert sorted(function.attrs.keys()) == [f"sramtile.{name}" for name in ("options", "plan", "region", "spec")]
    assert [param.name_hint for param in function.params] == ["data", "weight", "bias"]
    assert graphs.ops_of(mod, REGION).count("nn.conv2d") == 2
    assert graphs.equal(split(mod, outline=True), mod)
    assert graphs.equal(split(mod), mod)


def test_an_outlined_function_becomes_a_region_with_its_constants() -> None:
    mod = front.PartitionForSramtile(SMALL, SEED)(split(simple(), outline=True))
    function = mod[REGION]
    assert str(function.attrs["Compiler"]) == "sramtile"
    assert str(function.attrs["global_symbol"]) == REGION
    assert [param.name_hint for param in function.params] == ["data"]
    (attributes,) = front.regions(mod)
    assert [t.name for t in attributes.region.constants] == ["weight", "bias"]
    assert set(front.constants(mod)) >= {t.digest for t in attributes.region.constants}
    assert graphs.equal(mod, partition(simple()))


def test_parameters_stay_parameters_until_they_are_bound() -> None:
    x, w, b = image(), tensor("w", 4, 4, 3, 3), tensor("b", 4)
    mod = graphs.module([x, w, b], nn.bias_add(nn.conv2d(x, w, padding=(1, 1)), b))
    assert [param.name_hint for param in partition(mod)[REGION].params] == ["data", "weight", "bias"]
    params = {"w": tvm.nd.array(graphs.random(1, 4, 4, 3, 3)), "b": graphs.random(2, 4)}
    bound = front.partition_for_sramtile(mod, SMALL, params=params)
    assert [param.name_hint for param in bound[REGION].params] == ["data"]
    assert [param.name_hint for param in bound["main"].params] == ["x"]
    with pytest.raises(ModelError, match="params has 'v', which is no parameter of main: these are x, w, b"):
        front.partition_for_sramtile(mod, SMALL, params={"v": params["w"]})


def test_calls_with_different_constants_keep_them_as_arguments() -> None:
    mod = split(simple(), outline=True)
    main, x = mod["main"], image("again")
    call = main.body.args[0]
    other = relay.Call(call.op, [x, constant(7, 4, 4, 3, 3), call.args[2]])
    both = relay.Function([*main.params, x], relay.Tuple([main.body, other]))
    twice = tvm.IRModule({call.op: mod[REGION], relay.GlobalVar("main"): both})
    result = front.PartitionForSramtile(SMALL, SEED)(twice)
    assert [param.name_hint for param in result[REGION].params] == ["data", "weight"]
    assert graphs.ops_of(result) == [REGION, "erf", REGION]


def test_names_are_new_in_the_module() -> None:
    x = image()
    y = image("y")
    other = relay.Function([y], nn.relu(y))
    functions = {REGION: other, "sramtile_conv2d_1__reset": other.with_attr("global_symbol", "sramtile_conv2d_2")}
    mod = partition(graphs.module([x], conv(conv(x, 1), 2), **functions))
    assert graphs.ops_of(mod) == ["sramtile_conv2d_3", "sramtile_conv2d_4"]


def test_functions_of_other_back_ends_and_of_tir_are_left_alone() -> None:
    y = image("y")
    foreign = relay.Function([y], nn.batch_flatten(conv(y)), relay.TensorType((1, 768)))
    foreign = foreign.with_attr("Compiler", "other").with_attr("global_symbol", "theirs")
    x = image()
    var = relay.GlobalVar("theirs")
    mod = tvm.IRModule({var: foreign, relay.GlobalVar("main"): relay.Function([x], relay.Tuple([var(x), conv(x)]))})
    mod = relay.transform.InferType()(mod)
    before = mod["theirs"]
    for result in (split(mod), split(mod, outline=True), partition(mod)):
        assert tvm.ir.structural_equal(result["theirs"], before)
    assert graphs.ops_of(partition(mod)) == ["theirs", REGION]
    assert front.host_ops(partition(mod)) == ()


def test_nested_functions_of_other_back_ends_are_left_alone() -> None:
    x, y = image(), image("y")
    nested = relay.Function([y], nn.relu(conv(y))).with_attr("Composite", "other.conv2d_relu")
    mod = graphs.module([x], conv(relay.Call(nested, [x]), 2))
    result = partition(mod)
    assert list(graphs.functions_with(result, "Compiler")) == [REGION]
    (inner,) = [node for node in _nodes(result["main"].body) if isinstance(node, relay.Function)]
    assert tvm.ir.structural_equal(inner, _first_function(mod["main"].body))


def _nodes(body: Any) -> list[Any]:
    found: list[Any] = []
    relay.analysis.post_order_visit(body, found.append)
    return found


def _first_function(body: Any) -> Any:
    return next(node for node in _nodes(body) if isinstance(node, relay.Function))


def test_several_functions_and_their_order() -> None:
    x, y = image(), image("y")
    callee = relay.GlobalVar("callee")
    mod = tvm.IRModule(
        {
            callee: relay.Function([y], nn.relu(conv(y, 5)), relay.TensorType((1, 4, 16, 12))),
            relay.GlobalVar("main"): relay.Function([x], conv(callee(conv(x, 1)), 2)),
        }
    )
    mod = partition(relay.transform.InferType()(mod))
    assert graphs.ops_of(mod) == [REGION, "callee", "sramtile_conv2d_1"]
    assert graphs.ops_of(mod, "callee") == ["sramtile_conv2d_2"]
    order = [attributes.region.name for attributes in front.regions(mod)]
    assert order == [REGION, "sramtile_conv2d_2", "sramtile_conv2d_1"]


def test_tuples_and_projections() -> None:
    x = image()
    both = relay.split(x, 2, axis=1).astuple()
    left, right = (relay.TupleGetItem(both, index) for index in range(2))
    first = nn.conv2d(left, constant(1, 4, 2, 3, 3), padding=(1, 1))
    second = nn.conv2d(right, constant(2, 4, 2, 3, 3), padding=(1, 1))
    result = relay.Tuple([relay.Tuple([nn.relu(first), x]), second])
    mod = partition(graphs.module([x], result))
    body = mod["main"].body
    assert body.fields[0].fields[0].op.name_hint == REGION
    assert body.fields[1].op.name_hint == "sramtile_conv2d_1"
    assert front.regions(mod)[0].region.steps[0].origin == ("nn.conv2d", "nn.relu")


def test_let_bindings() -> None:
    mod = relay.transform.InferType()(relay.transform.ToANormalForm()(simple()))
    assert isinstance(mod["main"].body, relay.Let)
    result = partition(mod)
    assert graphs.ops_of(result) == [REGION, "erf"]
    (attributes,) = front.regions(result)
    assert attributes.region.steps[0].origin == ("nn.conv2d", "nn.bias_add", "nn.relu")
    assert [t.name for t in attributes.region.inputs] == ["data"]
    assert graphs.ops_of(split(mod)).count("nn.conv2d") == 2


def test_a_let_variable_with_two_uses_is_no_epilogue() -> None:
    x, y = image(), relay.var("y")
    mod = graphs.module([x], relay.Let(y, conv(x), relay.Tuple([nn.relu(y), relay.tanh(y)])))
    result = partition(mod)
    assert graphs.ops_of(result) == [REGION, "sramtile_relu_0", "sramtile_tanh_0"]
    assert [r.region.steps[0].origin for r in front.regions(result)] == [("nn.conv2d",), ("nn.relu",), ("tanh",)]


def test_closures_and_branches() -> None:
    x, y, f, flag = image(), image("y"), relay.var("f"), relay.var("flag", relay.scalar_type("bool"))
    closure = relay.Function([y], nn.relu(conv(y, 1)))
    branch = relay.If(flag, relay.Call(f, [x]), conv(x, 2))
    result = partition(graphs.module([x, flag], relay.Let(f, closure, branch)))
    assert len(front.regions(result)) == 2
    assert "nn.conv2d" not in [op.op for op in front.host_ops(result)]


def test_functions_with_references_are_refused() -> None:
    x, cell = image(), relay.var("cell")
    body = relay.Let(cell, relay.RefCreate(x), conv(relay.RefRead(cell)))
    mod = graphs.module([x], body)
    result = partition(mod)
    assert front.regions(result) == ()
    (op,) = [op for op in front.host_ops(result) if op.op == "nn.conv2d"]
    assert op.reason == "its function uses references, whose order of execution must not change"


@pytest.mark.parametrize(
    ("build", "origin"),
    [
        (lambda x: relay.add(conv(x), constant(2, 4, 1, 1)), ("nn.conv2d", "add")),
        (lambda x: relay.add(conv(x), constant(2, 1, 4, 1, 1)), ("nn.conv2d", "add")),
        (lambda x: relay.add(constant(2, 4, 1, 1), conv(x)), ("nn.conv2d", "add")),
        (lambda x: nn.bias_add(conv(x), constant(2, 4), axis=-3), ("nn.conv2d", "nn.bias_add")),
        (lambda x: nn.bias_add(conv(x), constant(2, 12), axis=3), ("nn.conv2d",)),
        (lambda x: relay.add(conv(x), constant(2, 12)), ("nn.conv2d",)),
        (lambda x: relay.add(conv(x), relay.const(1.0)), ("nn.conv2d", "add")),
        (lambda x: relay.add(conv(x, channels=1), relay.const(1.0)), ("nn.conv2d", "add")),
        (lambda x: relay.add(conv(x), relay.tanh(constant(2, 4, 1, 1))), ("nn.conv2d", "add")),  # folded before
        (lambda x: relay.add(nn.relu(conv(x)), constant(2, 4, 1, 1)), ("nn.conv2d", "nn.relu", "add")),
        (lambda x: relay.tanh(nn.relu(conv(x))), ("nn.conv2d", "nn.relu", "tanh")),
        (lambda x: relay.erf(nn.relu(conv(x))), ("nn.conv2d", "nn.relu")),
        (lambda x: relay.clip(nn.relu(conv(x)), -1.0, 2.0), ("nn.conv2d", "nn.relu", "clip")),
        (lambda x: relay.clip(conv(x), 2.0, 1.0), ("nn.conv2d",)),
        (lambda x: relay.minimum(conv(x), relay.const(1.0)), ("nn.conv2d", "minimum")),
        (lambda x: relay.maximum(conv(x), constant(2, 4, 1, 1)), ("nn.conv2d", "maximum")),
        (lambda x: relay.maximum(conv(x), constant(2, 16, 1)), ("nn.conv2d",)),
        (lambda x: relay.add(conv(x), x), ("nn.conv2d",)),
        (lambda x: relay.add(*[conv(x)] * 2), ("nn.conv2d",)),
    ],
)
def test_epilogues(build: Callable[[Any], Any], origin: tuple[str, ...]) -> None:
    x = image()
    mod = graphs.module([x], build(x))
    result = partition(mod)
    (step,) = convolutions(result)
    assert step.origin == origin
    feed = {"x": graphs.random(0, 1, 4, 16, 12)}
    graphs.assert_close(front.run_accelerator(result, feed).outputs, front.run_host(mod, feed), 1e-5)


def convolutions(mod: tvm.IRModule) -> list[Step]:
    steps = [step for attributes in front.regions(mod) for step in attributes.region.steps]
    return [step for step in steps if step.origin[0] == "nn.conv2d"]


def test_a_bias_comes_before_the_limits_and_once() -> None:
    x = image()
    twice = relay.add(nn.bias_add(conv(x), constant(2, 4)), constant(3, 4, 1, 1))
    late = relay.add(nn.relu(conv(x)), constant(2, 4, 1, 1))
    for body, has_bias, clip in ((twice, True, None), (late, False, Clip(0.0, None))):
        # Without the preparation, which makes one addition of two.
        (step,) = convolutions(front.PartitionForSramtile(SMALL, SEED)(graphs.module([x], body)))
        assert (step.bias is not None, step.clip) == (has_bias, clip)
        assert [(a.function, a.partner) for a in step.activations] == [("add", "vector")]


def dynamic() -> Any:
    x = tensor("x", 1, 4, relay.Any(), 12)
    return [x], conv(x)


def of_dtype(dtype: str) -> Any:
    x, w = tensor("x", 1, 4, 16, 12, dtype=dtype), tensor("w", 4, 4, 3, 3, dtype=dtype)
    return [x, w], nn.conv2d(x, w)


def with_out_dtype() -> Any:
    x, w = tensor("x", 1, 4, 16, 12, dtype="int8"), tensor("w", 4, 4, 3, 3, dtype="int8")
    return [x, w], nn.conv2d(x, w, out_dtype="int32")


def nhwc() -> Any:
    x = tensor("x", 1, 16, 12, 4)
    return [x], nn.conv2d(x, constant(1, 3, 3, 4, 4), data_layout="NHWC", kernel_layout="HWIO", channels=4)


def kernel_layout() -> Any:
    x = image()
    return [x], nn.conv2d(x, constant(1, 3, 3, 4, 4), kernel_layout="HWIO", channels=4, kernel_size=(3, 3))


def oihw() -> Any:
    """What ``kernel_layout`` computes, as TVM's strategy for x86 takes it."""
    x = image()
    return [x], nn.conv2d(x, relay.const(graphs.random(1, 3, 3, 4, 4).transpose(3, 2, 0, 1)))


def kernel() -> Any:
    x = image()
    return [x], nn.conv2d(x, constant(1, 4, 4, 5, 2))


def transposed(**attrs: Any) -> Any:
    x = image()
    return [x], nn.conv2d_transpose(x, constant(1, 4, 4, 2, 2), strides=(2, 2), **attrs)


def resized(**attrs: Any) -> Any:
    x = image()
    return [x], relay.image.resize2d(x, (32, 24), **attrs)


def upsampled(dtype: str = "float32") -> Any:
    x = tensor("x", 1, 4, 16, 12, dtype=dtype)
    return [x], nn.upsampling(x, 2, 2)


def wide() -> Any:
    x = tensor("x", 1, 4, 4, 200)
    return [x], conv(x)


@pytest.mark.parametrize("build", [nhwc, kernel_layout, kernel, transposed, resized, upsampled, wide])
def test_other_layouts_kernels_and_operators_are_taken(build: Callable[[], Any]) -> None:
    mod = graphs.module(*build())
    (name,) = graphs.ops_of(mod)
    inline, result = split(mod, options=STRICT), partition(mod, STRICT)
    assert "concatenate" in graphs.ops_of(inline)
    assert graphs.equal(split(inline), inline)
    assert graphs.ops_of(result) == [f"sramtile_{name.rpartition('.')[2]}_0"]
    assert front.host_ops(result) == ()
    (attributes,) = front.regions(result)
    assert attributes.plan.chunk_count > 1
    feed = {"x": graphs.random(0, *(int(extent) for extent in mod["main"].params[0].checked_type.shape))}
    expected = front.run_host(graphs.module(*oihw()) if build is kernel_layout else mod, feed)
    if build is not kernel_layout:
        graphs.assert_close(front.run_host(inline, feed), expected, 1e-5)
    graphs.assert_close(front.run_accelerator(result, feed).outputs, expected, 1e-5)


def test_a_wide_row_is_cut_into_columns_or_channels() -> None:
    inline = front.SplitOversized(SMALL, axes=("rows",))
    with pytest.raises(DoesNotFit, match=r"conv2d conv2d_0 .*9280 B more than its 4096 B"):
        front.SplitOversized(SMALL, STRICT, axes=("rows",))(graphs.module(*wide()))
    mod = graphs.module(*wide())
    assert graphs.equal(inline(mod), mod)
    assert not graphs.equal(split(mod), mod)


def data_layout() -> Any:
    x = tensor("x", 16, 12, 4, 1)
    return [x], nn.conv2d(x, constant(1, 4, 4, 3, 3), data_layout="HWCN", channels=4, kernel_size=(3, 3))


def packed_kernel() -> Any:
    x = image()
    return [x], nn.conv2d(x, constant(1, 1, 4, 3, 3, 4), kernel_layout="OIHW4o", channels=4, kernel_size=(3, 3))


def out_layout() -> Any:
    x = image()
    return [x], conv(x, out_layout="NHWC")


def one_conv() -> Any:
    x = image()
    return [x], conv(x)


CROP = "tf_crop_and_resize"
REFUSALS = [
    (dynamic, "conv2d conv2d_0: shape of data = (1, 4, ?, 12): the accelerator takes static shapes"),
    (lambda: of_dtype("float16"), "conv2d conv2d_0: dtype float16 of data: the accelerator takes float32"),
    (with_out_dtype, "conv2d conv2d_0: out_dtype = 'int32': the accelerator takes the dtype of data, 'int8'"),
    (data_layout, "conv2d conv2d_0: data_layout = 'HWCN': the accelerator takes 'NCHW' and 'NHWC'"),
    (packed_kernel, "conv2d conv2d_0: kernel_layout = 'OIHW4o': the accelerator takes the axes O, I, H and W"),
    (out_layout, "conv2d conv2d_0: out_layout = 'NHWC': the accelerator takes that of data, 'NCHW'"),
    (
        lambda: transposed(out_layout="NHWC"),
        "conv2d_transpose conv2d_transpose_0: out_layout = 'NHWC': the accelerator takes that of data, 'NCHW'",
    ),
    (
        lambda: resized(roi=(0.0, 0.0, 1.0, 1.0), coordinate_transformation_mode=CROP),
        f"resize2d resize2d_0: coordinate_transformation_mode '{CROP}' is not supported, only 'half_pixel', "
        "'pytorch_half_pixel', 'align_corners', 'asymmetric', 'tf_half_pixel_for_nn'",
    ),
    (lambda: upsampled("float16"), "upsampling upsampling_0: dtype float16 of data: the accelerator takes float32"),
]
MISFITS = [
    (
        one_conv,
        "conv2d conv2d_0 (1x4x16x12): not even 1 row, 1 column and 4 channels of output fit tiny: weights 576 + "
        "input 144 + output 16 = 736 B in pool, 672 B more than its 64 B. What would help: sram_bytes of at least 736",
    ),
    (
        transposed,
        "conv2d_transpose conv2d_transpose_0 (1x4x16x12): not even 1 row, 1 column and 4 channels of output fit tiny: "
        "weights 64 + input 16 + output 16 = 96 B in pool, 32 B more than its 64 B. What would help: sram_bytes of at "
        "least 96",
    ),
    (
        resized,
        "resize2d resize2d_0 (1x4x16x12): not even 1 row, 1 column and 4 channels of output fit tiny: row table 16 + "
        "col table 16 + input 64 + output 16 = 112 B in pool, 48 B more than its 64 B. What would help: sram_bytes of "
        "at least 112",
    ),
]


@pytest.mark.parametrize(
    ("build", "spec", "kind", "text"),
    [(build, SMALL, UnsupportedOp, text) for build, text in REFUSALS]
    + [(build, TINY, DoesNotFit, text) for build, text in MISFITS],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_refusals(build: Callable[[], Any], spec: AcceleratorSpec, kind: type[Exception], text: str) -> None:
    mod = graphs.module(*build())
    for outline in (False, True):
        assert graphs.equal(front.SplitOversized(spec, outline=outline)(mod), mod)
    result = front.partition_for_sramtile(mod, spec)
    assert graphs.ops_of(result) == graphs.ops_of(mod)
    (op,) = front.host_ops(result)
    assert text in (op.reason, f"{op.op.rpartition('.')[2]} {op.name}: {op.reason}")
    for refuse in (
        lambda: front.partition_for_sramtile(mod, spec, STRICT),
        lambda: front.SplitOversized(spec, STRICT)(mod),
        lambda: front.SplitOversized(spec, STRICT, outline=True)(mod),
        lambda: front.PartitionForSramtile(spec, STRICT)(mod),
    ):
        with pytest.raises(kind) as caught:
            refuse()
        assert str(caught.value) == text


def test_an_error_leaves_the_module_as_it_is() -> None:
    x = image()
    half = relay.const(graphs.random(2, 4, 4, 3, 3).astype("float16"))
    mod = graphs.module([x], nn.conv2d(relay.cast(conv(x), "float16"), half))
    text = mod.astext()
    with pytest.raises(UnsupportedOp, match="conv2d conv2d_1: dtype float16 of data: the accelerator takes float32"):
        partition(mod, STRICT)
    assert mod.astext() == text
    assert graphs.ops_of(partition(mod)) == [REGION, "cast", "nn.conv2d"]


def test_macs_of_what_stays_on_the_host() -> None:
    x, a, b = tensor("x", 2, 4, 8, 8), tensor("a", 3, 5), tensor("b", 2, 3, 5)
    results = [
        nn.conv2d(x, constant(1, 6, 2, 5, 5), groups=2, padding=(2, 2)),
        nn.conv2d_transpose(x, constant(2, 4, 3, 2, 2), strides=(2, 2)),
        nn.dense(a, constant(3, 7, 5)),
        nn.batch_matmul(b, constant(4, 2, 7, 5)),
        relay.tanh(a),
    ]
    mod = graphs.module([x, a, b], relay.Tuple(results))
    macs = {op.op: op.macs for op in front.host_ops(mod)}
    assert macs == {
        "nn.conv2d": 2 * 8 * 8 * 6 * 2 * 25,
        "nn.conv2d_transpose": 2 * 8 * 8 * 4 * 3 * 4,
        "nn.dense": 3 * 7 * 5,
        "nn.batch_matmul": 2 * 3 * 7 * 5,
        "tanh": 0,
    }
    (kept,) = front.host_ops(partition(mod))
    assert (kept.op, kept.macs) == ("nn.batch_matmul", macs["nn.batch_matmul"])


def test_host_ops_of_a_module_that_was_not_partitioned() -> None:
    reasons = {op.op: op.reason for op in front.host_ops(simple())}
    assert reasons["nn.conv2d"] == NOT_PARTITIONED
    assert reasons["nn.relu"] == NOT_PARTITIONED
    assert reasons["erf"] == "no unit of the accelerator computes it"


def test_specs_by_name_and_file(tmp_path: Any) -> None:
    file = tmp_path / "mine.json"
    file.write_text(SMALL.to_json(), encoding="utf-8")
    for spec in (SMALL, file, str(file)):
        assert front.regions(front.partition_for_sramtile(simple(), spec))[0].spec == SMALL
    assert front.regions(front.partition_for_sramtile(simple()))[0].spec == AcceleratorSpec.preset("edge-256k")
    with pytest.raises(SpecError, match="spec preset 'nano' is unknown"):
        front.SplitOversized("nano")


@pytest.mark.parametrize(("between", "taken"), [(relay.erf, False), (relay.tanh, True)])
def test_a_deep_network(between: Callable[[Any], Any], taken: bool) -> None:
    x = image(rows=4)
    value = x
    weight = constant(1, 4, 4, 1, 1)
    for index in range(1200):
        value = nn.conv2d(value, weight) if index % 300 == 0 else between(value)
    start = time.perf_counter()
    mod = partition(graphs.module([x], value))
    kept = 0 if taken else 1196
    assert len(graphs.ops_of(mod)) == 4 + kept
    assert len(front.regions(mod)) == 4
    assert [len(r.region.steps[0].origin) for r in front.regions(mod)] == [300 if taken else 1] * 4
    assert len(front.host_ops(mod)) == kept
    assert time.perf_counter() - start < 60
