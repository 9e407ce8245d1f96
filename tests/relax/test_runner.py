from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import relax_graphs as graphs
from onnx import TensorProto, helper, numpy_helper
from tvm import relax
from tvm.relax import op

from tvm_sramtile import relax as front
from tvm_sramtile.errors import ModelError
from tvm_sramtile.frontend import Frontend
from tvm_sramtile.hw import AcceleratorSpec

SPEC = AcceleratorSpec(name="small", sram_bytes=5000, channel_align=4)


def onnx_network(bias: bool = True) -> Any:
    """conv, ReLU6 as Clip; conv, batch norm, relu; a head, half of it on the host. Its input's name has a dot."""
    values = {
        "w0": graphs.random(1, 4, 3, 3, 3),
        "b0": graphs.random(2, 4),
        "w1": graphs.random(3, 8, 4, 1, 1),
        "scale": graphs.random(4, 8),
        "shift": graphs.random(5, 8),
        "mean": graphs.random(6, 8),
        "var": np.abs(graphs.random(7, 8)) + np.float32(0.1),
        "low": np.float32(0),
        "high": np.float32(6),
    }
    nodes = [
        helper.make_node("Conv", ["in.1", "w0", *(["b0"] if bias else [])], ["c0"], pads=[1, 1, 1, 1]),
        helper.make_node("Clip", ["c0", "low", "high"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1"], ["c1"]),
        helper.make_node("BatchNormalization", ["c1", "scale", "shift", "mean", "var"], ["n1"]),
        helper.make_node("Relu", ["n1"], ["r1"]),
        helper.make_node("GlobalAveragePool", ["r1"], ["p1"]),
        helper.make_node("Cos", ["p1"], ["out/pool"]),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("in.1", TensorProto.FLOAT, [1, 3, 16, 10])],
        [
            helper.make_tensor_value_info("r0", TensorProto.FLOAT, [1, 4, 16, 10]),
            helper.make_tensor_value_info("out/pool", TensorProto.FLOAT, [1, 8, 1, 1]),
        ],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    return model


def test_the_module_is_a_front_end() -> None:
    wanted = [name for name in vars(Frontend) if not name.startswith("_")]
    assert len(wanted) >= 9
    assert all(callable(getattr(front, name)) for name in wanted)


@pytest.mark.parametrize("bias", [True, False])
def test_an_onnx_network_from_end_to_end(bias: bool) -> None:
    mod = front.import_onnx(onnx_network(bias), {"in.1": (1, 3, 16, 10)})
    inputs = {"in.1": graphs.random(0, 1, 3, 16, 10)}
    partitioned = front.partition_for_sramtile(mod, SPEC)
    regions = front.regions(partitioned)
    assert [region.region.steps[0].op.kind for region in regions] == ["conv2d", "conv2d", "pool2d"]
    assert [region.region.steps[0].clip is not None for region in regions] == [True, True, False]
    assert [region.region.steps[0].bias is not None for region in regions] == [bias, True, False]
    assert [o.op for o in front.host_ops(partitioned)] == ["cos"]
    run = front.run_accelerator(partitioned, inputs)
    graphs.assert_close(run.outputs, front.run_host(mod, inputs), 1e-4)

    assert list(run.regions) == [region.region.name for region in regions]
    first, second, _ = run.regions.values()
    np.testing.assert_array_equal(first.inputs[0], inputs["in.1"])
    np.testing.assert_array_equal(first.outputs[0], run.outputs[0])
    np.testing.assert_array_equal(second.inputs[0], first.outputs[0])
    assert (first.measured.calls, first.measured.images) == (1, 1)

    feeds = {name: region.inputs for name, region in run.regions.items()}
    for chunked in (False, True):
        results = front.run_regions(partitioned, feeds, chunked=chunked)
        assert list(results) == list(feeds)
        for name, outputs in results.items():
            graphs.assert_close(outputs, run.regions[name].outputs, 1e-4)
    only = list(feeds)[1]
    assert list(front.run_regions(partitioned, {only: feeds[only]}, chunked=True)) == [only]
    assert front.run_regions(partitioned, {}, chunked=True) == {}
    with pytest.raises(ModelError, match=r"^the module has no region 'r'$"):
        front.run_regions(partitioned, {"r": ()}, chunked=True)


def test_counters_of_a_second_run_start_at_nought() -> None:
    x, weight = graphs.tensor("x", 2, 3, 16, 10), graphs.literal(1, 4, 3, 3, 3)
    partitioned = front.partition_for_sramtile(graphs.module([x], lambda _, x: op.nn.conv2d(x, weight)), SPEC)
    inputs = {"x": graphs.random(0, 2, 3, 16, 10)}
    measured = [front.run_accelerator(partitioned, inputs).regions["sramtile_conv2d_0"].measured for _ in range(2)]
    assert measured[0] == measured[1]
    assert (measured[0].calls, measured[0].images) == (1, 2)


def test_a_function_called_twice_counts_each_call_once() -> None:
    x, shape = graphs.tensor("x", 1, 4, 16, 10), (1, 4, 16, 10)

    def block(builder: relax.BlockBuilder, value: Any) -> Any:
        return op.nn.relu(builder.emit(op.nn.conv2d(value, graphs.literal(1, 4, 4, 3, 3), padding=1)))

    builder = relax.BlockBuilder()
    callee = graphs.add_function(builder, [graphs.tensor("y", *shape)], block, name="callee")
    graphs.add_function(builder, [x], lambda b, x: relax.Call(callee, [b.emit(relax.Call(callee, [x]))]))
    value = graphs.random(0, *shape)
    partitioned = front.partition_for_sramtile(builder.get(), SPEC)
    run = front.run_accelerator(partitioned, {"x": value})
    once = front.run_accelerator(front.partition_for_sramtile(graphs.module([x], block), SPEC), {"x": value})
    (region,) = run.regions.values()
    assert [region.measured] == [one.measured for one in once.regions.values()]
    np.testing.assert_array_equal(region.inputs[0], value)
    graphs.assert_close(run.outputs, front.run_host(builder.get(), {"x": value}), 1e-4)


@pytest.mark.parametrize("branch", [True, False])
def test_regions_that_main_cannot_show_are_run(branch: bool) -> None:
    shape = (1, 3, 16, 10)
    x, flag = graphs.tensor("x", *shape), relax.Var("flag", relax.TensorType((), "bool"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, flag]):
        truth = relax.SeqExpr([], x)
        block = relax.BlockBuilder()
        with block.function("unused", [x]):
            made = block.emit(op.nn.conv2d(x, graphs.literal(1, 3, 3, 3, 3), padding=1))
            block.emit_func_output(made)
        other = block.get()["unused"].body
        builder.emit_func_output(builder.emit(relax.If(flag, other, truth)))
    partitioned = front.partition_for_sramtile(builder.get(), SPEC)
    assert len(front.regions(partitioned)) == 1
    inputs = {"x": graphs.random(0, *shape), "flag": np.array(branch)}
    run = front.run_accelerator(partitioned, inputs)
    assert run.regions == {}
    graphs.assert_close(run.outputs, front.run_host(builder.get(), inputs), 1e-4)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "input 'x' is missing: the network's inputs are x, y"),
        ({"x": 0, "y": 0, "z": 0}, "input 'z' is unknown: the network's inputs are x, y"),
    ],
)
def test_inputs_by_name(inputs: dict[str, Any], message: str) -> None:
    mod = graphs.module([graphs.tensor("x", 2), graphs.tensor("y", 2)], lambda _, x, y: op.add(x, y))
    for run in (front.run_host, front.run_accelerator):
        with pytest.raises(ModelError) as caught:
            run(mod, {name: np.zeros(2, np.float32) for name in inputs})
        assert str(caught.value) == message


def test_a_module_without_regions_runs_too() -> None:
    mod = graphs.module([graphs.tensor("x", 2)], lambda b, x: relax.Tuple([x, b.emit(op.nn.relu(x))]))
    inputs = {"x": np.array([-1, 1], np.float32)}
    run = front.run_accelerator(front.partition_for_sramtile(mod), inputs)
    graphs.assert_close(run.outputs, front.run_host(mod, inputs), 0)
    assert run.regions == {}
