"""Inputs for networks: drawn, and read from files. No TVM, no onnx."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvm_sramtile.errors import ModelError
from tvm_sramtile.models import PreparedModel, TensorType, load_inputs, random_inputs


def model_of(**inputs: TensorType) -> PreparedModel:
    # The graph itself plays no part here.
    proto: Any = None
    return PreparedModel(proto=proto, inputs=inputs, outputs={}, notes=(), max_abs_diff=0.0)


@pytest.fixture
def two_inputs() -> PreparedModel:
    return model_of(a=TensorType((2, 3), "float32"), b=TensorType((2, 3), "int8"))


def test_random_inputs(two_inputs: PreparedModel) -> None:
    first, again, other = (random_inputs(two_inputs, seed) for seed in (7, 7, 8))
    assert {name: (value.shape, value.dtype.name) for name, value in first.items()} == {
        "a": ((2, 3), "float32"),
        "b": ((2, 3), "int8"),
    }
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])
        assert not np.array_equal(first[name], other[name])


def test_wide_integers_are_drawn_as_indices() -> None:
    for dtype in ("int32", "int64", "bool"):
        drawn = random_inputs(model_of(i=TensorType((50,), dtype)), 0)["i"]
        assert drawn.dtype.name == dtype
        assert set(drawn.tolist()) == {0, 1}


def test_8_bit_integers_cover_their_range() -> None:
    drawn = random_inputs(model_of(i=TensorType((5000,), "int8"), u=TensorType((5000,), "uint8")), 0)
    assert (drawn["i"].min(), drawn["i"].max()) == (-128, 127)
    assert (drawn["u"].min(), drawn["u"].max()) == (0, 255)


def test_load_inputs_in_the_models_order(two_inputs: PreparedModel, tmp_path: Path) -> None:
    arrays = random_inputs(two_inputs, 0)
    np.savez(tmp_path / "in.npz", b=arrays["b"], a=arrays["a"])
    loaded = load_inputs(tmp_path / "in.npz", two_inputs)
    assert list(loaded) == ["a", "b"]
    for name, value in arrays.items():
        np.testing.assert_array_equal(loaded[name], value)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": np.zeros((2, 3), "float32")}, "input file 'in.npz' has no array 'b': add it as int8 (2, 3)"),
        (
            {"a": np.zeros((2, 3), "float32"), "b": np.zeros((2, 3), "int8"), "z": np.zeros(1)},
            "input file 'in.npz' has an array 'z', which is no input of the model: name its arrays 'a', 'b'",
        ),
        (
            {"a": np.zeros((2, 3)), "b": np.zeros((2, 3), "int8")},
            "array 'a' in 'in.npz' is float64 (2, 3), the model takes float32 (2, 3): convert it",
        ),
        (
            {"a": np.zeros((2, 3), "float32"), "b": np.zeros((3, 2), "int8")},
            "array 'b' in 'in.npz' is int8 (3, 2), the model takes int8 (2, 3): convert it",
        ),
        (
            {"a": np.array([object()])},
            "input file 'in.npz' is not a readable .npz file of plain arrays: "
            "write it with numpy.savez, arrays 'a', 'b'",
        ),
    ],
)
def test_wrong_input_files(two_inputs: PreparedModel, tmp_path: Path, arrays: Any, message: str) -> None:
    np.savez(tmp_path / "in.npz", **arrays)
    with pytest.raises(ModelError) as caught:
        load_inputs(tmp_path / "in.npz", two_inputs)
    assert str(caught.value) == message


def test_input_files_that_are_none(two_inputs: PreparedModel, tmp_path: Path) -> None:
    path = tmp_path / "in.npz"
    with pytest.raises(ModelError) as caught:
        load_inputs(path, two_inputs)
    assert str(caught.value) == f"input file {str(path)!r} does not exist: give an .npz file with the arrays 'a', 'b'"
    np.savez(tmp_path / "whole.npz", a=np.zeros(1000))
    whole = (tmp_path / "whole.npz").read_bytes()
    with (tmp_path / "single.npy").open("wb") as file:
        np.save(file, np.zeros(3))
    for content in (b"", b"text", whole[:100], (tmp_path / "single.npy").read_bytes()):
        path.write_bytes(content)
        with pytest.raises(ModelError) as caught:
            load_inputs(path, two_inputs)
        assert str(caught.value) == (
            "input file 'in.npz' is not a readable .npz file of plain arrays: "
            "write it with numpy.savez, arrays 'a', 'b'"
        )
