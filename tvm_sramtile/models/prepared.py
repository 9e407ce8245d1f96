"""The door to networks: `prepare` a file, and make or read inputs for it."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tvm_sramtile.errors import MissingDependency, ModelError
from tvm_sramtile.models.reading import (
    TensorType,
    names_text,
    one_line,
    read_model,
    set_shapes,
    static_inputs,
    write_shape,
)
from tvm_sramtile.models.steps import STEPS, Array, apply_steps, run_model

if TYPE_CHECKING:
    import onnx

_CHECK_SEED = 0


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A network that is ready for TVM's ONNX importers.

    proto: the ONNX model; every input has a static shape. Treat it as read-only.
    inputs, outputs: by name, in the network's order; initialisers are no inputs.
    notes: what was done, in order, and which steps were left out and why; one line each.
    max_abs_diff: largest absolute difference between the outputs of the prepared and the raw network (with the same
        static shapes), both run by onnxruntime on `random_inputs(model, 0)`.
    """

    proto: onnx.ModelProto
    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]
    notes: tuple[str, ...]
    max_abs_diff: float

    @property
    def input_shapes(self) -> dict[str, tuple[int, ...]]:
        """Input name -> shape: the `shape_dict` of TVM's importers."""
        return {name: tensor.shape for name, tensor in self.inputs.items()}


def prepare(
    path: str | Path, shapes: Mapping[str, tuple[int, ...]] | None = None, *, simplify: bool = True
) -> PreparedModel:
    """Reads an ONNX network, gives its inputs static shapes, and makes it fit for TVM's importers.

    `shapes` overrides declared shapes by input name, static ones too. With `simplify=False` constant folding and fusion
    by onnxslim are left out: batch norm, pads and shape arithmetic then stay as they came.
    Raises ModelError (one line: what is wrong, what to do) for a file that cannot be used, inputs of an unsupported
    type, shapes that are missing or wrong; MissingDependency where onnx, onnxruntime or onnxslim is not installed.
    """
    file = Path(path)
    raw = read_model(file)
    inputs = static_inputs(raw, file.name, shapes or {})
    set_shapes(raw, inputs)
    feeds = _draw(inputs, _CHECK_SEED)
    try:
        expected = run_model(raw, feeds)
    except MissingDependency:
        raise
    except Exception as error:  # onnxruntime's exceptions share no base class
        given = ", ".join(f"{name!r} {tensor}" for name, tensor in inputs.items())
        raise ModelError(
            f"{file.name!r} does not run in onnxruntime with inputs {given} ({one_line(error)}): "
            "check the file and the shapes given with --shape"
        ) from error
    proto, notes, diff = apply_steps(raw, feeds, expected, STEPS if simplify else STEPS[1:])
    outputs = {name: TensorType(value.shape, value.dtype.name) for name, value in expected.items()}
    for value in proto.graph.output:
        write_shape(value, outputs[value.name].shape)
    overridden = tuple(f"shape of input {name!r} set to {tuple(shape)}" for name, shape in (shapes or {}).items())
    return PreparedModel(proto, inputs, outputs, overridden + notes, diff)


def random_inputs(model: PreparedModel, seed: int) -> dict[str, Array]:
    """One array for each input of `model`, the same for the same seed.

    Floats are standard normal; 8-bit and 16-bit integers cover their range; int32, int64 and bool are 0 or 1, since
    they often are indices or masks.
    """
    return _draw(model.inputs, seed)


def load_inputs(npz_path: str | Path, model: PreparedModel) -> dict[str, Array]:
    """Reads the inputs of `model` from an .npz file whose array names are the input names.

    Raises ModelError when the file is missing or no .npz, when names are missing or unknown, and when a shape or dtype
    differs from the model's.
    """
    file = Path(npz_path)
    if not file.is_file():
        raise ModelError(
            f"input file {str(file)!r} does not exist: give an .npz file with the arrays {names_text(model.inputs)}"
        )
    try:
        with np.load(file, allow_pickle=False) as archive:
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("a single array")
            arrays = {str(name): np.asarray(archive[name]) for name in archive.files}
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise ModelError(
            f"input file {file.name!r} is not a readable .npz file of plain arrays: "
            f"write it with numpy.savez, arrays {names_text(model.inputs)}"
        ) from error
    for name in arrays:
        if name not in model.inputs:
            raise ModelError(
                f"input file {file.name!r} has an array {name!r}, which is no input of the model: "
                f"name its arrays {names_text(model.inputs)}"
            )
    for name, tensor in model.inputs.items():
        if name not in arrays:
            raise ModelError(f"input file {file.name!r} has no array {name!r}: add it as {tensor}")
        found = TensorType(arrays[name].shape, arrays[name].dtype.name)
        if found != tensor:
            raise ModelError(f"array {name!r} in {file.name!r} is {found}, the model takes {tensor}: convert it")
    return {name: arrays[name] for name in model.inputs}


def _draw(inputs: Mapping[str, TensorType], seed: int) -> dict[str, Array]:
    generator = np.random.default_rng(seed)
    return {name: _draw_one(generator, tensor) for name, tensor in inputs.items()}


def _draw_one(generator: np.random.Generator, tensor: TensorType) -> Array:
    dtype = np.dtype(tensor.dtype)
    if dtype.kind == "f":
        return generator.standard_normal(tensor.shape).astype(dtype)
    if dtype.itemsize <= 2 and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max, tensor.shape, dtype=dtype, endpoint=True)
    return generator.integers(0, 2, tensor.shape).astype(dtype)
