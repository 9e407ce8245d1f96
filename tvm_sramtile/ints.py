"""Exact integer maths, in one place: rounding and half-open ranges."""

from __future__ import annotations

from dataclasses import dataclass


def ceil_div(value: int, divisor: int) -> int:
    """The least integer not below ``value / divisor``; ``divisor`` is positive."""
    return -(-value // divisor)


def round_up(value: int, multiple: int) -> int:
    """The least multiple of ``multiple`` (positive) not below ``value``."""
    return ceil_div(value, multiple) * multiple


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """The half-open range ``[start, stop)`` of rows, columns or channels; ``stop == start`` is the empty range."""

    start: int
    stop: int

    def __post_init__(self) -> None:
        if self.stop < self.start:
            raise ValueError(f"range [{self.start}, {self.stop}) ends before it starts")

    def __len__(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        return f"{self.start}-{self.stop}"


def cut(extent: int, size: int) -> tuple[Range, ...]:
    """Cut ``[0, extent)`` into ranges of ``size``, the last one perhaps smaller."""
    return tuple(Range(start, min(start + size, extent)) for start in range(0, extent, size))
