"""Explicit padding of a map: whether a convolution that reads the padded map can do it itself."""

from __future__ import annotations

NO_READER = "no unit of the accelerator pads: convolutions do, where they alone read the map"

Width = tuple[tuple[int, int], ...]  # positions before and after each axis
Four = tuple[int, int, int, int]  # top, left, bottom, right


def pad_refusal(mode: str, value: float | None, width: Width) -> str:
    """Why no convolution can do this; "" where one may. A ``value`` of ``None`` is no constant."""
    if mode != "constant":
        return f"pad_mode = {mode!r}: convolutions pad with 0"
    if value != 0:
        return f"pad_value = {'no constant' if value is None else value}: convolutions pad with 0"
    if any(min(axis) < 0 for axis in width) or sum(axis != (0, 0) for axis in width) > 2:
        return f"pad_width = {width}: convolutions pad rows and columns"
    return ""


def pads_nothing(width: Width) -> bool:
    """Whether the padded map is the map itself."""
    return not any(any(axis) for axis in width)


def spatial_pads(width: Width, layout: str) -> Four | None:
    """What is padded of rows and columns of a map with this layout; ``None`` where other axes are padded, too."""
    if len(width) != len(layout):
        return None
    by_letter = dict(zip(layout, width, strict=True))
    (top, bottom), (left, right) = by_letter.pop("H"), by_letter.pop("W")
    return (top, left, bottom, right) if pads_nothing(tuple(by_letter.values())) else None
