"""The 2-D cases of the ONNX package for what the accelerator computes, as data: networks, inputs, expected outputs.

The package brings ``pytorch-converted`` networks as files, and node tests as files (older releases) or as code. What
these feed into weights, scales, sizes and regions of interest is written into the network here: TVM's importers want
to know it.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

Array = NDArray[Any]

#: Cases by what they are about; all of them have images of four dimensions.
FAMILIES: Mapping[str, str] = {
    "convolution": r"test_(conv_|Conv2d)",
    "transposed": r"test_(convtranspose|ConvTranspose2d)",
    "pool": r"test_((average|max|globalaverage|globalmax|lp)pool|(Avg|Max)Pool2d)",
    "pad": r"test_\w+Pad2d",
    "resize": r"test_(resize|upsample)",
}
KINDS = ("node", "pytorch-converted")
_RANK = 4


@dataclass(frozen=True, slots=True)
class SuiteCase:
    """One case.

    Attributes:
        model: its network; only ``inputs`` are left to be given.
        expected: the outputs by name, in order.
        rtol, atol: how far from them an output may be.
    """

    name: str
    family: str
    model: onnx.ModelProto
    inputs: Mapping[str, Array]
    expected: Mapping[str, Array]
    rtol: float
    atol: float

    @property
    def opset(self) -> int:
        """The version of ONNX's operators that the network is written in."""
        return next(int(item.version) for item in self.model.opset_import if item.domain in ("", "ai.onnx"))

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The inputs' shapes."""
        return {name: value.shape for name, value in self.inputs.items()}


@cache
def cases() -> tuple[SuiteCase, ...]:
    """All cases, by family and name."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package computes the cases of all operators, overflows included
        found = [case for kind in KINDS for case in load_model_tests(kind=kind)]
    read = [case for each in found if (family := _family(each.name)) and (case := _case(each, family)) is not None]
    order = list(FAMILIES)
    return tuple(sorted(read, key=lambda case: (order.index(case.family), case.name)))


def _family(name: str) -> str | None:
    return next((family for family, pattern in FAMILIES.items() if re.match(pattern, name)), None)


def _case(test: Any, family: str) -> SuiteCase | None:
    """The case where it is one of images."""
    model = onnx.ModelProto()
    model.CopyFrom(test.model if test.model is not None else onnx.load(str(Path(test.model_dir) / "model.onnx")))
    graph = model.graph
    known = {tensor.name for tensor in graph.initializer}
    names = [value.name for value in graph.input if value.name not in known]
    given, wanted = _data(test)
    if np.asarray(given[0]).ndim != _RANK:
        return None
    for name, value in list(zip(names, given, strict=True))[1:]:
        graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    _keep_inputs(model, names[0])
    expected = {value.name: np.asarray(array) for value, array in zip(graph.output, wanted, strict=True)}
    inputs = {names[0]: np.asarray(given[0])}
    return SuiteCase(test.name, family, model, inputs, expected, test.rtol, test.atol)


def _keep_inputs(model: onnx.ModelProto, name: str) -> None:
    """Leave one input: what has a value is none."""
    kept = [onnx.ValueInfoProto.FromString(v.SerializeToString()) for v in model.graph.input if v.name == name]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.ir_version = max(model.ir_version, 4)  # from here on initialisers need not be inputs


def _data(test: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    """Inputs and expected outputs of the first data set."""
    if test.data_sets is not None:
        inputs, outputs = test.data_sets[0]
        return inputs, outputs
    directory = Path(test.model_dir) / "test_data_set_0"
    return _files(directory, "input"), _files(directory, "output")


def _files(directory: Path, prefix: str) -> list[Array]:
    paths = sorted(directory.glob(f"{prefix}_*.pb"), key=lambda path: int(path.stem.rpartition("_")[2]))
    return [numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes())) for path in paths]


def merged(cases: Sequence[SuiteCase]) -> SuiteCase:
    """One case that is all of these, which have the same opset: one build for many. Names get the case's in front."""
    result = onnx.ModelProto()
    result.CopyFrom(cases[0].model)
    for field in (result.graph.node, result.graph.input, result.graph.output, result.graph.initializer):
        del field[:]
    del result.graph.value_info[:]
    result.graph.name = "merged"
    for case in cases:
        _append(result.graph, case)
    inputs = {f"{case.name}__{name}": value for case in cases for name, value in case.inputs.items()}
    expected = {f"{case.name}__{name}": value for case in cases for name, value in case.expected.items()}
    return SuiteCase("merged", "", result, inputs, expected, 0.0, 0.0)


def _append(graph: onnx.GraphProto, case: SuiteCase) -> None:
    def renamed(name: str) -> str:
        return f"{case.name}__{name}" if name else ""  # an input that is left out has no name

    source = case.model.graph
    for node in source.node:
        added = graph.node.add()
        added.CopyFrom(node)
        added.name = renamed(node.name)
        added.input[:] = [renamed(name) for name in node.input]
        added.output[:] = [renamed(name) for name in node.output]
    pairs = ((graph.input, source.input), (graph.output, source.output), (graph.initializer, source.initializer))
    for field, values in pairs:
        for value in values:
            field.add().CopyFrom(value)
            field[-1].name = renamed(value.name)
