"""Resizes: cases of the public record (``a06`` ...), and all methods and coordinates."""

from __future__ import annotations

from typing import Any

from conformance.grammar import Case, Four, Node, Source

MODES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn")


def resize(
    name: str,
    x: Four,
    size: tuple[int, int],
    sram_bytes: int,
    chunks: int,
    method: str = "linear",
    mode: str = "half_pixel",
    rounding: str = "",
    **rest: Any,
) -> Case:
    """A case of one resize."""
    attrs = {"size": size, "method": method, "coordinate_transformation_mode": mode, "rounding_method": rounding}
    return Case(name, (Source("x", x),), (Node("y", "resize2d", ("x",), attrs),), ("y",), sram_bytes, (chunks,), **rest)


REPORTED: tuple[Case, ...] = (
    *(
        resize(
            f"a06_{size}_{method}",
            x,
            (out, out),
            sram_bytes,
            chunks,
            method,
            about="coordinates were wrong at scales that are no integers",
        )
        for size, method, x, out, sram_bytes, chunks in (
            ("small", "linear", (1, 1, 3, 3), 7, 512, 4),
            ("small", "nearest_neighbor", (1, 1, 3, 3), 7, 512, 3),
            ("large", "linear", (1, 8, 32, 32), 80, 65536, 4),
            ("large", "nearest_neighbor", (1, 8, 32, 32), 80, 65536, 4),
        )
    ),
    *(
        resize(
            f"a07_{chunks}_chunks",
            (1, 4, 33, 33),
            (65, 65),
            sram_bytes,
            chunks,
            mode="align_corners",
            about="a last chunk of one row must not divide by zero",
        )
        for sram_bytes, chunks in ((16896, 6), (12136, 9))
    ),
)

# Up in one axis and down in the other, by scales that are no integers, then both the other way round.
SHAPES = (((1, 3, 5, 12), (9, 4), 1600), ((2, 3, 9, 4), (4, 7), 1024))

ATTRIBUTES: tuple[Case, ...] = (
    *(
        resize(f"{method}_{mode}", *SHAPES[at % 2], 2, method, mode)
        for method in ("linear", "cubic")
        for at, mode in enumerate(MODES)
    ),
    *(
        resize(
            f"nearest_{mode}_{rounding or 'default'}",
            (1, 3, 7, 11),
            (16, 4),
            1024,
            chunks,
            "nearest_neighbor",
            mode,
            rounding,
        )
        for mode, rounding, chunks in (
            ("half_pixel", "", 3),
            ("half_pixel", "round", 4),
            ("pytorch_half_pixel", "ceil", 3),
            ("align_corners", "round_prefer_floor", 3),
            ("asymmetric", "floor", 3),
            ("asymmetric", "round_prefer_ceil", 3),
            ("tf_half_pixel_for_nn", "", 4),
        )
    ),
    resize("nearest_whole_scales", (2, 5, 6, 7), (12, 21), 2048, 6, "nearest_neighbor", "asymmetric", "floor"),
    resize("linear_whole_scales", (1, 5, 6, 7), (18, 14), 4096, 3),
    resize("linear_one_input_row", (1, 3, 1, 6), (5, 9), 512, 5),
    resize("linear_in_columns", (1, 4, 2, 40), (3, 80), 4000, 3),
    resize("linear_one_position_too_much", (1, 4, 6, 5), (12, 10), 64, 0, reason="not even 1 row, 1 column"),
)

CASES = (*REPORTED, *ATTRIBUTES)
