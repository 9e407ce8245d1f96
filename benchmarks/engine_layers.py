"""The convolutions of ResNet-50, layer by layer, for ``benchmarks/engine.py``."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from tvm_sramtile.compile import Compiled, compile_region
from tvm_sramtile.engine import prepare
from tvm_sramtile.geometry import Conv2d
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Clip, Region, Step, Tensor, digest_of
from tvm_sramtile.options import Options

ROUNDS, WARM_UP = 15, 2


@dataclass(frozen=True, slots=True)
class LayerTime:
    """One kind of layer: how many of it there are, and medians in milliseconds."""

    op: Conv2d
    count: int
    ours_ms: float
    onnxruntime_ms: float
    chunks: int

    @property
    def ratio(self) -> float:
        """Our time over onnxruntime's."""
        return self.ours_ms / self.onnxruntime_ms


def resnet50() -> list[tuple[Conv2d, int]]:
    """Its 53 convolutions at 224x224 by kind, with the strides of the blocks in their 3x3 layers."""
    found: dict[Conv2d, int] = {}

    def add(ins: int, size: int, outs: int, kernel: int, stride: int = 1) -> None:
        pad = kernel // 2
        op = Conv2d(ins, size, size, outs, (kernel, kernel), (stride, stride), (pad, pad, pad, pad))
        found[op] = found.get(op, 0) + 1

    add(3, 224, 64, 7, 2)
    ins, size = 64, 56
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            stride = 2 if block == 0 and width > 64 else 1
            add(ins, size, width, 1)
            add(width, size, width, 3, stride)
            if block == 0:
                add(ins, size, 4 * width, 1, stride)
            size //= stride
            add(width, size, 4 * width, 1)
            ins = 4 * width
    return list(found.items())


def measure_layers(spec: AcceleratorSpec) -> Iterator[LayerTime]:
    """Each kind of layer on both, in turns; with bias and relu.

    Ours are whole calls of the engine, DMA included, on maps whose channels are neighbours (NHWC): of what programs can
    name, that comes nearest to the accelerator's own layout. Of onnxruntime it is the convolution's kernel alone.
    """
    for op, count in resnet50():
        rng = np.random.default_rng(0)
        weight = rng.standard_normal((op.out_channels, op.in_channels, *op.kernel), dtype=np.float32)
        bias = rng.standard_normal(op.out_channels, dtype=np.float32)
        compiled, values = _compile(op, weight, bias, spec)
        x = rng.standard_normal((1, op.in_channels, op.in_rows, op.in_cols), dtype=np.float32)
        y = np.empty((1, op.out_rows, op.out_cols, op.out_channels), np.float32)
        call = prepare(compiled.code, [np.ascontiguousarray(x.transpose(0, 2, 3, 1)), y])
        ours = [0.0] * ROUNDS
        with _Session(op, values) as session:
            for turn in range(-WARM_UP, ROUNDS):
                session.run(x)
                start = time.perf_counter()
                call()
                ours[turn] = time.perf_counter() - start
        theirs = session.conv_seconds()[WARM_UP:]
        yield LayerTime(
            op, count, 1e3 * statistics.median(ours), 1e3 * statistics.median(theirs), compiled.plan.chunk_count
        )


def _compile(op: Conv2d, weight: Any, bias: Any, spec: AcceleratorSpec) -> tuple[Compiled, tuple[Any, Any]]:
    shapes = (1, op.in_rows, op.in_cols, op.in_channels), (1, op.out_rows, op.out_cols, op.out_channels)
    x, y = (Tensor(name, shape, "float32", None, "NHWC") for name, shape in zip("xy", shapes, strict=True))
    w = Tensor("w", weight.shape, "float32", digest_of(weight), "OIHW")
    b = Tensor("b", bias.shape, "float32", digest_of(bias))
    step = Step("conv", op, x, w, y, bias=b, clip=Clip(0.0, None))
    region = Region("layer", (x,), (y,), (step,))
    values = {digest_of(value): value for value in (weight, bias)}
    return compile_region(region, spec, Options(), values), (weight, bias)


class _Session:
    """The layer in onnxruntime, one thread; the time is that of the convolution's own kernel."""

    def __init__(self, op: Conv2d, values: tuple[Any, Any]) -> None:
        names = ("w", "b")
        constants = [numpy_helper.from_array(value, name) for value, name in zip(values, names, strict=True)]
        pads, strides = list(op.padding), list(op.strides)
        nodes = [
            helper.make_node("Conv", ["x", *names], ["c"], pads=pads, strides=strides, kernel_shape=list(op.kernel)),
            helper.make_node("Relu", ["c"], ["y"]),
        ]
        ends = [
            helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
            for name, shape in (
                ("x", (1, op.in_channels, op.in_rows, op.in_cols)),
                ("y", (1, op.out_channels, op.out_rows, op.out_cols)),
            )
        ]
        graph = helper.make_graph(nodes, "layer", ends[:1], ends[1:], constants)
        self._model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)

    def __enter__(self) -> _Session:
        self._folder = tempfile.TemporaryDirectory()
        options = one_thread()
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(self._folder.name) / "profile")
        self._session = onnxruntime.InferenceSession(self._model.SerializeToString(), options)
        return self

    def run(self, x: Any) -> None:
        self._session.run(None, {"x": x})

    def __exit__(self, *_: object) -> None:
        events = json.loads(Path(self._session.end_profiling()).read_text(encoding="utf-8"))
        self._seconds = [
            event["dur"] / 1e6
            for event in events
            if event.get("args", {}).get("op_name") == "Conv" and event["name"].endswith("_kernel_time")
        ]
        self._folder.cleanup()

    def conv_seconds(self) -> list[float]:
        """Of each run."""
        return self._seconds


def one_thread() -> onnxruntime.SessionOptions:
    """Options of a session with a single thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return options
