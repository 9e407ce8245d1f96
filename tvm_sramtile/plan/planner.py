"""From steps to plans: chooses the cut, sizes the buffers, counts the traffic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from tvm_sramtile.errors import UnsupportedOp
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ints import Range
from tvm_sramtile.ir import Region, Step
from tvm_sramtile.options import Options
from tvm_sramtile.plan.capacity import Charge, SpecCapacity
from tvm_sramtile.plan.cut import Cut, buffered_as, kernel_passes, tile_of, whole_cut
from tvm_sramtile.plan.estimate import cycles_of
from tvm_sramtile.plan.plan import ALONE, Around, Buffer, Chunk, Plan, StepPlan, in_order
from tvm_sramtile.plan.search import nameless, search_cut
from tvm_sramtile.plan.seed import seed_cut
from tvm_sramtile.plan.stays import around_step, choose_stays
from tvm_sramtile.plan.traffic import loads_once_per_call, traffic_of
from tvm_sramtile.plan.verdict import judge


def plan_region(region: Region, spec: AcceleratorSpec, options: Options) -> Plan:
    """The plan of every step of ``region``, and of what stays in SRAM between them.

    Raises:
        UnsupportedOp: the accelerator has no unit for a step.
        DoesNotFit: no cut of a step fits the SRAM.
    """
    for step in region.steps:
        verdict = judge(step)
        if not verdict.ok:
            raise UnsupportedOp(f"{step.op.kind} {step.name}: {verdict.reason}")
    alone = len(region.steps) == 1

    def price(index: int, around: Around) -> tuple[int, int]:
        return _price(nameless(region.steps[index]), spec, options, around)

    stays = () if alone or options.strategy == "seed" else choose_stays(region, spec, price)
    steps = []
    for index, step in enumerate(region.steps):
        cut = cut_step(step, spec, options, only_step=alone, around=around_step(region, stays, index))
        steps.append(plan_of_cut(step, cut, spec, only_step=alone))
    return Plan(region.name, options.strategy, tuple(steps), stays)


@lru_cache(maxsize=1 << 16)
def _price(step: Step, spec: AcceleratorSpec, options: Options, around: Around) -> tuple[int, int]:
    """What a step of several costs, in the order of the objective."""
    cut = cut_step(step, spec, options, only_step=False, around=around)
    moved = traffic_of(step, cut, once_per_call=False).total_bytes
    cycles = step.images * cycles_of(spec, step, cut, only_step=False)
    return (moved, cycles) if options.objective == "dram_bytes" else (cycles, moved)


def cut_step(
    step: Step, spec: AcceleratorSpec, options: Options, *, only_step: bool = True, around: Around = ALONE
) -> Cut:
    """How ``step`` is cut so that each chunk fits: in one piece where that fits.

    Args:
        step: an operator that the accelerator takes, whatever its size.
        spec: the accelerator.
        options: how to cut.
        only_step: the region has no other.
        around: what stays in SRAM between its steps; the seed's strategy knows of none.

    Raises:
        DoesNotFit: no cut fits.
    """
    passes = kernel_passes(step, spec.unit_kernels, options.kernel_split)
    if options.strategy == "search":
        return search_cut(step, spec, passes, options, only_step=only_step, around=around)
    cut = seed_cut(step, SpecCapacity(spec), passes)
    return cut if options.double_buffer else replace(cut, double=())


def plan_of_cut(step: Step, cut: Cut, spec: AcceleratorSpec, *, only_step: bool = True) -> StepPlan:
    """The plan of a step that is cut in a given way, which fits the spec.

    Args:
        step: what to compute.
        cut: how.
        spec: the accelerator.
        only_step: the region has no other.
    """
    capacity = SpecCapacity(spec)
    whole = capacity.charge(step, tile_of(step, whole_cut(step, cut.passes)))
    chunk = capacity.charge(step, tile_of(step, cut))
    charge = SpecCapacity(spec, around=cut.around).charge(step, tile_of(step, cut))
    tested = step.op.tested_map
    once_per_call = loads_once_per_call(cut, only_step=only_step)
    return StepPlan(
        step=step.name,
        direction=step.op.direction,
        tested_map=tested,
        footprint_bytes=whole.bytes_of(tested),
        space_bytes=max(0, whole.space_bytes(tested)),
        chunk_footprint_bytes=chunk.bytes_of(tested),
        order=cut.order,
        rolled=cut.rolled,
        rows=cut.rows,
        cols=cut.cols,
        channels=cut.channels,
        together=cut.together,
        in_channels=cut.in_channels,
        passes=cut.passes,
        passes_resident=cut.passes_resident,
        input_per_pass=cut.input_per_pass,
        once_per_call=once_per_call,
        around=cut.around,
        buffers=_buffers(step, cut, charge, spec),
        traffic=traffic_of(step, cut, once_per_call=once_per_call),
    )


def _buffers(step: Step, cut: Cut, charge: Charge, spec: AcceleratorSpec) -> tuple[Buffer, ...]:
    """One buffer a term; maps twice, as the cut says, where there are two to hold and that still fits.

    A map's block has the extents of the largest chunk, so only the number of channel blocks differs between chunks. A
    copy is as large as the largest chunk that it holds. An input that is loaded anew for each pass has one copy.
    """
    free = {memory: limit - charge.used_bytes(memory) for memory, limit in charge.limits.items()}
    buffers = []
    for term in charge.terms:
        copies: tuple[int, ...] = (term.bytes,)
        wanted = cut.double is None or buffered_as(term.name) in cut.double
        blocks = _blocks(step, cut, spec, term.name) if wanted else []
        if len(blocks) > 1 and max(blocks):
            block_bytes = term.bytes // max(blocks)
            copies = (max(blocks[0::2]) * block_bytes, max(blocks[1::2]) * block_bytes)
            if sum(copies) - term.bytes > free[term.memory]:
                copies = (term.bytes,)
            free[term.memory] -= sum(copies) - term.bytes
        if sum(copies):
            buffers.append(Buffer(term.name, term.memory, copies))
    return tuple(buffers)


def _blocks(step: Step, cut: Cut, spec: AcceleratorSpec, name: str) -> list[int]:
    """The channel blocks of what is put into a map's buffer, one after the other."""
    chunks = in_order(cut.order, cut.channels, cut.rows, cut.cols, cut.together)
    parts: Iterable[Range] = ()
    if name == "output":
        parts = (chunk.channels for chunk in chunks)
    elif name in ("input", "other") and not cut.input_per_pass:
        parts = _input_fills(step, cut, chunks)
    return [spec.layout.blocks(len(part)) for part in parts]


def _input_fills(step: Step, cut: Cut, chunks: Iterable[Chunk]) -> Iterator[Range]:
    """The channels of what is put into the input's buffer; what is there already is not put there again."""
    held = None
    for chunk in chunks:
        rows, cols = chunk.row.read, chunk.col.read
        source = step.op.in_channel_range(chunk.channels)
        for part in cut.in_channels if len(cut.in_channels) > 1 else (source,):
            content = (source, part, rows, cols)
            if len(rows) and len(cols) and content != held:
                held = content
                yield part
