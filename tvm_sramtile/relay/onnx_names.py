"""Names that Relay's ONNX importer takes from the onnx package, and that newer releases of it no longer have."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from tvm_sramtile.errors import MissingDependency


def provide_onnx_names() -> None:
    """Make ``relay.frontend.from_onnx`` work with the installed onnx; to be called before it.

    The importer reads ``onnx.mapping.TENSOR_TYPE_TO_NP_TYPE``, which newer releases of onnx have as a function.

    Raises:
        MissingDependency: onnx is not installed.
    """
    try:
        onnx: Any = importlib.import_module("onnx")
        importlib.import_module("onnx.helper")
    except ImportError as error:
        raise MissingDependency(f"onnx cannot be imported ({error}): run pip install 'tvm_sramtile[cli]'") from error
    try:
        importlib.import_module("onnx.mapping")
    except ImportError:
        mapping = ModuleType("onnx.mapping", "Stands for the module of this name that older releases of onnx have.")
        mapping.TENSOR_TYPE_TO_NP_TYPE = _numpy_types(onnx)  # type: ignore[attr-defined]
        sys.modules["onnx.mapping"] = mapping
        onnx.mapping = mapping


def _numpy_types(onnx: Any) -> dict[int, Any]:
    types: dict[int, Any] = {}
    for element_type in onnx.TensorProto.DataType.values():
        try:
            types[element_type] = onnx.helper.tensor_dtype_to_np_dtype(element_type)
        except (KeyError, TypeError, ValueError):
            continue  # UNDEFINED, and whatever numpy has no type for
    return types
