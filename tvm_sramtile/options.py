"""How to compile: the choices that are the user's, not the chip's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from tvm_sramtile.errors import OptionError

Strategy = Literal["search", "seed"]
Objective = Literal["dram_bytes", "cycles"]
KernelSplit = Literal["seed", "best"]
OnRefusal = Literal["host", "error"]


@dataclass(frozen=True, slots=True)
class Options:
    """Compile options.

    Attributes:
        strategy: how chunks are chosen. ``"search"`` looks for the least ``objective`` among all cuts and orders;
            ``"seed"`` cuts finer until a chunk fits.
        objective: what the search minimises first, ``"dram_bytes"`` or ``"cycles"``; the other decides between equals.
            Cycles are an estimate, by which cuts that differ little count as equal; a plan's own are exact.
        kernel_split: how a kernel that is no unit is cut: ``"seed"`` pads it on its left and bottom to a grid of the
            largest unit, ``"best"`` mixes units for the fewest multiplications.
        double_buffer: let loads and stores of neighbouring chunks overlap with compute where a second buffer fits;
            never the cause of a split.
        on_refusal: what to do with an op that the accelerator does not take: ``"host"`` leaves it whole on the host;
            ``"error"`` raises where it is a convolution, plain or transposed, or a resize, and leaves the module
            untouched. Others stay on the host.
        max_unrolled_chunks: a region's body is written as the chunked subgraph up to this many chunks, above it as the
            op itself; ``None`` is the front end's default (64 in Relax, 16 in Relay, where unrolled bodies compile
            slowly). The program does not depend on it.

    Raises:
        OptionError: a value that is not allowed.
    """

    strategy: Strategy = "search"
    objective: Objective = "dram_bytes"
    kernel_split: KernelSplit = "best"
    double_buffer: bool = True
    on_refusal: OnRefusal = "host"
    max_unrolled_chunks: int | None = None

    def __post_init__(self) -> None:
        _one_of("strategy", self.strategy, get_args(Strategy))
        _one_of("objective", self.objective, get_args(Objective))
        _one_of("kernel_split", self.kernel_split, get_args(KernelSplit))
        _one_of("on_refusal", self.on_refusal, get_args(OnRefusal))
        _one_of("double_buffer", self.double_buffer, (True, False))
        limit = self.max_unrolled_chunks
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise OptionError(f"option max_unrolled_chunks = {limit!r}: must be a positive integer or None")

    def replace(self, **changes: Any) -> Options:
        """A copy with some options changed; unknown names raise ``OptionError``."""
        unknown = sorted(set(changes) - set(self.__dataclass_fields__))
        if unknown:
            allowed = ", ".join(self.__dataclass_fields__)
            raise OptionError(f"option {unknown[0]!r} is unknown: allowed are {allowed}")
        return replace(self, **changes)


def _one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if not any(value is choice or (type(value) is type(choice) and value == choice) for choice in allowed):
        choices = ", ".join(repr(choice) for choice in allowed)
        raise OptionError(f"option {name} = {value!r}: must be one of {choices}")
