"""What a conformance case is: a small graph, the accelerator, and what must come of it. Free of TVM."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from core import oracle, oracle_resize
from numpy.typing import NDArray

from tvm_sramtile.hw import AcceleratorSpec

Array = NDArray[np.float32]
Shape = tuple[int, ...]
Four = tuple[int, int, int, int]

CUT = ("conv2d", "conv2d_transpose", "resize2d")
"""The operators whose chunks a case states."""


@dataclass(frozen=True, slots=True)
class Source:
    """A tensor that a function is given: a constant of the module, or a parameter."""

    name: str
    shape: Shape
    constant: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """An operator.

    * ``conv2d(data, weight)`` and ``conv2d_transpose(data, weight)`` with strides, padding (top, left, bottom, right),
      dilation, groups, the latter with output_padding; NCHW, OIHW, IOHW unless data_layout and kernel_layout differ
    * ``resize2d(data)`` to size (rows, cols) with method, coordinate_transformation_mode, rounding_method
    * ``max_pool2d(data)`` and ``avg_pool2d(data)`` of pool_size with strides and padding (top, left, bottom, right);
      the mean counts padding too
    * ``pad(data)`` by width (top, left, bottom, right) with value
    * ``bias_add(value, bias)``: the bias has one element for each position of axis (1)
    * ``relu(value)``, ``clip(value)`` with low and high, ``tanh(value)``, ``add`` and ``multiply`` of two values
    * ``concatenate(value, ...)`` of channels
    * ``tuple(value, ...)``, and ``item(tuple)`` with index
    * ``call(value, ...)`` of another function
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Function:
    """A function beside ``main``, with constants of its own; it yields its last node, of this shape."""

    name: str
    sources: tuple[Source, ...]
    nodes: tuple[Node, ...]
    shape: Shape


@dataclass(frozen=True)
class Case:
    """A graph, the accelerator, and what must come of it.

    Attributes:
        outputs: names of the results, those of a tuple in a tuple; ``main`` returns a tuple when there is more than
            one.
        chunks: for each operator of ``CUT`` how many chunks its region has, in the order of execution; 0 where it
            stays on the host.
        reason: part of the reason why an op stays on the host.
        channel_align: small, so that the reported SRAM sizes give about the reported chunks.
        functions: what ``main`` may call.
        not_built_by: the front ends whose TVM does not build the original: numpy alone says what is right there.
    """

    name: str
    sources: tuple[Source, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Any, ...]
    sram_bytes: int
    chunks: tuple[int, ...]
    about: str = ""
    reason: str = ""
    channel_align: int = 4
    unit_kernels: tuple[tuple[int, int], ...] = ((1, 1), (3, 3))
    functions: tuple[Function, ...] = ()
    not_built_by: tuple[str, ...] = ()

    @property
    def spec(self) -> AcceleratorSpec:
        """The accelerator of this case."""
        return AcceleratorSpec(
            name=f"test-{self.sram_bytes}",
            sram_bytes=self.sram_bytes,
            channel_align=self.channel_align,
            unit_kernels=self.unit_kernels,
            mac_array=(4, 4),
        )

    @property
    def all_nodes(self) -> tuple[Node, ...]:
        """The nodes of all functions."""
        return (*self.nodes, *(node for function in self.functions for node in function.nodes))

    @property
    def all_sources(self) -> tuple[Source, ...]:
        """The sources of ``main``, and the constants of the other functions."""
        constants = (source for function in self.functions for source in function.sources if source.constant)
        return (*self.sources, *constants)

    @property
    def flat_outputs(self) -> tuple[str, ...]:
        """The names of the results without their nesting."""
        return tuple(_flat(self.outputs))

    def values(self) -> dict[str, Array]:
        """Values of all sources by name, the same every time."""
        return {source.name: values_of(f"{self.name}.{source.name}", source.shape) for source in self.all_sources}

    @cached_property
    def computed(self) -> Mapping[str, Any]:
        """The values of all sources and nodes of ``main`` by the numpy oracle."""
        return self.run(self.values())

    def expected(self) -> tuple[Array, ...]:
        """The results by the numpy oracle."""
        return tuple(self.computed[name] for name in self.flat_outputs)

    @property
    def tolerance(self) -> float:
        """Absolute tolerance of the results: it grows with the longest sum."""
        shapes = {source.name: source.shape for source in self.all_sources}
        convolved = [node for node in self.all_nodes if "conv2d" in node.op]
        sums = [int(np.prod(shapes[node.inputs[1]])) // _out_channels(node, shapes) for node in convolved]
        return 4 * oracle.tolerance(sum(sums)) * max(1, len(sums) ** 2)

    def run(self, values: Mapping[str, Array]) -> dict[str, Any]:
        """The values of all sources and nodes of ``main``, from those of the sources."""
        return self._run_nodes(self.nodes, dict(values))

    def _run_nodes(self, nodes: tuple[Node, ...], known: dict[str, Any]) -> dict[str, Any]:
        for node in nodes:
            inputs = [known[name] for name in node.inputs]
            known[node.name] = self._call(node, inputs, known) if node.op == "call" else evaluate(node, inputs)
        return known

    def _call(self, node: Node, arguments: list[Any], values: Mapping[str, Any]) -> Any:
        function = next(one for one in self.functions if one.name == node.attrs["function"])
        given = [source.name for source in function.sources if not source.constant]
        known = {source.name: values[source.name] for source in function.sources if source.constant}
        known |= zip(given, arguments, strict=True)
        return self._run_nodes(function.nodes, known)[function.nodes[-1].name]


def _flat(outputs: tuple[Any, ...]) -> Iterator[str]:
    for output in outputs:
        yield from (output,) if isinstance(output, str) else _flat(output)


def _out_channels(node: Node, shapes: Mapping[str, Shape]) -> int:
    layout = node.attrs.get("kernel_layout", "OIHW" if node.op == "conv2d" else "IOHW")
    return shapes[node.inputs[1]][layout.index("O")]


def values_of(key: str, shape: Shape) -> Array:
    """Normally distributed values that depend on the key and the shape only."""
    return np.random.default_rng(zlib.crc32(key.encode())).standard_normal(shape, dtype=np.float32)


def evaluate(node: Node, inputs: list[Any]) -> Any:
    """One operator by the oracle."""
    attrs = dict(node.attrs)
    match node.op:
        case "conv2d":
            return _convolved(oracle.conv2d, "OIHW", attrs, *inputs)
        case "conv2d_transpose":
            return _convolved(oracle.conv2d_transpose, "IOHW", attrs, *inputs)
        case "resize2d":
            return _resized(attrs, inputs[0])
        case "max_pool2d" | "avg_pool2d":
            return _pooled("max" if node.op == "max_pool2d" else "average_all", attrs, inputs[0])
        case "pad":
            top, left, bottom, right = attrs["width"]
            return np.pad(
                inputs[0], ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=np.float32(attrs["value"])
            )
        case "bias_add":
            shape = [1] * inputs[0].ndim
            shape[attrs.get("axis", 1)] = -1
            return inputs[0] + inputs[1].reshape(shape)
        case "relu":
            return np.maximum(inputs[0], np.float32(0))
        case "clip":
            return np.clip(inputs[0], np.float32(attrs["low"]), np.float32(attrs["high"]))
        case "tanh":
            return np.tanh(inputs[0])
        case "add":
            return inputs[0] + inputs[1]
        case "multiply":
            return inputs[0] * inputs[1]
        case "concatenate":
            return np.concatenate(inputs, axis=1)
        case "tuple":
            return tuple(inputs)
        case "item":
            return inputs[0][attrs["index"]]
        case _:
            raise ValueError(f"no operator {node.op!r}")


def _convolved(convolve: Any, default: str, attrs: dict[str, Any], data: Array, weight: Array) -> Array:
    layout, kernel_layout = attrs.pop("data_layout", "NCHW"), attrs.pop("kernel_layout", default)
    source, kernel = _reordered(data, layout, "NCHW"), _reordered(weight, kernel_layout, default)
    return _reordered(convolve(source, kernel, **attrs), "NCHW", layout)


def _reordered(value: Array, before: str, after: str) -> Array:
    return value.transpose([before.index(letter) for letter in after])


def _resized(attrs: dict[str, Any], data: Array) -> Array:
    how = {
        "method": attrs["method"],
        "mode": attrs["coordinate_transformation_mode"],
        "rounding": attrs.get("rounding_method", ""),
        "alpha": -0.5,
    }
    rows, cols = (oracle_resize.axis(data.shape[2 + at], attrs["size"][at], **how) for at in range(2))
    return oracle_resize.resize2d(data, rows, cols).astype(np.float32)


def _pooled(kind: str, attrs: dict[str, Any], data: Array) -> Array:
    kernel, strides, (top, left, bottom, right) = attrs["pool_size"], attrs["strides"], attrs["padding"]
    sizes = (data.shape[2] + top + bottom, data.shape[3] + left + right)
    extents = tuple((size - kernel[at]) // strides[at] + 1 for at, size in enumerate(sizes))
    return oracle.pool2d(data, kind, kernel, (extents[0], extents[1]), strides=strides, padding=(top, left))


# How cases are written.


def conv(
    name: str,
    x: Four,
    w: Four,
    sram_bytes: int,
    chunks: int,
    *,
    op: str = "conv2d",
    weight_constant: bool = True,
    bias: str | None = None,
    clip: tuple[float, float] | str | None = None,
    **attrs: Any,
) -> Case:
    """A case of one convolution: ``bias`` is "constant" or "parameter", ``clip`` is "relu" or two limits.

    ``attrs`` are those of the operator, and of the case.
    """
    rest = {key: attrs.pop(key) for key in _REST if key in attrs}
    layout, default = attrs.get("data_layout", "NCHW"), "OIHW" if op == "conv2d" else "IOHW"
    channels = w[attrs.get("kernel_layout", default).index("O")]
    channels *= 1 if op == "conv2d" else attrs.get("groups", 1)
    sources = [Source("x", x), Source("w", w, weight_constant)]
    nodes = [Node("conv", op, ("x", "w"), attrs)]
    if bias is not None:
        sources.append(Source("b", (channels,), bias == "constant"))
        nodes.append(Node("biased", "bias_add", ("conv", "b"), {"axis": layout.index("C")}))
    if clip == "relu":
        nodes.append(Node("clipped", "relu", (nodes[-1].name,)))
    elif isinstance(clip, tuple):
        nodes.append(Node("clipped", "clip", (nodes[-1].name,), {"low": clip[0], "high": clip[1]}))
    return Case(name, tuple(sources), tuple(nodes), (nodes[-1].name,), sram_bytes, (chunks,), **rest)


_REST = ("about", "reason", "channel_align", "unit_kernels", "not_built_by")


def conv_node(name: str, data: str, weight: str, pad: int = 1) -> Node:
    """A plain convolution inside a graph."""
    return Node(name, "conv2d", (data, weight), {"padding": (pad,) * 4})
