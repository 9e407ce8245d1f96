"""Chips for random regions, so small that these must be cut."""

from __future__ import annotations

from dataclasses import replace

from core.regions import SPEC, Case
from core.whole_cases import Maker, Pair, whole_region

from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Region, Step
from tvm_sramtile.options import Options
from tvm_sramtile.plan import SpecCapacity, plan_region
from tvm_sramtile.plan.capacity import Charge
from tvm_sramtile.plan.cut import (
    Cut,
    channel_sizes,
    channels_of,
    col_spans,
    in_channel_sizes,
    in_channels_of,
    kernel_passes,
    row_spans,
    tile_of,
    whole_cut,
)

UNITS: tuple[tuple[Pair, ...], ...] = (
    ((1, 1),),
    ((1, 1), (3, 3)),
    ((3, 3),),
    ((2, 3),),
    ((1, 3), (3, 1)),
    ((1, 1), (2, 2), (5, 3)),
    ((9, 9),),
)


def whole_case(seed: int) -> tuple[Case, AcceleratorSpec, Options]:
    """The case of a seed: a region, a chip and options."""
    make, case = whole_region(seed)
    options = Options(
        strategy="search" if seed % 3 == 0 else "seed",
        objective="cycles" if seed % 6 == 0 else "dram_bytes",
        kernel_split=make.one_of(("seed", "best")),
        double_buffer=bool(make.between(0, 1)),
    )
    return case, chip(make, case.region, options), options


MOST_PASSES = 120  # of kernels over chunks: so that a case takes little time


def passes_of(region: Region, spec: AcceleratorSpec, options: Options) -> int:
    """How often a chunk is computed or added to."""
    steps = plan_region(region, spec, options).steps
    return sum(step.chunk_count * len(step.in_channels) * max(1, len(step.passes)) for step in steps)


def finest(step: Step, lanes: int, options: Options, units: tuple[Pair, ...], resident: bool) -> Cut:
    """One row and column of the fewest channels at a time."""
    passes = kernel_passes(step, units, options.kernel_split)
    ins = in_channels_of(step.op, [*in_channel_sizes(step.op, lanes)][-1])
    channels = channels_of(step.op, [*channel_sizes(step.op, lanes)][-1])
    whole = whole_cut(step, passes)
    groups = getattr(step.op, "groups", 1)
    if groups > 1 and len(channels) < groups:
        ins = whole.in_channels
    rows, cols = row_spans(step, 1), col_spans(step, 1)
    cut = replace(whole, rows=rows, cols=cols, channels=channels, in_channels=ins, passes_resident=resident)
    return replace(cut, input_per_pass=not resident and len(passes) > 1)


def chip(make: Maker, region: Region, options: Options) -> AcceleratorSpec:
    """A chip on which the region fits, mostly only in pieces; not in too many."""
    units = make.one_of(UNITS)
    spec = SPEC.replace(
        unit_kernels=units,
        channel_align=make.lanes,
        lines=make.one_of((1, 1, 2)),
        column_align=make.one_of((1, 1, 2)),
        mac_array=make.one_of(((4, 4), (3, 16))),
    )
    large = 1 << 24
    if make.between(0, 1):
        spec = spec.replace(sram_bytes=None, input_bytes=large, weight_bytes=large, output_bytes=large)
    if make.between(0, 2) == 0:
        spec = spec.replace(accumulator_bytes=large)
    capacity = SpecCapacity(spec)
    resident = bool(make.between(0, 1))
    least, most = [], []
    for step in region.steps:
        cut = finest(step, make.lanes, options, units, resident)
        least.append(capacity.charge(step, tile_of(step, cut)))
        most.append(capacity.charge(step, tile_of(step, whole_cut(step, cut.passes))))
    # Room for maps that stay between steps.
    terms = tuple(term for charge in most for term in charge.terms if term.memory == "pool")
    stays = [Charge(terms, most[0].limits)] if options.strategy == "search" else []
    share = 1.0 if make.between(0, 7) == 0 else 0.0
    while True:
        sized = spec.replace(**sizes(make, spec, least, [*most, *stays], share))
        if passes_of(region, sized, options) <= MOST_PASSES:
            return sized
        share = (1 + share) / 2


def sizes(make: Maker, spec: AcceleratorSpec, least: list[Charge], most: list[Charge], share: float) -> dict[str, int]:
    """Sizes of the memories between what the finest cut takes and what the whole takes; ``share`` is the least part."""
    found = {}
    for memory in spec.memories:
        low = max(1, *(charge.used_bytes(memory) for charge in least))
        high = max(low, *(charge.used_bytes(memory) for charge in most))
        size = low * (high / low) ** (share + (1 - share) * make.rng.uniform() ** 1.5)
        found["sram_bytes" if memory == "pool" else f"{memory}_bytes"] = max(low, int(size))
    return found
