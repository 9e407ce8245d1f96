"""A stand-in for planner and engine: ``y = x * w * factor`` over one vector, and an error when ``x[0]`` is 77."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relay, tir
from tvm.contrib import graph_executor

from tvm_sramtile.relay import codegen
from tvm_sramtile.relay.module import RegionEntry, TensorType, host_target

ELEMENTS = 10
VECTOR = TensorType((ELEMENTS,), "float32")
COUNTERS = 2
ERROR_TEXT = "command 12 (load): rows 8-12 lie outside the map's 10 rows"

HEADER = """\
#pragma once
#include <stdint.h>
struct sramtile_counters { int64_t calls; int64_t images; };
int32_t sramtile_run(const uint8_t* program, uint64_t bytes, void* const* tensors, int32_t count, int64_t images,
                     struct sramtile_counters* counters, char* message, int32_t message_bytes);
void sramtile_counters_read(struct sramtile_counters* counters, int64_t* out);
void sramtile_counters_reset(struct sramtile_counters* counters);
int32_t sramtile_counters_mode(struct sramtile_counters* counters, int64_t mode);
#define SRAMTILE_COUNTERS(name, steps) static struct sramtile_counters name
"""
SOURCE = f"""\
#include <stdio.h>
#include <string.h>
#include "engine.h"
int32_t sramtile_run(const uint8_t* program, uint64_t bytes, void* const* tensors, int32_t count, int64_t images,
                     struct sramtile_counters* counters, char* message, int32_t message_bytes) {{
  const float *x = tensors[0], *w = tensors[1];
  float factor;
  memcpy(&factor, program, sizeof factor);
  if (x[0] == 77) {{
    snprintf(message, message_bytes, "{ERROR_TEXT}");
    return 3;
  }}
  for (int out = 2; out < count; ++out)
    for (int i = 0; i < {ELEMENTS}; ++i) ((float*)tensors[out])[i] = x[i] * w[i] * factor * (out - 1);
  __atomic_fetch_add(&counters->calls, 1, __ATOMIC_RELAXED);
  __atomic_fetch_add(&counters->images, images, __ATOMIC_RELAXED);
  return 0;
}}
void sramtile_counters_read(struct sramtile_counters* c, int64_t* out) {{ out[0] = c->calls; out[1] = c->images; }}
void sramtile_counters_reset(struct sramtile_counters* c) {{ c->calls = c->images = 0; }}
int32_t sramtile_counters_mode(struct sramtile_counters* c, int64_t mode) {{ return (int32_t)(c->calls = mode) * 0; }}
"""


def write_sources(directory: Path) -> Path:
    """The engine's C sources."""
    (directory / "engine.h").write_text(HEADER, encoding="utf-8")
    (directory / "engine.c").write_text(SOURCE, encoding="utf-8")
    return directory


def program(factor: float, payload: bytes = b"") -> bytes:
    return struct.pack("<f", factor) + payload


def register(sources: Path, payload: bytes = b"") -> None:
    """Register a back end whose factor is a region's attribute ``factor``."""

    def compile_region(function: relay.Function) -> codegen.CompiledRegion:
        result = function.ret_type
        outputs = len(result.fields) if isinstance(result, tvm.ir.TupleType) else 1
        entry = RegionEntry(
            str(function.attrs["global_symbol"]), 1, (VECTOR,) * len(function.params), (VECTOR,) * outputs, COUNTERS
        )
        return codegen.CompiledRegion(entry, program(float(function.attrs["factor"]), payload), ("step",))

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
