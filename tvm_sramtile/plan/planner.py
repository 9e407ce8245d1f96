"""From steps to plans: chooses the strategy, sizes the buffers, counts the traffic."""

from __future__ import annotations

from tvm_sramtile.errors import UnsupportedOp
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ints import Range
from tvm_sramtile.ir import Region, Step, dtype_bytes
from tvm_sramtile.options import Options
from tvm_sramtile.plan.capacity import SpecCapacity
from tvm_sramtile.plan.plan import Buffer, Chunk, Plan, StepPlan, Traffic
from tvm_sramtile.plan.seed import chunks_of, largest_tile, seed_chunks
from tvm_sramtile.plan.verdict import judge


def plan_region(region: Region, spec: AcceleratorSpec, options: Options) -> Plan:
    """The plan of every step of ``region``.

    Raises:
        UnsupportedOp: the accelerator has no unit for a step.
        DoesNotFit: no cut of a step fits the SRAM.
    """
    resident = len(region.steps) == 1
    steps = tuple(_plan_step(step, spec, options, resident) for step in region.steps)
    return Plan(region.name, options.strategy, steps)


def _plan_step(step: Step, spec: AcceleratorSpec, options: Options, weights_resident: bool) -> StepPlan:
    verdict = judge(step, spec)
    if not verdict.ok:
        raise UnsupportedOp(f"{step.op.kind} {step.name}: {verdict.reason}")
    capacity = SpecCapacity(spec)
    chunks = seed_chunks(step, capacity)
    whole = capacity.charge(step, largest_tile(step, chunks_of(step, step.op.out_rows)))
    charge = capacity.charge(step, largest_tile(step, chunks))
    window = step.op.col_window(Range(0, step.op.out_cols))
    tested = step.op.tested_map
    return StepPlan(
        step=step.name,
        direction=step.op.direction,
        tested_map=tested,
        footprint_bytes=whole.bytes_of(tested),
        space_bytes=max(0, whole.space_bytes(tested)),
        chunk_footprint_bytes=charge.bytes_of(tested),
        in_cols=window.read,
        pad_left=window.pad_before,
        chunks=chunks,
        buffers=_buffers(step, chunks, capacity, double=options.double_buffer and len(chunks) > 1),
        traffic=_traffic(step, chunks, window.read, weights_resident),
        weights_resident=weights_resident,
    )


def _buffers(step: Step, chunks: tuple[Chunk, ...], capacity: SpecCapacity, *, double: bool) -> tuple[Buffer, ...]:
    """One buffer a term; input and output twice where that still fits, the input first."""
    charge = capacity.charge(step, largest_tile(step, chunks))
    free = {memory: limit - charge.used_bytes(memory) for memory, limit in charge.limits.items()}
    buffers = []
    for term in charge.terms:
        copies: tuple[int, ...] = (term.bytes,)
        if double and term.name in ("input", "output"):
            turns = (chunks[0::2], chunks[1::2])
            sizes = tuple(capacity.charge(step, largest_tile(step, turn)).bytes_of(term.name) for turn in turns)
            if sum(sizes) - term.bytes <= free[term.memory]:
                free[term.memory] -= sum(sizes) - term.bytes
                copies = sizes
        if sum(copies):
            buffers.append(Buffer(term.name, term.memory, copies))
    return tuple(buffers)


def _traffic(step: Step, chunks: tuple[Chunk, ...], in_cols: Range, weights_resident: bool) -> Traffic:
    in_rows = sum(len(chunk.in_rows) for chunk in chunks)
    row_bytes = len(in_cols) * step.op.in_channels * dtype_bytes(step.data.dtype)
    weights = step.weight.size_bytes + (step.bias.size_bytes if step.bias is not None else 0)
    return Traffic(
        input_bytes=step.images * in_rows * row_bytes,
        weight_bytes=weights * (1 if weights_resident else step.images),
        output_bytes=step.output.size_bytes,
    )
