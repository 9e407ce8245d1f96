"""A toy NPU's rule of what fits, and what ``SplitOversized`` must make of it, for the suites that have a TVM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tvm_sramtile.errors import DoesNotFit
from tvm_sramtile.ir import Step
from tvm_sramtile.options import Options
from tvm_sramtile.plan import Charge, Term, Tile

LIMIT_BYTES = 8192
CODEGEN = "toynpu"
TOLERANCE = 1e-3  # of values up to 500


@dataclass(frozen=True)
class ToyMemory:
    """What fits the toy: the maps that a convolution reads and writes, of all images, in one memory."""

    limit_bytes: int = LIMIT_BYTES
    row_multiple: int = 1
    row_minimum: int = 1
    channel_multiple: int = 1
    unit_kernels: tuple[tuple[int, int], ...] | None = None
    name: str = CODEGEN

    def charge(self, step: Step, tile: Tile) -> Charge:
        read = 4 * step.images * tile.in_rows * tile.in_cols * tile.in_channels
        written = 4 * step.images * tile.out_rows * tile.out_cols * tile.out_channels
        terms = (Term("input", "memory", read), Term("output", "memory", written))
        return Charge(terms, {"memory": self.limit_bytes})


WRONG_CHOICES: list[tuple[Any, dict[str, Any], str]] = [
    (ToyMemory(), {"axes": ["cols"]}, "option axes: 'cols' is none of rows, columns, channels"),
    (
        ToyMemory(),
        {"outline": True},
        "option outline = True with a capacity of your own: outlined functions carry a plan of our accelerator",
    ),
    (
        None,
        {"outline": True, "axes": ["rows"]},
        "option outline = True with axes = ('rows',): outlined functions carry a plan of our accelerator",
    ),
]


def check_where_cuts_may_go(
    front: Any, mod: Any, shapes_of: Callable[[Any], list[tuple[int, ...]]], convolution: str
) -> None:
    """``mod`` is a 1x1 convolution, called ``convolution``, from 2x8x20x14 to 4 channels; see ``shapes_of`` of each."""

    def shapes(*axes: Any, **rules: Any) -> list[tuple[int, ...]]:
        return shapes_of(front.SplitOversized(ToyMemory(**rules), axes=axes)(mod))

    half = {"limit_bytes": LIMIT_BYTES // 2}
    assert shapes("rows", **half) == [(2, 4, 3, 14)] * 6 + [(2, 4, 2, 14)]
    assert shapes("rows", row_multiple=2, **half) == [(2, 4, 2, 14)] * 10
    assert shapes("columns", **half) == [(2, 4, 20, 2)] * 7
    many = shapes("channels")  # of the output, and parts of the sum
    assert len(many) > 4
    assert {shape[2:] for shape in many} == {(20, 14)}
    with pytest.raises(DoesNotFit) as caught:
        front.SplitOversized(ToyMemory(**half), Options(on_refusal="error"), axes=["channels"])(mod)
    assert str(caught.value).startswith(
        f"conv2d {convolution} (2x8x20x14): not even 20 rows, 14 columns and 1 channel of output fit toynpu: "
        "input 2240 + output 2240 = 4480 B in memory, 384 B more than its 4096 B. "
    )
