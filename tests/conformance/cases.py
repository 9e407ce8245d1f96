"""What both front ends must get right: small graphs, specs that cut them, and how many chunks come of it.

Free of TVM. A front end builds each graph in its own IR and compares with ``Case.expected``. Cases named after faults
of the public record (``a08`` ...) carry what was reported in ``about``.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from core import oracle
from numpy.typing import NDArray

from tvm_sramtile.hw import AcceleratorSpec

Array = NDArray[np.float32]
Shape = tuple[int, ...]
Four = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Source:
    """A tensor that the graph is given: a constant of the module, or a parameter of ``main``."""

    name: str
    shape: Shape
    constant: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """An operator.

    * ``conv2d(data, weight)`` with strides, padding (top, left, bottom, right), dilation, groups: NCHW, OIHW
    * ``bias_add(value, bias)``: the bias has one element a channel
    * ``relu(value)``, ``clip(value)`` with low and high, ``tanh(value)``
    * ``add(value, value)``
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Case:
    """A graph, the accelerator, and what must come of it.

    Attributes:
        outputs: names of the results; ``main`` returns a tuple when there is more than one.
        chunks: for each conv2d in order how many chunks its region has; 0 where it stays on the host.
        reason: part of the reason why an op stays on the host.
        channel_align: small, so that the reported SRAM sizes give about the reported chunks.
    """

    name: str
    sources: tuple[Source, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    sram_bytes: int
    chunks: tuple[int, ...]
    about: str = ""
    reason: str = ""
    channel_align: int = 4
    unit_kernels: tuple[tuple[int, int], ...] = ((1, 1), (3, 3))

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

    def values(self) -> dict[str, Array]:
        """Values of all sources by name, the same every time."""
        return {source.name: values_of(f"{self.name}.{source.name}", source.shape) for source in self.sources}

    def shapes(self) -> dict[str, Shape]:
        """Shapes of all sources and nodes by name."""
        return {name: value.shape for name, value in self._run().items()}

    def expected(self) -> tuple[Array, ...]:
        """The results by the numpy oracle."""
        computed = self._run()
        return tuple(computed[name] for name in self.outputs)

    @property
    def tolerance(self) -> float:
        """Absolute tolerance of the results: it grows with the longest sum."""
        shapes = {source.name: source.shape for source in self.sources}
        sums = [int(np.prod(shapes[node.inputs[1]][1:])) for node in self.nodes if node.op == "conv2d"]
        return 4 * oracle.tolerance(sum(sums)) * max(1, len(sums) ** 2)

    def _run(self) -> dict[str, Array]:
        computed = self.values()
        for node in self.nodes:
            computed[node.name] = evaluate(node, [computed[name] for name in node.inputs])
        return computed


def values_of(key: str, shape: Shape) -> Array:
    """Normally distributed values that depend on the key and the shape only."""
    return np.random.default_rng(zlib.crc32(key.encode())).standard_normal(shape, dtype=np.float32)


def evaluate(node: Node, inputs: list[Array]) -> Array:
    """One operator by the oracle."""
    match node.op:
        case "conv2d":
            return oracle.conv2d(inputs[0], inputs[1], **node.attrs)
        case "bias_add":
            return inputs[0] + inputs[1].reshape(1, -1, 1, 1)
        case "relu":
            return np.maximum(inputs[0], np.float32(0))
        case "clip":
            return np.clip(inputs[0], np.float32(node.attrs["low"]), np.float32(node.attrs["high"]))
        case "tanh":
            return np.tanh(inputs[0])
        case "add":
            return inputs[0] + inputs[1]
        case _:
            raise ValueError(f"no operator {node.op!r}")


def conv(
    name: str,
    x: Four,
    w: Four,
    sram_bytes: int,
    chunks: int,
    *,
    strides: tuple[int, int] = (1, 1),
    padding: Four = (0, 0, 0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    weight_constant: bool = True,
    bias: str | None = None,
    clip: tuple[float, float] | str | None = None,
    **rest: Any,
) -> Case:
    """A case of one convolution: ``bias`` is "constant" or "parameter", ``clip`` is "relu" or two limits."""
    sources = [Source("x", x), Source("w", w, weight_constant)]
    attrs = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
    nodes = [Node("conv", "conv2d", ("x", "w"), attrs)]
    if bias is not None:
        sources.append(Source("b", (w[0],), bias == "constant"))
        nodes.append(Node("biased", "bias_add", ("conv", "b")))
    if clip == "relu":
        nodes.append(Node("clipped", "relu", (nodes[-1].name,)))
    elif isinstance(clip, tuple):
        nodes.append(Node("clipped", "clip", (nodes[-1].name,), {"low": clip[0], "high": clip[1]}))
    return Case(name, tuple(sources), tuple(nodes), (nodes[-1].name,), sram_bytes, (chunks,), **rest)


def _conv2d(name: str, data: str, weight: str, pad: int = 1) -> Node:
    attrs = {"strides": (1, 1), "padding": (pad,) * 4, "dilation": (1, 1), "groups": 1}
    return Node(name, "conv2d", (data, weight), attrs)


REPORTED: tuple[Case, ...] = (
    conv(
        "a08_bottom_right",
        (1, 8, 17, 17),
        (8, 8, 3, 3),
        6144,
        4,
        strides=(2, 2),
        padding=(0, 0, 1, 1),
        about="one pad was read for both top and bottom",
    ),
    conv("a08_top_left", (1, 8, 17, 17), (8, 8, 3, 3), 6144, 4, strides=(2, 2), padding=(1, 1, 0, 0)),
    conv(
        "a09_stride_2",
        (1, 3, 33, 33),
        (8, 3, 3, 3),
        5000,
        9,
        strides=(2, 2),
        padding=(1, 1, 1, 1),
        about="rows had to be divisible by the stride",
    ),
    conv("a09_pointwise_stride_2", (1, 3, 33, 33), (8, 3, 1, 1), 4096, 9, strides=(2, 2)),
    *(
        conv(
            f"a10_dilation_{d}",
            (1, 16, 16, 44),
            (16, 16, 3, 3),
            sram_bytes,
            4,
            padding=(d,) * 4,
            dilation=(d, d),
            about="slices in height gave garbage for dilation wider than a chunk",
        )
        for d, sram_bytes in ((12, 65536), (15, 65536), (18, 32768))
    ),
    conv(
        "a11_uneven_last",
        (1, 1, 64, 64),
        (10, 1, 3, 3),
        51200,
        6,
        about="does the compiler split H when a map exceeds the buffer?",
    ),
    conv("a11_stride_2", (1, 16, 52, 52), (32, 16, 3, 3), 45056, 13, strides=(2, 2), padding=(1, 1, 1, 1)),
    Case(
        "a15_three_consumers",
        (Source("x", (1, 8, 32, 32)), Source("w", (8, 8, 3, 3), True), Source("one", (1, 1, 1, 1), True)),
        (
            _conv2d("y", "x", "w"),
            Node("relu", "relu", ("y",)),
            Node("tanh", "tanh", ("y",)),
            Node("more", "add", ("y", "one")),
        ),
        ("relu", "tanh", "more"),
        21504,
        (4,),
        about="an output with several consumers was put into the result tuple several times",
    ),
    conv(
        "a16_constant",
        (1, 8, 24, 24),
        (8, 8, 3, 3),
        13312,
        4,
        padding=(1, 1, 1, 1),
        about="constants or parameters: back ends need both",
    ),
    conv("a16_parameter", (1, 8, 24, 24), (8, 8, 3, 3), 13312, 4, padding=(1, 1, 1, 1), weight_constant=False),
    conv(
        "a19_roomy",
        (1, 4, 8, 8),
        (4, 4, 3, 3),
        1 << 20,
        1,
        padding=(1, 1, 1, 1),
        about="a concatenation of one tensor gave random data",
    ),
    conv("a19_one_more", (1, 4, 8, 8), (4, 4, 3, 3), 2625, 1, padding=(1, 1, 1, 1)),
    conv("a19_exact", (1, 4, 8, 8), (4, 4, 3, 3), 2624, 1, padding=(1, 1, 1, 1)),
    conv("a19_one_less", (1, 4, 8, 8), (4, 4, 3, 3), 2623, 2, padding=(1, 1, 1, 1)),
    Case(
        "a20_residual",
        (Source("x", (1, 16, 32, 32)), Source("w", (16, 16, 3, 3), True)),
        (_conv2d("conv", "x", "w"), Node("sum", "add", ("conv", "x")), Node("y", "relu", ("sum",))),
        ("y",),
        38912,
        (6,),
        about="an addition's output pointer was not advanced per tile",
    ),
    conv(
        "a21_one_row_too_much",
        (1, 16, 4, 1024),
        (16, 16, 3, 3),
        65536,
        20,
        padding=(1, 1, 1, 1),
        about="found at run time only, and 'internal error' says nothing; here columns are cut too",
    ),
)

ATTRIBUTES: tuple[Case, ...] = (
    conv("batch", (3, 5, 12, 9), (6, 5, 3, 3), 3840, 4, padding=(1, 1, 1, 1), bias="constant", clip="relu"),
    conv("groups", (1, 8, 13, 10), (12, 2, 3, 3), 3584, 7, padding=(1, 1, 1, 1), groups=4, bias="constant"),
    conv("groups_off_alignment", (2, 6, 9, 7), (10, 3, 3, 3), 4096, 2, padding=(1, 0, 1, 0), groups=2),
    conv(
        "depthwise",
        (1, 10, 14, 11),
        (10, 1, 3, 3),
        4096,
        7,
        padding=(1, 1, 1, 1),
        groups=10,
        bias="constant",
        clip=(0.0, 6.0),
    ),
    conv(
        "depthwise_multiplier", (1, 5, 12, 8), (10, 1, 3, 3), 2816, 5, padding=(0, 1, 0, 1), groups=5, bias="parameter"
    ),
    conv("four_pads", (1, 4, 11, 9), (7, 4, 3, 3), 2816, 6, padding=(2, 0, 1, 3), bias="parameter", clip="relu"),
    conv("strides_differ", (1, 4, 15, 12), (5, 4, 3, 3), 2816, 4, strides=(2, 3), padding=(1, 2, 0, 1)),
    conv("dilations_differ", (1, 4, 14, 13), (5, 4, 3, 3), 4096, 7, dilation=(3, 2), padding=(3, 2, 3, 2)),
    conv(
        "dilation_with_stride",
        (1, 3, 16, 12),
        (4, 3, 3, 3),
        3072,
        2,
        strides=(3, 2),
        dilation=(2, 3),
        padding=(2, 3, 2, 3),
        clip=(-0.5, 0.75),
    ),
    conv("stride_above_kernel", (1, 6, 17, 13), (5, 6, 1, 1), 2304, 3, strides=(3, 4), bias="constant"),
    conv(
        "padding_above_kernel",
        (1, 3, 5, 6),
        (4, 3, 3, 3),
        1024,
        11,
        padding=(4, 5, 4, 5),
        bias="constant",
        about="some chunks lie wholly in padding and yield the bias",
    ),
    conv("kernel_above_map", (1, 3, 2, 1), (4, 3, 3, 3), 488, 2, padding=(1, 1, 1, 1)),
    conv("one_row", (1, 4, 1, 9), (6, 4, 3, 3), 2048, 1, padding=(1, 1, 1, 1), bias="constant"),
    conv("one_row_chunks", (1, 4, 7, 9), (6, 4, 3, 3), 2048, 7, padding=(1, 1, 1, 1), bias="constant", clip="relu"),
    conv("unit_5x5", (1, 3, 12, 10), (4, 3, 5, 5), 3072, 4, padding=(2, 2, 2, 2), unit_kernels=((5, 5),)),
    conv("unit_not_square", (1, 3, 12, 10), (4, 3, 1, 3), 1536, 3, padding=(0, 1, 0, 1), unit_kernels=((1, 3),)),
    conv(
        "all_parameters",
        (2, 4, 12, 9),
        (6, 4, 3, 3),
        3072,
        4,
        padding=(1, 1, 1, 1),
        weight_constant=False,
        bias="parameter",
        clip=(-1.0, 1.0),
    ),
    conv("kernel_that_is_no_unit", (1, 3, 12, 10), (4, 3, 3, 2), 1 << 20, 1),
    conv(
        "one_position_too_much",
        (1, 4, 12, 10),
        (4, 4, 3, 3),
        256,
        0,
        padding=(1, 1, 1, 1),
        reason="not even 1 row, 1 column",
    ),
)

GRAPHS: tuple[Case, ...] = (
    Case(
        "chain",
        (
            Source("x", (1, 3, 16, 12)),
            Source("w0", (8, 3, 3, 3), True),
            Source("b0", (8,), True),
            Source("w1", (4, 8, 1, 1), True),
        ),
        (
            _conv2d("c0", "x", "w0"),
            Node("biased", "bias_add", ("c0", "b0")),
            Node("r", "relu", ("biased",)),
            _conv2d("c1", "r", "w1", 0),
            Node("y", "clip", ("c1",), {"low": -1.0, "high": 2.0}),
        ),
        ("y",),
        4096,
        (4, 3),
    ),
    Case(
        "shared_weight",
        (Source("x", (1, 4, 12, 10)), Source("w", (4, 4, 3, 3), True)),
        (_conv2d("c0", "x", "w"), Node("r", "relu", ("c0",)), _conv2d("c1", "r", "w")),
        ("c1",),
        2560,
        (3, 3),
    ),
    Case(
        "shared_parameter",
        (Source("x", (1, 4, 12, 10)), Source("w", (4, 4, 3, 3))),
        (_conv2d("c0", "x", "w"), _conv2d("c1", "c0", "w")),
        ("c1",),
        2560,
        (3, 3),
    ),
    Case("same_tensor_twice", (Source("x", (3, 3, 3, 3)),), (_conv2d("y", "x", "x"),), ("y",), 640, (3,)),
    Case(
        "branches",
        (Source("x", (1, 4, 12, 10)), Source("w0", (4, 4, 3, 3), True), Source("w1", (4, 4, 1, 1), True)),
        (_conv2d("c0", "x", "w0"), _conv2d("c1", "x", "w1", 0), Node("y", "add", ("c0", "c1"))),
        ("y",),
        2560,
        (3, 2),
    ),
    Case(
        "output_between",
        (Source("x", (1, 4, 12, 10)), Source("w", (5, 4, 3, 3), True), Source("b", (5,), True)),
        (_conv2d("c", "x", "w"), Node("biased", "bias_add", ("c", "b")), Node("y", "relu", ("biased",))),
        ("biased", "y"),
        3328,
        (4,),
        about="a value that is an output is not swallowed by the epilogue",
    ),
)

CASES = (*REPORTED, *ATTRIBUTES, *GRAPHS)
