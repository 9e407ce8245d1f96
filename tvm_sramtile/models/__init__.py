"""Reads network files and prepares them for TVM's importers.

A network as it comes often does not import: dimensions are symbolic, shapes are computed inside the graph, the opset
is old. `prepare` fixes the shapes and then rewrites the graph step by step. Each step is kept only where onnxruntime
gives the same outputs, on the same inputs, as for the network as it came. Which importer is called is the front ends'
business: they take `PreparedModel.proto`. Nothing here imports tvm, and onnx, onnxruntime and onnxslim are imported by
the functions that need them.
"""

from __future__ import annotations

from tvm_sramtile.models.prepared import PreparedModel, load_inputs, prepare, random_inputs
from tvm_sramtile.models.reading import INPUT_DTYPES, TensorType
from tvm_sramtile.models.steps import OPSET, TOLERANCES

__all__ = [
    "INPUT_DTYPES",
    "OPSET",
    "TOLERANCES",
    "PreparedModel",
    "TensorType",
    "load_inputs",
    "prepare",
    "random_inputs",
]
