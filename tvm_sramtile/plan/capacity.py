"""What fits: a step and a tile in, named byte terms with their limits out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose, Elementwise, Resize2d
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ints import round_up
from tvm_sramtile.ir import Step, Tensor, dtype_bytes
from tvm_sramtile.isa.table import TABLE_ENTRY_BYTES
from tvm_sramtile.plan.plan import ALONE, POOL, Around

ACCUMULATOR_BYTES = 4  # of float32 and of int32


@dataclass(frozen=True, slots=True)
class Tile:
    """The part of a step that is on the chip at a time.

    Attributes:
        out_rows, out_cols, out_channels: extents of the output.
        held_channels: output channels whose weights and vectors are resident; more than ``out_channels`` where chunks
            of channels take turns while the weights of all of them stay.
        in_rows, in_cols, in_channels: extents of the input that is read for them at a time; channels of all groups.
        taps: kernel taps whose weights are resident at a time.
    """

    out_rows: int
    out_cols: int
    out_channels: int
    held_channels: int
    in_rows: int
    in_cols: int
    in_channels: int
    taps: int


@dataclass(frozen=True, slots=True)
class Term:
    """Bytes that must be resident, by name, and the memory that holds them."""

    name: str
    memory: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Charge:
    """All that must be resident at once, and the limits of the memories, in bytes.

    Raises:
        ValueError: a term in a memory without a limit.
    """

    terms: tuple[Term, ...]
    limits: Mapping[str, int]

    def __post_init__(self) -> None:
        for term in self.terms:
            if term.memory not in self.limits:
                raise ValueError(f"term {term.name!r} is in memory {term.memory!r}: limits are of {list(self.limits)}")

    def bytes_of(self, name: str) -> int:
        """The bytes of the term ``name``, 0 when there is none."""
        return sum(term.bytes for term in self.terms if term.name == name)

    def used_bytes(self, memory: str) -> int:
        """The sum of the terms in one memory."""
        return sum(term.bytes for term in self.terms if term.memory == memory)

    @property
    def overflowing(self) -> tuple[str, ...]:
        """The memories whose terms exceed their limit."""
        return tuple(memory for memory, limit in self.limits.items() if self.used_bytes(memory) > limit)

    @property
    def fits(self) -> bool:
        """Whether every memory holds its terms."""
        return not self.overflowing

    def space_bytes(self, name: str) -> int:
        """What the other terms of its memory leave for the term ``name``; may be negative."""
        memory = next(term.memory for term in self.terms if term.name == name)
        return self.limits[memory] - self.used_bytes(memory) + self.bytes_of(name)


class Capacity(Protocol):
    """A rule of what fits. Implement it to split for an accelerator that no ``AcceleratorSpec`` describes.

    Attributes:
        name: what errors and reports call it.
        row_multiple: chunk heights in output rows are multiples of it, but for the last chunk.
        row_minimum: least chunk height in output rows, but for the last chunk.
        channel_multiple: channels are cut at multiples of it.
        unit_kernels: the kernel sizes (rows, cols) that the accelerator computes; larger ones are cut into parts of at
            most such a size. Kernels and parts may be smaller than the unit that computes them. Of a transposed
            convolution each phase of the strides is a kernel. ``None``: any kernel.
    """

    @property
    def name(self) -> str: ...

    @property
    def row_multiple(self) -> int: ...

    @property
    def row_minimum(self) -> int: ...

    @property
    def channel_multiple(self) -> int: ...

    @property
    def unit_kernels(self) -> tuple[tuple[int, int], ...] | None: ...

    def charge(self, step: Step, tile: Tile) -> Charge:
        """The bytes resident for ``tile`` of ``step``, single-buffered; never less for a larger tile."""
        ...


@dataclass(frozen=True, slots=True)
class SpecCapacity:
    """The rule of our accelerator.

    Resident at once are the input chunk, the weights in flight, the bias and other vectors, the output chunk, and the
    accumulators: in the output's place where both have one type and there is no accumulator buffer, else beside it.
    Maps that stay in SRAM between steps (``around``) take no buffer, but room that others do not have.
    """

    spec: AcceleratorSpec
    row_multiple: int = 1
    row_minimum: int = 1
    around: Around = ALONE

    @property
    def name(self) -> str:
        """The spec's name."""
        return self.spec.name

    @property
    def channel_multiple(self) -> int:
        """Channels of a block."""
        return self.spec.channel_align

    @property
    def unit_kernels(self) -> tuple[tuple[int, int], ...]:
        """The spec's."""
        return self.spec.unit_kernels

    def charge(self, step: Step, tile: Tile) -> Charge:
        """See ``Capacity.charge``; the footprint is formula (1)."""
        layout = self.spec.layout
        place = dict.fromkeys(("input", "weight", "output"), POOL)
        if self.spec.sram_bytes is None:
            place = {memory: memory for memory in place}
        elem_bytes = dtype_bytes(step.data.dtype)
        in_bytes = layout.footprint_bytes(tile.in_rows, tile.in_cols, tile.in_channels, elem_bytes)
        out_bytes = layout.footprint_bytes(
            tile.out_rows, tile.out_cols, tile.out_channels, dtype_bytes(step.output.dtype)
        )
        terms = [Term(name, place["weight"], size) for name, size in self._small_terms(step, tile)]
        maps = [Term("input", place["input"], in_bytes)]
        if isinstance(step.op, Elementwise) and step.op.partner == "map":
            maps.append(Term("other", place["input"], in_bytes))
        maps.append(Term("output", place["output"], out_bytes))
        terms += [term for term in maps if term.name not in self.around.maps]
        own = self.spec.accumulator_bytes is not None
        beside = own or dtype_bytes(step.output.dtype) != ACCUMULATOR_BYTES
        if beside and isinstance(step.op, Conv2d | Conv2dTranspose):
            size = layout.footprint_bytes(tile.out_rows, tile.out_cols, tile.out_channels, ACCUMULATOR_BYTES)
            terms.append(Term("accumulators", "accumulator" if own else place["output"], size))
        limits = {str(memory): size for memory, size in self.spec.memories.items()}
        if self.around.taken_bytes:
            limits[POOL] -= self.around.taken_bytes
        return Charge(tuple(terms), limits)

    def _small_terms(self, step: Step, tile: Tile) -> list[tuple[str, int]]:
        """Weights, tables and vectors: what lies in the weight buffer."""
        lanes, op = self.spec.channel_align, step.op
        terms = []
        if step.weight is not None and isinstance(op, Conv2d | Conv2dTranspose):
            per_group = tile.in_channels if op.groups == 1 else _least(tile.in_channels, op.in_channels_per_group)
            elems = round_up(tile.held_channels, lanes) * per_group * tile.taps
            terms.append(("weights", elems * dtype_bytes(step.weight.dtype)))
        if isinstance(op, Resize2d):
            terms.append(("row table", tile.out_rows * op.rows.taps * TABLE_ENTRY_BYTES))
            terms.append(("col table", tile.out_cols * op.cols.taps * TABLE_ENTRY_BYTES))
        for name, tensor in vectors(step):
            size = self.spec.layout.footprint_bytes(1, 1, tile.held_channels, dtype_bytes(tensor.dtype))
            terms.append((name, size))
        return terms


def _least(count: Any, most: int) -> Any:
    """The smaller one, where a tile's extents are arrays too."""
    return np.minimum(count, most) if isinstance(count, np.ndarray) else min(count, most)


def vectors(step: Step) -> list[tuple[str, Tensor]]:
    """The vectors of a step, one value a channel, by the names of their buffers."""
    found = [("bias", step.bias)]
    if isinstance(step.op, Elementwise) and step.op.partner == "vector":
        found.append(("vector", step.other))
    found += [(f"vector {index}", activation.vector) for index, activation in enumerate(step.activations)]
    return [(name, tensor) for name, tensor in found if tensor is not None]
