"""Transposed convolution against a list of all its products, exhaustively on small domains."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import product

import pytest

from tvm_sramtile.geometry import Conv2dTranspose
from tvm_sramtile.geometry.conv2d_transpose import phases, transposed_extent, transposed_window
from tvm_sramtile.ints import Range

Products = dict[int, set[tuple[int, int]]]  # by output, the (input, tap) pairs whose products it sums


def products(size: int, kernel: int, stride: int, dilation: int, pad: int, outs: int) -> Products:
    """Each input is spread over the outputs, tap by tap; what falls into the pads is dropped."""
    found: Products = defaultdict(set)
    for position in range(size):
        for tap in range(kernel):
            out = position * stride + tap * dilation - pad
            if 0 <= out < outs:
                found[out].add((position, tap))
    return found


def domains() -> Iterator[tuple[int, int, int, int, int, int]]:
    """(size, kernel, stride, dilation, pad before, outputs), the outputs with and without output_padding."""
    for size, kernel, stride, dilation in product((1, 2, 5), range(1, 6), range(1, 5), range(1, 4)):
        full = (size - 1) * stride + dilation * (kernel - 1) + 1
        for before, after, extra in product((0, 1, 3), (0, 2), range(min(2, stride))):
            outs = full - before - after + extra
            if outs > 0:
                yield size, kernel, stride, dilation, before, outs


def test_extents() -> None:
    """Formula (4): inputs with stride - 1 rows between them, convolved with the kernel over all places it touches."""
    for size, kernel, stride, dilation in product(range(1, 6), range(1, 6), range(1, 5), range(1, 4)):
        pad_row_col, effective = stride - 1, dilation * (kernel - 1) + 1
        seed = size + (size - 1) * pad_row_col + 2 * (effective - 1) - effective + 1
        assert transposed_extent(size, kernel, stride, dilation, 0, 0, 0) == seed
        last = max(products(size, kernel, stride, dilation, 0, 1 << 20))
        assert seed == last + 1
        assert transposed_extent(size, kernel, stride, dilation, 1, 2, 3) == seed - 1 - 2 + 3


@pytest.mark.parametrize("part", range(4))
def test_windows(part: int) -> None:
    for size, kernel, stride, dilation, before, outs in list(domains())[part::4]:
        made = products(size, kernel, stride, dilation, before, outs)
        for start in range(outs):
            read: set[int] = set()
            for stop in range(start + 1, outs + 1):
                read |= {position for position, _ in made[stop - 1]}
                expected = Range(min(read), max(read) + 1) if read else Range(0, 0)
                window = transposed_window(Range(start, stop), size, kernel, stride, dilation, before)
                assert window == expected, (start, stop, size, kernel, stride, dilation, before)


def test_phases_make_the_same_products() -> None:
    for size, kernel, stride, dilation, before, outs in domains():
        found: Products = defaultdict(set)
        for phase in phases(kernel, stride, dilation, before):
            assert all(b - a == phase.tap_step for a, b in zip(phase.taps, phase.taps[1:], strict=False))
            every = phase.outputs(Range(0, outs))
            assert [phase.offset + q * phase.step for q in range(every.stop)] == [*range(phase.offset, outs, stride)]
            for q in range(every.start, every.stop):
                reads = [q * phase.stride + phase.first + phase.dilation * j for j in range(len(phase.taps))]
                pairs = {pair for pair in zip(reads, phase.taps, strict=True) if 0 <= pair[0] < size}
                assert len(pairs) == len({position for position, _ in pairs})
                found[phase.offset + q * phase.step] |= pairs
        expected = products(size, kernel, stride, dilation, before, outs)
        assert {out: pairs for out, pairs in found.items() if pairs} == expected


def test_phases_are_cut_by_ranges_of_outputs() -> None:
    for stride, start in product(range(1, 5), range(12)):
        for stop in range(start, 13):
            outputs = []
            for phase in phases(3, stride, 1, 1):
                part = phase.outputs(Range(start, stop))
                outputs += [phase.offset + q * phase.step for q in range(part.start, part.stop)]
            assert sorted(outputs) == list(range(start, stop))


def test_no_phase_multiplies_inserted_zeros() -> None:
    """As many taps over all phases as the kernel has; of a kernel smaller than the stride, some phases have none."""
    for kernel, stride, dilation in product(range(1, 7), range(1, 6), range(1, 4)):
        taps = [phase.taps for phase in phases(kernel, stride, dilation, 0)]
        assert sorted(tap for each in taps for tap in each) == list(range(kernel))
    assert [phase.taps for phase in phases(2, 4, 1, 0)] == [(0,), (1,), (), ()]
    assert [phase.taps for phase in phases(5, 2, 1, 0)] == [(4, 2, 0), (3, 1)]
    assert [phase.taps for phase in phases(3, 2, 2, 0)] == [(2, 1, 0), ()]


def test_windows_say_what_to_crop() -> None:
    """A transposed convolution of the rows read, cropped, is the chunk; negative crops add rows without products."""
    for size, kernel, stride, dilation, before, outs in domains():
        after = (size - 1) * stride + dilation * (kernel - 1) + 1 - before - outs
        padding = (before, 0, max(0, after), 0)
        op = Conv2dTranspose(1, size, 1, 1, (kernel, 1), (stride, 1), padding, (max(0, -after), 0), (dilation, 1))
        assert op.out_rows == outs
        made = products(size, kernel, stride, dilation, before, outs)
        for start, height in product(range(outs), (1, 2, 5)):
            out = Range(start, min(start + height, outs))
            window = op.row_window(out)
            read = len(window.read)
            if not read:
                assert not any(made[row] for row in range(out.start, out.stop))
                continue
            full = (read - 1) * stride + dilation * (kernel - 1) + 1
            assert full - window.pad_before - window.pad_after == len(out)
            part = products(read, kernel, stride, dilation, window.pad_before, len(out))
            shifted = {row: {(p + window.read.start, t) for p, t in pairs} for row, pairs in part.items()}
            assert shifted == {row - out.start: made[row] for row in range(out.start, out.stop) if made[row]}


def test_rows_and_columns_are_kept_apart() -> None:
    op = Conv2dTranspose(6, 5, 7, 4, (2, 3), (1, 4), (1, 2, 0, 3), (0, 1), (3, 1), 2)
    assert (op.out_rows, op.out_cols) == (4 + 3 + 1 - 1, 24 + 2 + 1 - 5 + 1)
    assert op.weight_shape == (6, 2, 2, 3)
    assert op.macs == 5 * 7 * 6 * 2 * 2 * 3
    assert len(op.row_phases) == 1
    assert len(op.col_phases) == 4
    assert op.row_phases == phases(2, 1, 3, 1)
    assert op.col_phases == phases(3, 4, 1, 2)
    assert op.row_window(Range(0, 2)).read == transposed_window(Range(0, 2), 5, 2, 1, 3, 1)
    assert op.col_window(Range(3, 9)).read == transposed_window(Range(3, 9), 7, 3, 4, 1, 2)
    assert (op.direction, op.tested_map) == ("input-to-output", "output")
    assert op.in_channel_range(Range(1, 2)) == Range(0, 3)
    assert op.in_channel_range(Range(2, 4)) == Range(3, 6)
    assert op.in_channel_range(Range(0, 4)) == Range(0, 6)
