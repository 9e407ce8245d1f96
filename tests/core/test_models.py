"""Reading and preparing networks, on small ONNX models made here. No TVM."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvm_sramtile.errors import MissingDependency, ModelError
from tvm_sramtile.models import PreparedModel, TensorType, prepare

onnx = pytest.importorskip("onnx", reason="models are made with onnx, of the extra cli")
pytest.importorskip("onnxruntime", reason="prepared models are checked with onnxruntime, of the extra cli")
pytest.importorskip("onnxslim", reason="models are simplified with onnxslim, of the extra cli")

helper = onnx.helper
FLOAT = onnx.TensorProto.FLOAT

Save = Callable[..., Path]


def conv_graph(shape: Sequence[int | str] | None = (1, 2, 6, 6), dtype: int = FLOAT) -> Any:
    """From x by Conv 3x3 (2 -> 3 channels) -> BatchNormalization -> Relu -> y."""
    generator = np.random.default_rng(1)
    weights = {
        "w": generator.standard_normal((3, 2, 3, 3)),
        "scale": generator.uniform(0.5, 1.5, 3),
        "shift": generator.standard_normal(3),
        "mean": generator.standard_normal(3),
        "var": generator.uniform(0.5, 1.5, 3),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["b"]),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    tensors = [onnx.numpy_helper.from_array(value.astype("float32"), name) for name, value in weights.items()]
    inputs = [helper.make_tensor_value_info("x", dtype, shape)]
    return helper.make_graph(nodes, "net", inputs, [helper.make_tensor_value_info("y", FLOAT, None)], tensors)


def graph_of(nodes: list[Any], inputs: dict[str, tuple[int, Any]], outputs: list[str], tensors: Any = ()) -> Any:
    values = [helper.make_tensor_value_info(name, dtype, shape) for name, (dtype, shape) in inputs.items()]
    results = [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs]
    constants = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in dict(tensors).items()]
    return helper.make_graph(nodes, "net", values, results, constants)


@pytest.fixture
def save(tmp_path: Path) -> Save:
    def save_graph(graph: Any, opset: int = 13, name: str = "net.onnx") -> Path:
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        path = tmp_path / name
        onnx.save(model, str(path))
        return path

    return save_graph


def ops(model: PreparedModel) -> list[str]:
    return [node.op_type for node in model.proto.graph.node]


def refusal(path: Path, shapes: Any = None) -> str:
    with pytest.raises(ModelError) as caught:
        prepare(path, shapes)
    return str(caught.value)


# --- preparing


def test_batch_norm_is_fused_and_the_types_are_told(save: Save) -> None:
    model = prepare(save(conv_graph()))
    assert ops(model) == ["Conv", "Relu"]
    assert model.inputs == {"x": TensorType((1, 2, 6, 6), "float32")}
    assert model.outputs == {"y": TensorType((1, 3, 6, 6), "float32")}
    assert model.input_shapes == {"x": (1, 2, 6, 6)}
    assert 0 < model.max_abs_diff < 1e-5
    assert [note.partition(",")[0] for note in model.notes] == ["simplified with onnxslim", "inferred shapes"]


def test_without_simplification_the_graph_stays(save: Save) -> None:
    model = prepare(save(conv_graph()), simplify=False)
    assert ops(model) == ["Conv", "BatchNormalization", "Relu"]
    assert model.max_abs_diff == 0.0
    assert model.notes == ("inferred shapes, outputs within 0.0e+00",)


def test_preparing_twice_gives_the_same_bytes(save: Save) -> None:
    path = save(conv_graph(("N", 2, "H", "W")))
    first, second = (prepare(path, {"x": (1, 2, 5, 7)}).proto.SerializeToString(deterministic=True) for _ in range(2))
    assert first == second


def test_shapes_override_dynamic_and_static_dimensions(save: Save) -> None:
    for declared in (("N", 2, "H", "W"), (None, 2, None, None), (-1, 2, -1, -1), (1, 2, 32, 32), None):
        model = prepare(save(conv_graph(declared)), {"x": (2, 2, 5, 7)})
        assert model.inputs["x"].shape == (2, 2, 5, 7)
        assert model.outputs["y"].shape == (2, 3, 5, 7)
        assert model.notes[0] == "shape of input 'x' set to (2, 2, 5, 7)"
        dims = model.proto.graph.input[0].type.tensor_type.shape.dim
        assert [dim.dim_value for dim in dims] == [2, 2, 5, 7]


def test_shape_arithmetic_is_folded(save: Save) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Concat", ["n", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    constants = {"zero": np.array([0]), "rest": np.array([-1])}
    graph = graph_of(nodes, {"x": (FLOAT, ("N", 2, 3))}, ["y"], constants)
    model = prepare(save(graph), {"x": (2, 2, 3)})
    assert ops(model) == ["Reshape"]
    assert model.outputs["y"].shape == (2, 6)


def test_old_opsets_are_converted(save: Save) -> None:
    model = prepare(save(conv_graph(), opset=9))
    assert [item.version for item in model.proto.opset_import if item.domain == ""] == [13]
    assert "converted to opset 13" in " ".join(model.notes)


def test_newer_opsets_are_kept(save: Save) -> None:
    model = prepare(save(conv_graph(), opset=15))
    assert [item.version for item in model.proto.opset_import if item.domain == ""] == [15]


def test_empty_scales_of_resize_are_dropped(save: Save) -> None:
    node = helper.make_node("Resize", ["x", "", "scales", "sizes"], ["y"], mode="nearest")
    constants = {"scales": np.zeros(0, "float32"), "sizes": np.array([1, 2, 8, 8])}
    model = prepare(save(graph_of([node], {"x": (FLOAT, (1, 2, 4, 4))}, ["y"], constants)), simplify=False)
    assert list(model.proto.graph.node[0].input) == ["x", "", "", "sizes"]
    assert model.notes[0] == "dropped empty inputs of Resize, outputs within 0.0e+00"


def test_a_sum_of_two_becomes_an_add(save: Save) -> None:
    nodes = [helper.make_node("Sum", ["x", "x"], ["a"]), helper.make_node("Sum", ["a", "x", "x"], ["y"])]
    assert ops(prepare(save(graph_of(nodes, {"x": (FLOAT, (1, 2))}, ["y"])), simplify=False)) == ["Add", "Sum"]


def test_weights_listed_as_inputs_are_no_inputs(save: Save) -> None:
    graph = conv_graph()
    graph.input.append(helper.make_tensor_value_info("w", FLOAT, (3, 2, 3, 3)))
    assert list(prepare(save(graph)).inputs) == ["x"]


def test_external_weights_are_read(save: Save, tmp_path: Path) -> None:
    expected = prepare(save(conv_graph()))
    model = onnx.load(str(tmp_path / "net.onnx"))
    onnx.save(model, str(tmp_path / "ext.onnx"), save_as_external_data=True, location="w.bin", size_threshold=0)
    assert prepare(tmp_path / "ext.onnx").proto.graph == expected.proto.graph


# --- steps that go wrong


@pytest.fixture
def slim(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], None]:
    def replace(function: Callable[..., Any]) -> None:
        monkeypatch.setattr("onnxslim.slim", function)

    return replace


def scaled(model: Any, factor: float) -> Any:
    for tensor in model.graph.initializer:
        if tensor.name == "w":
            value = onnx.numpy_helper.to_array(tensor) * np.float32(factor)
            tensor.CopyFrom(onnx.numpy_helper.from_array(value, "w"))
    return model


def test_a_step_that_moves_the_outputs_is_left_out(save: Save, slim: Any) -> None:
    path = save(conv_graph())
    raw = prepare(path, simplify=False)
    slim(lambda model, skip_optimizations=None: scaled(model, 1.01))
    model = prepare(path)
    assert model.proto == raw.proto
    assert model.max_abs_diff == 0.0
    assert len(model.notes) == 3
    assert model.notes[0].startswith("not simplified with onnxslim: it moves output 'y' by ")
    assert model.notes[1].startswith("not constants folded with onnxslim, nothing fused: it moves output 'y' by ")


def test_folding_alone_is_tried_where_fusion_moves_the_outputs(save: Save, slim: Any) -> None:
    slim(lambda model, skip_optimizations=None: model if skip_optimizations else scaled(model, 1.01))
    notes = prepare(save(conv_graph())).notes
    assert notes[1] == "constants folded with onnxslim, nothing fused, outputs within 0.0e+00"


def test_a_step_that_fails_or_renames_outputs_is_left_out(save: Save, slim: Any) -> None:
    def rename_or_fail(model: Any, skip_optimizations: Any = None) -> Any:
        if skip_optimizations:
            raise RuntimeError("no\nluck")
        model.graph.node[-1].output[0] = model.graph.output[0].name = "z"
        return model

    slim(rename_or_fail)
    assert prepare(save(conv_graph())).notes[:2] == (
        "not simplified with onnxslim: it changes the outputs to 'z'",
        "not constants folded with onnxslim, nothing fused: no luck",
    )


def test_infinities_and_nans_agree_with_themselves(save: Save) -> None:
    node = helper.make_node("Div", ["zeros", "zeros"], ["n"])
    nodes = [node, helper.make_node("Add", ["x", "n"], ["y"])]
    model = prepare(save(graph_of(nodes, {"x": (FLOAT, (3,))}, ["y"], {"zeros": np.zeros(3, "float32")})))
    assert model.max_abs_diff == 0.0


# --- files and shapes that cannot be used


def test_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "none.onnx"
    assert refusal(path) == f"model file {str(path)!r} does not exist: give the path of an ONNX file (.onnx)"
    assert refusal(tmp_path) == f"model file {str(tmp_path)!r} does not exist: give the path of an ONNX file (.onnx)"


def test_unknown_formats(tmp_path: Path) -> None:
    for name, message in {
        "net.pt": "'net.pt': unknown model format '.pt': give an ONNX file (.onnx)",
        "net": "'net': unknown model format '': give an ONNX file (.onnx)",
        "net.tflite": "'net.tflite': TFLite networks are not supported yet: convert it to ONNX (.onnx)",
    }.items():
        (tmp_path / name).write_bytes(b"x")
        assert refusal(tmp_path / name) == message


def test_files_that_are_not_onnx(save: Save, tmp_path: Path) -> None:
    whole = save(conv_graph()).read_bytes()
    path = tmp_path / "bad.onnx"
    for content in (b"", b"hello, world", b"\x08\x07", whole[: len(whole) // 2]):
        path.write_bytes(content)
        assert refusal(path) == "'bad.onnx' is not an ONNX model, or is damaged: download or export it again"


def test_missing_external_weights(save: Save, tmp_path: Path) -> None:
    model = onnx.load(str(save(conv_graph())))
    onnx.save(model, str(tmp_path / "ext.onnx"), save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    assert refusal(tmp_path / "ext.onnx") == (
        "'ext.onnx' keeps weights in the file 'w.bin', which is missing: put it into the model's directory"
    )


def test_dynamic_dimensions(save: Save) -> None:
    assert refusal(save(conv_graph(("N", 2, "H", None)))) == (
        "input 'x' of 'net.onnx' has dynamic dimensions (N, 2, H, ?): give its shape, for example --shape x=1,2,320,320"
    )
    assert refusal(save(conv_graph(None))) == (
        "input 'x' of 'net.onnx' declares no shape: give it with --shape x=1,3,320,320"
    )


def test_all_dynamic_inputs_are_named(save: Save) -> None:
    node = helper.make_node("Add", ["a", "b"], ["y"])
    path = save(graph_of([node], {"a": (FLOAT, ("N", 4)), "b": (FLOAT, (-1, 4))}, ["y"]))
    assert refusal(path) == (
        "input 'a' of 'net.onnx' has dynamic dimensions (N, 4): give its shape, for example --shape a=1,4; "
        "input 'b' of 'net.onnx' has dynamic dimensions (?, 4): give its shape, for example --shape b=1,4"
    )


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"z": (1, 2)}, "'net.onnx' has no input 'z': a shape can be given for 'x'"),
        ({"w": (3, 2, 3, 3)}, "'net.onnx' has no input 'w': a shape can be given for 'x'"),
        (
            {"x": (1, 2, 5)},
            "shape (1, 2, 5) for input 'x' has 3 dimensions, 'net.onnx' declares 4, (N, 2, H, W): "
            "give for example --shape x=1,2,320,320",
        ),
        (
            {"x": (1, 2, 0, 5)},
            "shape (1, 2, 0, 5) for input 'x' of 'net.onnx': every dimension must be a positive integer",
        ),
        (
            {"x": (1, 2, 5.0, 5)},
            "shape (1, 2, 5.0, 5) for input 'x' of 'net.onnx': every dimension must be a positive integer",
        ),
    ],
)
def test_wrong_shapes(save: Save, shapes: Any, message: str) -> None:
    assert refusal(save(conv_graph(("N", 2, "H", "W"))), shapes) == message


def test_shapes_that_do_not_run(save: Save) -> None:
    message = refusal(save(conv_graph(("N", 2, "H", "W"))), {"x": (1, 5, 6, 6)})
    assert message.startswith("'net.onnx' does not run in onnxruntime with inputs 'x' float32 (1, 5, 6, 6) (")
    assert message.endswith("): check the file and the shapes given with --shape")
    assert "\n" not in message


def test_unsupported_inputs(save: Save) -> None:
    assert refusal(save(conv_graph(dtype=onnx.TensorProto.BFLOAT16))) == (
        "input 'x' of 'net.onnx' has the unsupported type bfloat16: export the network with one of "
        "float16, float32, float64, int8, uint8, int16, int32, int64, bool"
    )
    graph = graph_of([helper.make_node("ConcatFromSequence", ["x"], ["y"], axis=0)], {}, ["y"])
    graph.input.append(helper.make_tensor_sequence_value_info("x", FLOAT, (1, 2)))
    assert refusal(save(graph)) == (
        "input 'x' of 'net.onnx' is no tensor (sequence_type): export the network with tensors only"
    )


@pytest.mark.parametrize("package", ["onnx", "onnxruntime", "onnxslim"])
def test_missing_packages(save: Save, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    path = save(conv_graph())
    real = importlib.import_module

    def without(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ImportError(f"No module named {package!r}")
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(MissingDependency) as caught:
        prepare(path)
    assert str(caught.value) == (
        f"reading a network needs the package {package!r}, which cannot be imported (No module named {package!r}): "
        "pip install 'tvm_sramtile[cli]'"
    )
