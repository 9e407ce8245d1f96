from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import relax_graphs as graphs
import tvm
from tvm import relax
from tvm.relax import op
from tvm.script import relax as R  # noqa: N812 (what everyone calls it)

from tvm_sramtile import relax as front
from tvm_sramtile.attributes import RegionAttributes
from tvm_sramtile.errors import DoesNotFit, SpecError, UnsupportedOp
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.options import Options

SPEC = AcceleratorSpec(name="small", sram_bytes=2820, channel_align=4)
ROOMY = AcceleratorSpec(name="roomy", sram_bytes=1 << 20)
X = graphs.tensor("x", 1, 4, 16, 10)
W, B = graphs.literal(1, 4, 4, 3, 3), graphs.literal(3, 1, 4, 1, 1)
CHUNKS = ["strided_slice", "nn.conv2d"] * 3 + ["concat"]
INPUT = graphs.random(0, 1, 4, 16, 10)


def conv(x: Any, w: Any = W, padding: Any = 1, **attrs: Any) -> Any:
    return op.nn.conv2d(x, w, padding=padding, **attrs)


def layer(builder: Any, x: Any) -> Any:
    value = builder.emit(op.add(builder.emit(conv(x)), B))
    return op.nn.relu(value)


def split(mod: tvm.IRModule, spec: AcceleratorSpec = SPEC, **changes: Any) -> tvm.IRModule:
    text = mod.script(show_meta=False)
    result = front.SplitOversized(spec, **changes)(mod)
    assert mod.script(show_meta=False) == text, "the module that was given has changed"
    assert graphs.is_well_formed(result)
    return result


def assert_same_values(left: tvm.IRModule, right: tvm.IRModule, *inputs: Any) -> None:
    graphs.assert_close(graphs.run_plain(right, *inputs), graphs.run_plain(left, *inputs), 1e-5)


def values_in(mod: tvm.IRModule, operator: str) -> list[Any]:
    block = mod["main"].body.blocks[0]
    return [b.value for b in block.bindings if getattr(getattr(b.value, "op", None), "name", "") == operator]


def test_an_op_that_overflows_becomes_chunks_and_its_epilogue_stays() -> None:
    mod = graphs.module([X], layer)
    result = split(mod)
    assert graphs.ops_of(result) == [*CHUNKS, "add", "nn.relu"]
    assert_same_values(mod, result, INPUT)
    assert graphs.equal(split(result), result)


def test_pads_and_slices_of_the_chunks() -> None:
    result = split(graphs.module([X], lambda _, x: conv(x, padding=(2, 1, 0, 1))))
    slices = values_in(result, "relax.strided_slice")
    assert [tuple(int(bound.fields[0]) for bound in value.args[2:4]) for value in slices] == [(0, 6), (4, 12), (10, 16)]
    pads = [tuple(value.attrs.padding) for value in values_in(result, "relax.nn.conv2d")]
    assert pads == [(2, 1, 0, 1), (0, 1, 0, 1), (0, 1, 0, 1)]


def test_chunks_wholly_in_padding_are_not_sliced() -> None:
    mod = graphs.module([graphs.tensor("x", 1, 4, 4, 10)], lambda _, x: conv(x, padding=(5, 1, 5, 1)))
    result = split(mod, SPEC.replace(sram_bytes=1300))
    assert graphs.ops_of(result).count("zeros") == 6
    assert all(int(v.args[3].fields[0]) > int(v.args[2].fields[0]) for v in values_in(result, "relax.strided_slice"))
    assert_same_values(mod, result, graphs.random(0, 1, 4, 4, 10))


def test_columns_that_nothing_reads_are_not_sliced_in() -> None:
    mod = graphs.module([X], lambda _, x: conv(x, graphs.literal(1, 4, 4, 1, 1), padding=0, strides=(1, 4)))
    result = split(mod, SPEC.replace(sram_bytes=1500))
    first = values_in(result, "relax.strided_slice")[0]
    assert [int(axis) for axis in first.args[1].fields] == [2, 3]
    assert [int(bound) for bound in first.args[3].fields][1] == 9
    assert_same_values(mod, result, INPUT)


def test_ops_that_fit_are_left_alone() -> None:
    mod = graphs.module([X], layer)
    assert split(mod, ROOMY).same_as(mod)
    assert split(mod, ROOMY, outline=True).same_as(mod)


@pytest.mark.parametrize(("sram_bytes", "convolutions"), [(2625, 1), (2624, 1), (2623, 2)])
def test_the_last_byte_decides(sram_bytes: int, convolutions: int) -> None:
    mod = graphs.module([graphs.tensor("x", 1, 4, 8, 8)], lambda _, x: conv(x))
    result = split(mod, SPEC.replace(sram_bytes=sram_bytes))
    assert graphs.ops_of(result).count("nn.conv2d") == convolutions
    assert graphs.ops_of(result).count("concat") == (convolutions > 1)


def test_in_a_sequential_with_tvms_passes() -> None:
    mod = graphs.module([X], layer)
    passes = [
        relax.transform.CanonicalizeBindings(),
        front.SplitOversized(SPEC),
        relax.transform.LegalizeOps(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
    ]
    assert_same_values(mod, tvm.transform.Sequential(passes)(mod), INPUT)
    assert front.SplitOversized(SPEC).info.name == "SplitOversized"


def test_bindings_outside_of_dataflow_blocks() -> None:
    mod = graphs.module([X], lambda b, x: layer(b, b.emit(conv(x))), dataflow=False)
    result = split(mod)
    assert graphs.ops_of(result) == [*CHUNKS, *CHUNKS, "add", "nn.relu"]
    assert_same_values(mod, result, INPUT)
    outlined = split(mod, outline=True)
    assert graphs.ops_of(outlined) == ["sramtile_conv2d_0", "sramtile_conv2d_1"]
    assert_same_values(mod, outlined, INPUT)


def test_every_function_of_a_module() -> None:
    builder = relax.BlockBuilder()
    graphs.add_function(builder, [X], layer, name="first")
    graphs.add_function(builder, [graphs.tensor("x", 1, 4, 16, 10)], lambda _, x: conv(x), name="second")
    graphs.add_function(builder, [graphs.tensor("x", 1, 4, 2, 2)], lambda _, x: conv(x), name="third")
    mod = builder.get()
    result = split(mod)
    assert graphs.ops_of(result, "first") == [*CHUNKS, "add", "nn.relu"]
    assert graphs.ops_of(result, "second") == CHUNKS
    assert result["third"].same_as(mod["third"])


@R.function
def branches(
    flag: R.Tensor((), "bool"), x: R.Tensor((1, 4, 16, 10), "float32"), w: R.Tensor((4, 4, 3, 3), "float32")
) -> R.Tensor((1, 4, 16, 10), "float32"):
    R.func_attr({"global_symbol": "main"})
    if flag:
        y = R.nn.conv2d(x, w, padding=1)
        r = R.nn.relu(y)
    else:
        r = R.nn.relu(x)
    return r


def test_branches_of_an_if() -> None:
    mod = tvm.IRModule({"main": branches})
    for outline, ops in ((False, [*CHUNKS, "nn.relu"]), (True, ["sramtile_conv2d_0"])):
        result = split(mod, outline=outline)
        branch = result["main"].body.blocks[0].bindings[0].value.true_branch
        calls = [b.value.op for block in branch.blocks for b in block.bindings if isinstance(b.value, relax.Call)]
        assert [getattr(call, "name", "").removeprefix("relax.") or call.name_hint for call in calls] == ops
    inputs = {"flag": np.array(True), "x": INPUT, "w": graphs.random(1, 4, 4, 3, 3)}
    run = front.run_accelerator(front.partition_for_sramtile(mod, SPEC), inputs)
    graphs.assert_close(run.outputs, front.run_host(mod, inputs), 1e-5)


@pytest.mark.parametrize("marks", [{"Codegen": "other"}, {"Composite": "other.conv2d"}, {"Primitive": True}])
def test_functions_of_others_are_left_alone(marks: dict[str, Any]) -> None:
    mod = graphs.module([X], lambda _, x: conv(x))
    foreign = tvm.IRModule({"main": mod["main"].with_attrs(marks)})
    for outline in (False, True):
        assert split(foreign, outline=outline).same_as(foreign)
    assert graphs.equal(front.PartitionForSramtile(SPEC)(foreign)["main"], foreign["main"])


def test_outlined_functions_take_the_whole_weight_and_carry_the_plan() -> None:
    mod = graphs.module([X], layer)
    result = split(mod, outline=True, options=Options(strategy="seed"))
    assert graphs.ops_of(result) == ["sramtile_conv2d_0"]
    outlined = result["sramtile_conv2d_0"]
    assert [tuple(int(e) for e in param.ty.shape.values) for param in outlined.params] == [
        (1, 4, 16, 10),
        (4, 4, 3, 3),
        (1, 4, 1, 1),
    ]
    assert "Codegen" not in outlined.attrs
    attributes = RegionAttributes.from_attrs(dict(outlined.attrs), "sramtile_conv2d_0")
    assert attributes.plan.chunk_count == 4  # with the bias, three chunks are too large
    assert [tensor.name for tensor in attributes.region.inputs] == ["data", "weight", "bias"]
    # Each operand of the concatenation is finished: bias and limit are inside the chunks.
    ops = graphs.ops_of(result, "sramtile_conv2d_0")
    assert ops[-1] == "concat"
    assert [ops.count(name) for name in ("nn.conv2d", "add", "nn.relu")] == [4, 4, 4]
    assert_same_values(mod, result, INPUT)
    assert split(result, outline=True).same_as(result)
    assert split(result).same_as(result)


def test_outlined_functions_survive_tvms_clean_up() -> None:
    result = split(graphs.module([X], layer), outline=True)
    passes = [relax.transform.InlinePrivateFunctions(), relax.transform.DeadCodeElimination()]
    assert "sramtile_conv2d_0" in {var.name_hint for var in tvm.transform.Sequential(passes)(result).get_global_vars()}


def test_many_chunks_are_not_unrolled_in_outlined_functions() -> None:
    result = split(graphs.module([X], layer), outline=True, options=Options(max_unrolled_chunks=3))
    assert graphs.ops_of(result, "sramtile_conv2d_0") == ["nn.conv2d", "add", "nn.relu"]


def test_a_shared_weight_is_one_literal() -> None:
    mod = graphs.module([X], lambda b, x: conv(b.emit(conv(x))))
    result = split(mod)
    assert len({hash(value.args[1]) for value in values_in(result, "relax.nn.conv2d")}) == 1
    assert_same_values(mod, result, INPUT)


def test_a_result_with_several_uses_and_as_output() -> None:
    def build(builder: Any, x: Any) -> Any:
        y = builder.emit(conv(x))
        return relax.Tuple([y, relax.Tuple([builder.emit(op.nn.relu(y)), y])])

    mod = graphs.module([X], build)
    for result in (split(mod), split(mod, outline=True)):
        assert graphs.ops_of(result)[-1] == "nn.relu"
        assert_same_values(mod, result, INPUT)


def test_what_cannot_be_split_stays() -> None:
    mod, tiny = graphs.module([X], layer), SPEC.replace(sram_bytes=64)
    assert split(mod, tiny).same_as(mod)
    with pytest.raises(DoesNotFit) as caught:
        front.SplitOversized(tiny, Options(on_refusal="error"))(mod)
    assert str(caught.value) == (
        "conv2d lv (1x4x16x10): not even 1 row, 1 column and 4 channels of output fit small: "
        "weights 576 + input 144 + output 16 = 736 B in pool, 672 B more than its 64 B. "
        "What would help: sram_bytes of at least 736"
    )
    half = relax.Var("x", R.Tensor((1, 4, 16, 10), "float16"))
    mod = graphs.module([half], lambda _, x: conv(x, relax.const(np.ones((4, 4, 3, 3), np.float16))))
    assert split(mod).same_as(mod)
    with pytest.raises(UnsupportedOp, match=r"^conv2d gv: dtype float16 of data: the accelerator takes float32$"):
        front.SplitOversized(SPEC, Options(on_refusal="error"))(mod)


def test_the_spec_may_be_a_name_or_a_file(tmp_path: Any) -> None:
    path = tmp_path / "small.json"
    path.write_text(SPEC.to_json())
    mod = graphs.module([X], layer)
    assert graphs.equal(front.SplitOversized(str(path))(mod), split(mod))
    assert graphs.equal(front.SplitOversized(path)(mod), split(mod))
    assert front.SplitOversized("tiny-64k")(mod).same_as(mod)
    with pytest.raises(SpecError, match="spec preset 'tiny-64' is unknown"):
        front.SplitOversized("tiny-64")
