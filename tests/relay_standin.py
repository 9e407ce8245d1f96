"""Relay modules for the stand-in of the engine: ``y = x * w * factor`` over one vector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from standin_engine import COUNTERS, ELEMENTS, program
from tvm import relay, tir
from tvm.contrib import graph_executor

from tvm_sramtile.relay import codegen
from tvm_sramtile.relay.module import RegionEntry, TensorType, host_target

VECTOR = TensorType((ELEMENTS,), "float32")


def register(sources: Path, payload: bytes = b"") -> None:
    """Register a back end whose factor is a region's attribute ``factor``."""

    def compile_region(function: relay.Function) -> codegen.CompiledRegion:
        result = function.ret_type
        outputs = len(result.fields) if isinstance(result, tvm.ir.TupleType) else 1
        entry = RegionEntry(
            str(function.attrs["global_symbol"]), 1, (VECTOR,) * len(function.params), (VECTOR,) * outputs, COUNTERS
        )
        return codegen.CompiledRegion(
            entry, program(float(function.attrs["factor"]), len(function.params), payload), ("step",)
        )

    codegen.register(compile_region, sources)


def network(*factors: float, outputs: int = 1) -> tvm.IRModule:
    """A main that calls one region a factor, one after the other: ``x = region(x, w)``, then relu."""
    x, w = (relay.var(name, shape=VECTOR.shape) for name in "xw")
    module = tvm.IRModule()
    value: Any = x
    for index, factor in enumerate(factors):
        function = region(f"region_{index}", factor, outputs)
        name = relay.GlobalVar(f"region_{index}")
        module[name] = function
        value = name(value, w)
    result = relay.nn.relu(value) if outputs == 1 else value
    module["main"] = relay.Function([x, w], result)
    return relay.transform.InferType()(module)


def region(name: str, factor: float, outputs: int = 1) -> relay.Function:
    x, w = (relay.var(name, shape=VECTOR.shape) for name in "xw")
    product = relay.multiply(relay.multiply(x, w), relay.const(factor))
    body: Any = product
    result: Any = relay.TensorType(VECTOR.shape, VECTOR.dtype)
    if outputs > 1:
        body = relay.Tuple([relay.multiply(product, relay.const(float(out + 1))) for out in range(outputs)])
        result = relay.TupleType([result] * outputs)
    function = relay.Function([x, w], body, result)
    one = tir.IntImm("int32", 1)
    attributes = {"Compiler": "sramtile", "Primitive": one, "Inline": one, "global_symbol": name, "factor": str(factor)}
    for key, value in attributes.items():
        function = function.with_attr(key, value)
    return function


def network_with_weights(weights: NDArray[np.float32]) -> tvm.IRModule:
    """A region of factor 3 whose body, besides, holds a large constant."""
    module = network(3.0)
    function = module["region_0"]
    # The stand-in's program does not look at it: it matters only where TVM stores it.
    total = relay.sum(relay.multiply(relay.const(weights), relay.const(0.0)))
    body = relay.add(function.body, total)
    module["region_0"] = relay.Function(function.params, body, function.ret_type, attrs=function.attrs)
    return relay.transform.InferType()(module)


def build(module: tvm.IRModule, path: Path) -> Path:
    """Build and export to a shared library."""
    library = relay.build(module, host_target())
    library.export_library(str(path))
    return path


def load(path: Path) -> tuple[Any, Any]:
    """The library's module and a graph executor of it."""
    library = tvm.runtime.load_module(str(path))
    return library, graph_executor.GraphModule(library["default"](tvm.cpu()))
