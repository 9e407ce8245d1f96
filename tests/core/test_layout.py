"""Formula (1), against a count of the places that a map's elements take."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tvm_sramtile.hw import StorageLayout

ALIGN = st.integers(1, 5)
EXTENT = st.integers(1, 12)


def test_formula_by_hand() -> None:
    layout = StorageLayout(lines=4, column_align=1, channel_align=16)
    assert layout.footprint_bytes(rows=5, cols=7, channels=17, dtype_bytes=4) == 8 * 7 * 32 * 4
    assert StorageLayout().footprint_bytes(5, 7, 16, 4) == 5 * 7 * 16 * 4
    assert StorageLayout().footprint_bytes(0, 0, 3, 4) == 0


@given(ALIGN, ALIGN, ALIGN, EXTENT, EXTENT, EXTENT)
def test_footprint_is_the_padded_map(
    lines: int, column_align: int, lanes: int, rows: int, cols: int, channels: int
) -> None:
    layout = StorageLayout(lines, column_align, lanes)

    def grow(extent: int, multiple: int) -> int:
        while extent % multiple:
            extent += 1
        return extent

    padded = grow(rows, lines) * grow(cols, column_align) * grow(channels, lanes)
    assert layout.footprint_bytes(rows, cols, channels, 4) == padded * 4
    assert layout.block_elems(rows, cols) * layout.blocks(channels) == padded
    assert layout.row_elems(cols) * grow(rows, lines) == layout.block_elems(rows, cols)


@given(ALIGN, ALIGN, ALIGN, EXTENT, EXTENT, EXTENT)
def test_every_element_has_a_place_of_its_own(
    lines: int, column_align: int, lanes: int, rows: int, cols: int, channels: int
) -> None:
    layout = StorageLayout(lines, column_align, lanes)
    places = {
        channel // lanes * layout.block_elems(rows, cols) + row * layout.row_elems(cols) + col * lanes + channel % lanes
        for channel in range(channels)
        for row in range(rows)
        for col in range(cols)
    }
    assert len(places) == channels * rows * cols
    assert max(places) < layout.footprint_bytes(rows, cols, channels, 1)
