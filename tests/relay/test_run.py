"""Partitioned modules, run: inside this process, exported, and when something is wrong."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import relay_graphs as graphs
import tvm
from onnx import TensorProto, helper, numpy_helper
from relay_graphs import Array, constant, tensor
from tvm import relay
from tvm.contrib import graph_executor

from tvm_sramtile import relay as front
from tvm_sramtile.errors import ModelError
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.relay import codegen
from tvm_sramtile.relay.module import host_target, load_exported

nn = relay.nn
SPEC = AcceleratorSpec(name="small", sram_bytes=4096, channel_align=4, mac_array=(4, 4))
REGION = "sramtile_conv2d_0"
X = graphs.random(0, 1, 4, 16, 12)

ERF = np.vectorize(math.erf, otypes=[np.float32])  # what the host computes


def conv(x: Any, seed: int = 1) -> Any:
    return nn.conv2d(x, constant(seed, 4, 4, 3, 3), padding=(1, 1), channels=4, kernel_size=(3, 3))


def network(seed: int = 1) -> tvm.IRModule:
    x = tensor("x", 1, 4, 16, 12)
    return graphs.module([x], relay.erf(nn.relu(conv(x, seed))))


def partition(mod: tvm.IRModule) -> tvm.IRModule:
    return front.partition_for_sramtile(mod, SPEC)


def test_a_run_tells_what_each_region_got_gave_and_counted() -> None:
    mod = network()
    run = front.run_accelerator(partition(mod), {"x": X})
    (expected,) = front.run_host(mod, {"x": X})
    graphs.assert_close(run.outputs, (expected,), 1e-5)
    region = run.regions[REGION]
    np.testing.assert_array_equal(region.inputs[0], X)
    graphs.assert_close((ERF(region.outputs[0]),), (expected,), 1e-5)
    assert (region.measured.calls, region.measured.images) == (1, 1)


def test_regions_under_tvm_whole_and_in_chunks() -> None:
    mod = partition(network())
    run = front.run_accelerator(mod, {"x": X})
    feeds = {name: region.inputs for name, region in run.regions.items()}
    for chunked in (False, True):
        bodies = front.run_regions(mod, feeds, chunked=chunked)
        graphs.assert_close(bodies[REGION], run.regions[REGION].outputs, 1e-5)
    assert front.run_regions(mod, {}, chunked=True) == {}
    with pytest.raises(ModelError, match="the module has no region 'main'"):
        front.run_regions(mod, {"main": (X,)}, chunked=True)


def test_a_function_called_twice_counts_each_call_once() -> None:
    x, y = tensor("x", 1, 4, 16, 12), tensor("y", 1, 4, 16, 12)
    callee = relay.GlobalVar("callee")
    mod = tvm.IRModule(
        {
            callee: relay.Function([y], nn.relu(conv(y)), relay.TensorType((1, 4, 16, 12))),
            relay.GlobalVar("main"): relay.Function([x], callee(callee(x))),
        }
    )
    mod = partition(relay.transform.InferType()(mod))
    run = front.run_accelerator(mod, {"x": X})
    once = front.run_accelerator(partition(network()), {"x": X}).regions[REGION].measured
    assert run.regions[REGION].measured == once
    np.testing.assert_array_equal(run.regions[REGION].inputs[0], X)


def test_let_bindings_and_nested_tuples_of_results() -> None:
    x, y = tensor("x", 1, 4, 16, 12), relay.var("y")
    body = relay.Let(y, conv(x), relay.Tuple([relay.Tuple([nn.relu(y), x]), relay.split(y, 2, axis=1).astuple()]))
    mod = partition(graphs.module([x], body))
    run = front.run_accelerator(mod, {"x": X})
    assert [output.shape[1] for output in run.outputs] == [4, 4, 2, 2]
    np.testing.assert_array_equal(run.outputs[1], X)
    np.testing.assert_array_equal(np.concatenate(run.outputs[2:], axis=1), run.regions[REGION].outputs[0])


def test_split_modules_run_under_tvm() -> None:
    expected = front.run_host(network(), {"x": X})
    for outline in (False, True):
        split = front.SplitOversized(SPEC, outline=outline)(network())
        graphs.assert_close(front.run_host(split, {"x": X}), expected, 1e-5)
    machine = relay.create_executor("vm", split, tvm.cpu(), host_target())
    graphs.assert_close((machine.evaluate()(X).numpy(),), expected, 1e-5)


def test_a_network_without_regions() -> None:
    x = tensor("x", 2, 3)
    value = np.ones((2, 3), np.float32)
    run = front.run_accelerator(partition(graphs.module([x], relay.erf(x))), {"x": value})
    assert run.regions == {}
    np.testing.assert_allclose(run.outputs[0], ERF(value), rtol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({}, "input 'x' is missing: the network's inputs are x"),
        ({"x": X, "y": X}, "input 'y' is unknown: the network's inputs are x"),
        ({"x": X[:, :2]}, "input 'x' is float32 (1, 2, 16, 12), must be float32 (1, 4, 16, 12)"),
        ({"x": X.astype(np.float64)}, "input 'x' is float64 (1, 4, 16, 12), must be float32 (1, 4, 16, 12)"),
    ],
)
def test_wrong_inputs(inputs: dict[str, Array], text: str) -> None:
    for run in (front.run_accelerator, front.run_host):
        with pytest.raises(ModelError) as caught:
            run(partition(network()) if run is front.run_accelerator else network(), inputs)
        assert str(caught.value) == text


FRESH = """
import sys
sys.modules["tvm_sramtile"] = None  # cannot be imported
import numpy as np
import tvm
from tvm.contrib import graph_executor
executors = [graph_executor.GraphModule(tvm.runtime.load_module(path)["default"](tvm.cpu())) for path in sys.argv[2:]]
x = np.load(sys.argv[1])
for _ in range(2):
    for executor in executors:
        executor.run(x=x)
np.savez(sys.argv[1] + ".out.npz", *(executor.get_output(0).numpy() for executor in executors))
"""


def test_two_exported_libraries_of_the_same_names_in_a_fresh_process(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    paths = [tmp_path / f"{seed}.so" for seed in (1, 2)]
    for seed, path in zip((1, 2), paths, strict=True):
        front.export_library(partition(network(seed)), str(path))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["1.so", "2.so", "x.npy"]
    command = [sys.executable, "-c", FRESH, str(tmp_path / "x.npy"), *map(str, paths)]
    subprocess.run(command, check=True, cwd=tmp_path)
    found = np.load(tmp_path / "x.npy.out.npz")
    for seed, name in ((1, "arr_0"), (2, "arr_1")):
        graphs.assert_close((found[name],), front.run_host(network(seed), {"x": X}), 1e-5)


def test_a_library_that_cannot_be_built_leaves_nothing(tmp_path: Path) -> None:
    mod = partition(network())
    damaged = tvm.IRModule(dict(mod.functions))
    damaged[mod.get_global_var(REGION)] = mod[REGION].with_attr("sramtile.plan", tvm.runtime.String("{}"))
    with pytest.raises(Exception, match="plan attribute is damaged at region: Field required"):
        front.export_library(damaged, str(tmp_path / "deploy.so"))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def broken_programs() -> Iterator[None]:
    """The back end hands over programs that the engine refuses."""

    def cut(function: Any) -> codegen.CompiledRegion:
        compiled = codegen.compile_function(function)
        return codegen.CompiledRegion(compiled.entry, compiled.program[:100], compiled.steps)

    codegen.register(cut)
    yield
    codegen.register()


@pytest.mark.usefixtures("broken_programs")
def test_an_error_of_the_engine_reaches_the_caller_with_its_text() -> None:
    with pytest.raises(tvm.TVMError, match=rf"sramtile region {REGION}: .*the program ends before the end of this rec"):
        front.run_accelerator(partition(network()), {"x": X})


def test_relay_build_as_users_call_it(tmp_path: Path) -> None:
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(partition(network()), target=host_target())
    loaded = load_exported(library, tmp_path)
    executor = graph_executor.GraphModule(loaded["default"](tvm.cpu()))
    executor.run(x=tvm.nd.array(X))
    graphs.assert_close((executor.get_output(0).numpy(),), front.run_host(network(), {"x": X}), 1e-5)


def onnx_network() -> onnx.ModelProto:
    weights = [
        numpy_helper.from_array(graphs.random(3, 4, 3, 3, 3), "w"),
        numpy_helper.from_array(graphs.random(4, 4), "b"),
    ]
    nodes = [
        helper.make_node("Conv", ["in.1", "w", "b"], ["c"], name="first/conv", pads=[1, 1, 1, 1]),
        helper.make_node("Clip", ["c", "low", "high"], ["out"], name="limit"),
    ]
    weights += [numpy_helper.from_array(np.float32(value), name) for name, value in (("low", 0), ("high", 6))]
    given = helper.make_tensor_value_info("in.1", TensorProto.FLOAT, ["n", 3, 12, 12])
    result = helper.make_tensor_value_info("out", TensorProto.FLOAT, ["n", 4, 12, 12])
    graph = helper.make_graph(nodes, "main", [given], [result], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def test_onnx_networks_keep_their_names() -> None:
    mod = front.import_onnx(onnx_network(), {"in.1": (2, 3, 12, 12)})
    partitioned = partition(mod)
    (attributes,) = front.regions(partitioned)
    step = attributes.region.steps[0]
    assert step.name == "first/conv"
    assert step.origin == ("nn.conv2d", "nn.bias_add", "clip")
    assert step.images == 2
    x = graphs.random(5, 2, 3, 12, 12)
    run = front.run_accelerator(partitioned, {"in.1": x})
    graphs.assert_close(run.outputs, front.run_host(mod, {"in.1": x}), 1e-5)


def test_an_onnx_network_that_relay_does_not_take() -> None:
    proto = onnx_network()
    proto.graph.node[1].op_type = "Nonsense"
    with pytest.raises(ModelError, match=r"TVM's Relay importer does not take this network: .*Nonsense"):
        front.import_onnx(proto, {"in.1": (2, 3, 12, 12)})
