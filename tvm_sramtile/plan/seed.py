"""The seed's strategy: one chunk, and while a chunk overflows, cut finer; the last chunk may be smaller."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import partial

from tvm_sramtile.errors import DoesNotFit
from tvm_sramtile.ints import Range, round_up
from tvm_sramtile.ir import Step
from tvm_sramtile.plan.capacity import Capacity, Charge, SpecCapacity
from tvm_sramtile.plan.cut import (
    DIRECTIONS,
    TURNS,
    Convolution,
    Cut,
    Direction,
    channel_sizes,
    channels_of,
    col_spans,
    in_channel_sizes,
    in_channels_of,
    row_spans,
    sizes,
    tile_of,
    whole_cut,
)
from tvm_sramtile.plan.plan import KernelPass


def seed_cut(
    step: Step,
    capacity: Capacity,
    passes: tuple[KernelPass, ...],
    directions: Collection[Direction] = DIRECTIONS,
) -> Cut:
    """The first cut whose chunks all fit: rows; where one row is too much, columns; then channels.

    Output channels are cut before input channels. Where nothing else helps, the weights of the kernel passes take turns
    in SRAM, and then what they read does too.
    Only ``directions`` are cut.

    Raises:
        DoesNotFit: not even one row and column of one block of channels fits.
    """
    whole = whole_cut(step, passes)
    finest = whole
    rows, cols = whole.rows, whole.cols
    if "rows" in directions:
        rows = row_spans(step, round_up(capacity.row_minimum, capacity.row_multiple))
    if "columns" in directions:
        cols = col_spans(step, 1)
    for base in channel_choices(step, whole, capacity, directions):
        finest = replace(base, rows=rows, cols=cols)
        if not _fits(step, finest, capacity):
            continue
        row = replace(base, rows=rows)
        if _fits(step, row, capacity):
            choices = _row_choices(step, base, capacity) if "rows" in directions else iter((base,))
        else:
            choices = _col_choices(step, row)
        return next(cut for cut in choices if _fits(step, cut, capacity))
    raise DoesNotFit(explain(step, capacity, capacity.charge(step, tile_of(step, finest)), finest))


def _fits(step: Step, cut: Cut, capacity: Capacity) -> bool:
    return capacity.charge(step, tile_of(step, cut)).fits


def channel_choices(
    step: Step, whole: Cut, capacity: Capacity, directions: Collection[Direction] = DIRECTIONS
) -> Iterator[Cut]:
    """The cuts of channels and passes, of whole rows and columns, in the order in which the seed tries them."""
    lanes, cuts_them = capacity.channel_multiple, "channels" in directions
    ins_of, outs_of = partial(in_channels_of, step.op), partial(channels_of, step.op)
    for resident, per_pass in TURNS if len(whole.passes) > 1 else TURNS[:1]:
        for in_channels in map(ins_of, in_channel_sizes(step.op, lanes)) if cuts_them else (whole.in_channels,):
            for channels in map(outs_of, channel_sizes(step.op, lanes)) if cuts_them else (whole.channels,):
                if len(in_channels) == 1 or _in_one_group(step, channels):
                    yield replace(
                        whole,
                        channels=channels,
                        in_channels=in_channels,
                        passes_resident=resident,
                        input_per_pass=per_pass,
                    )


def _in_one_group(step: Step, channels: tuple[Range, ...]) -> bool:
    return isinstance(step.op, Convolution) and all(len(step.op.groups_of(part)) == 1 for part in channels)


def _row_choices(step: Step, base: Cut, capacity: Capacity) -> Iterator[Cut]:
    for rows in sizes(step.op.out_rows, capacity.row_multiple, capacity.row_minimum):
        yield replace(base, rows=row_spans(step, rows))


def _col_choices(step: Step, base: Cut) -> Iterator[Cut]:
    for cols in sizes(step.op.out_cols):
        yield replace(base, cols=col_spans(step, cols))


def _lever(capacity: Capacity, memory: str, needed_bytes: int) -> str:
    """What to change so that a memory holds so much: a key of our spec, or the limit in somebody else's rule."""
    if isinstance(capacity, SpecCapacity):
        return f"{'sram' if memory == 'pool' else memory}_bytes of at least {needed_bytes}"
    return f"a limit of {memory} of at least {needed_bytes} B"


def explain(step: Step, capacity: Capacity, charge: Charge, cut: Cut) -> str:
    """The terms in bytes, the limits, the gaps, and what would help."""
    tile = tile_of(step, cut)
    extents = ((tile.out_rows, "row"), (tile.out_cols, "column"), (tile.out_channels, "channel"))
    rows, cols, channels = (f"{count} {name}" if count == 1 else f"{count} {name}s" for count, name in extents)
    unit = f"{rows}, {cols} and {channels}"
    faults, levers = [], []
    for memory in charge.overflowing:
        terms = [f"{term.name} {term.bytes}" for term in charge.terms if term.memory == memory]
        used, limit = charge.used_bytes(memory), charge.limits[memory]
        total = f" = {used}" if len(terms) > 1 else ""
        faults.append(f"{' + '.join(terms)}{total} B in {memory}, {used - limit} B more than its {limit} B")
        levers.append(_lever(capacity, memory, used))
    shape = "x".join(str(extent) for extent in step.data.shape)
    return (
        f"{step.op.kind} {step.name} ({shape}): not even {unit} of output fit {capacity.name}: {'; '.join(faults)}. "
        f"What would help: {', or '.join(levers)}"
    )
