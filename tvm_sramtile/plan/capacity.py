"""What fits: a step and a tile in, named byte terms with their limits out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Step, dtype_bytes


@dataclass(frozen=True, slots=True)
class Tile:
    """The part of a step on the chip at a time: rows and columns of its output, and of the input read for them."""

    out_rows: int
    out_cols: int
    in_rows: int
    in_cols: int


@dataclass(frozen=True, slots=True)
class Term:
    """Bytes that must be resident, by name, and the memory that holds them."""

    name: str
    memory: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Charge:
    """All that must be resident at once, and the limits of the memories, in bytes."""

    terms: tuple[Term, ...]
    limits: Mapping[str, int]

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
    """

    @property
    def name(self) -> str: ...

    @property
    def row_multiple(self) -> int: ...

    @property
    def row_minimum(self) -> int: ...

    def charge(self, step: Step, tile: Tile) -> Charge:
        """The bytes that must be resident for ``tile`` of ``step``, single-buffered."""
        ...


@dataclass(frozen=True, slots=True)
class SpecCapacity:
    """The rule of our accelerator.

    Resident at once are the input chunk, all weights, the bias, the output chunk, and the accumulators: in the output's
    place where both have one type and there is no accumulator buffer, else beside it.
    """

    spec: AcceleratorSpec
    row_multiple: int = 1
    row_minimum: int = 1

    @property
    def name(self) -> str:
        """The spec's name."""
        return self.spec.name

    def charge(self, step: Step, tile: Tile) -> Charge:
        """See ``Capacity.charge``; the footprint is formula (1)."""
        layout, op = self.spec.layout, step.op
        limits = {str(memory): size for memory, size in self.spec.memories.items()}
        place = dict.fromkeys(("input", "weight", "output"), "pool")
        if self.spec.sram_bytes is None:
            place = {memory: memory for memory in place}
        weight_elems = layout.blocks(op.out_channels) * layout.channel_align * step.weight.elems // op.out_channels
        out_elem_bytes = dtype_bytes(step.output.dtype)
        terms = [Term("weights", place["weight"], weight_elems * dtype_bytes(step.weight.dtype))]
        if step.bias is not None:
            bias_bytes = layout.footprint_bytes(1, 1, op.out_channels, dtype_bytes(step.bias.dtype))
            terms.append(Term("bias", place["weight"], bias_bytes))
        in_bytes = layout.footprint_bytes(tile.in_rows, tile.in_cols, op.in_channels, dtype_bytes(step.data.dtype))
        out_bytes = layout.footprint_bytes(tile.out_rows, tile.out_cols, op.out_channels, out_elem_bytes)
        terms.append(Term("input", place["input"], in_bytes))
        terms.append(Term("output", place["output"], out_bytes))
        if self.spec.accumulator_bytes is not None:
            terms.append(Term("accumulators", "accumulator", out_bytes))
        return Charge(tuple(terms), limits)
