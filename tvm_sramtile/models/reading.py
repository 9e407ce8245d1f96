"""Reads an ONNX file and gives its inputs static shapes."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_sramtile.errors import MissingDependency, ModelError

if TYPE_CHECKING:
    import onnx

#: Element types that numpy, onnxruntime and both TVMs share.
INPUT_DTYPES = ("float16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool")


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and dtype (a numpy name, e.g. "float32") of a network's input or output."""

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype} {self.shape}"


def optional(module: str) -> Any:
    """The module, imported; MissingDependency naming the extra where it is not there."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingDependency(
            f"reading a network needs the package {package!r}, which cannot be imported ({one_line(error)}): "
            "pip install 'tvm_sramtile[cli]'"
        ) from error


def read_model(file: Path) -> onnx.ModelProto:
    """The network as it stands in the file, external weights included; ModelError where it cannot be read."""
    if not file.is_file():
        raise ModelError(f"model file {str(file)!r} does not exist: give the path of an ONNX file (.onnx)")
    extension = file.suffix.lower()
    if extension == ".tflite":
        raise ModelError(f"{file.name!r}: TFLite networks are not supported yet: convert it to ONNX (.onnx)")
    if extension != ".onnx":
        raise ModelError(f"{file.name!r}: unknown model format {file.suffix!r}: give an ONNX file (.onnx)")
    package = optional("onnx")
    try:
        model: onnx.ModelProto = package.load(str(file), load_external_data=False)
    except OSError as error:
        raise ModelError(f"{file.name!r} cannot be read ({error.strerror}): check its permissions") from error
    except Exception as error:  # protobuf's DecodeError; importing protobuf for its name would add nothing
        raise _not_onnx(file) from error
    # Protobuf decodes many foreign files, and the empty one, into a message without content.
    if not model.graph.node or not model.opset_import:
        raise _not_onnx(file)
    _load_external_weights(package, model, file)
    return model


def _not_onnx(file: Path) -> ModelError:
    return ModelError(f"{file.name!r} is not an ONNX model, or is damaged: download or export it again")


def _load_external_weights(package: Any, model: onnx.ModelProto, file: Path) -> None:
    for tensor in model.graph.initializer:
        if not package.external_data_helper.uses_external_data(tensor):
            continue
        location = {entry.key: entry.value for entry in tensor.external_data}.get("location", "")
        if not (file.parent / location).is_file():
            raise ModelError(
                f"{file.name!r} keeps weights in the file {location!r}, which is missing: "
                "put it into the model's directory"
            )
    try:
        package.load_external_data_for_model(model, str(file.parent))
    except Exception as error:  # onnx raises OSError, ValueError or its own ValidationError here
        raise ModelError(
            f"the external weights of {file.name!r} cannot be read ({one_line(error)}): download or export them again"
        ) from error


# --- static shapes


def static_inputs(model: onnx.ModelProto, source: str, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, TensorType]:
    """The type of each input with the shapes given; ModelError where a shape is missing or cannot be.

    `source` names the network in errors. Weights that old files list among the inputs are left out.
    """
    initialisers = {tensor.name for tensor in model.graph.initializer}
    values = {value.name: value for value in model.graph.input if value.name not in initialisers}
    for name in shapes:
        if name not in values:
            raise ModelError(f"{source!r} has no input {name!r}: a shape can be given for {names_text(values)}")
    dtypes = {name: _input_dtype(value, source) for name, value in values.items()}
    inputs, unknown = {}, []
    for name, value in values.items():
        declared = _declared_dims(value)
        if name in shapes:
            shape = _checked_override(name, tuple(shapes[name]), declared, source)
        elif declared is None:
            unknown.append(f"input {name!r} of {source!r} declares no shape: give it with --shape {name}=1,3,320,320")
            continue
        elif all(isinstance(dim, int) for dim in declared):
            shape = tuple(int(dim) for dim in declared)
        else:
            unknown.append(
                f"input {name!r} of {source!r} has dynamic dimensions {_dims_text(declared)}: "
                f"give its shape, for example --shape {name}={_example(declared)}"
            )
            continue
        inputs[name] = TensorType(shape, dtypes[name])
    if unknown:
        raise ModelError("; ".join(unknown))
    return inputs


def _input_dtype(value: onnx.ValueInfoProto, source: str) -> str:
    if not value.type.HasField("tensor_type"):
        kind = str(value.type.WhichOneof("value"))
        raise ModelError(
            f"input {value.name!r} of {source!r} is no tensor ({kind}): export the network with tensors only"
        )
    element = value.type.tensor_type.elem_type
    name = str(optional("onnx").TensorProto.DataType.Name(element)).lower()
    name = {"float": "float32", "double": "float64"}.get(name, name)
    if name not in INPUT_DTYPES:
        raise ModelError(
            f"input {value.name!r} of {source!r} has the unsupported type {name}: "
            f"export the network with one of {', '.join(INPUT_DTYPES)}"
        )
    return name


def _declared_dims(value: onnx.ValueInfoProto) -> tuple[int | str, ...] | None:
    """Sizes, and for dynamic dimensions their names ("?" where there is none); None where no shape is declared."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    # Exporters write dynamic dimensions as a name, as nothing, as -1 or as 0.
    return tuple(dim.dim_value if dim.dim_value > 0 else dim.dim_param or "?" for dim in tensor.shape.dim)


def _checked_override(
    name: str, shape: tuple[int, ...], declared: tuple[int | str, ...] | None, source: str
) -> tuple[int, ...]:
    if declared is not None and len(shape) != len(declared):
        raise ModelError(
            f"shape {shape} for input {name!r} has {len(shape)} dimensions, {source!r} declares {len(declared)}, "
            f"{_dims_text(declared)}: give for example --shape {name}={_example(declared)}"
        )
    if any(type(dim) is not int or dim < 1 for dim in shape):
        raise ModelError(f"shape {shape} for input {name!r} of {source!r}: every dimension must be a positive integer")
    return shape


def _dims_text(dims: Sequence[int | str]) -> str:
    return f"({', '.join(str(dim) for dim in dims)})"


def _example(dims: Sequence[int | str]) -> str:
    """A plausible shape: batch 1, and 320 for other dynamic dimensions."""
    return ",".join(str(dim) if isinstance(dim, int) else "320" if axis else "1" for axis, dim in enumerate(dims))


def set_shapes(model: onnx.ModelProto, inputs: Mapping[str, TensorType]) -> None:
    """Writes the inputs' shapes into the model, and forgets all others."""
    for value in model.graph.input:
        if value.name in inputs:
            write_shape(value, inputs[value.name].shape)
    # What the file says about inner tensors and outputs was true for the declared shapes only.
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")


def write_shape(value: onnx.ValueInfoProto, shape: Iterable[int]) -> None:
    """Declares a tensor's shape."""
    dims = value.type.tensor_type.shape
    dims.ClearField("dim")
    for size in shape:
        dims.dim.add().dim_value = size
    # An empty shape (a scalar) must be present all the same.
    dims.SetInParent()


def names_text(names: Iterable[str]) -> str:
    """The names in quotes, for messages."""
    return ", ".join(repr(name) for name in names) or "none"


def one_line(error: BaseException) -> str:
    """An error's text on one line, cut to a length that a message can bear."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines)[:300] or type(error).__name__
