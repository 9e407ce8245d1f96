"""The seed's strategy: one chunk, and while a chunk overflows, cut finer; the last chunk may be smaller."""

from __future__ import annotations

from tvm_sramtile.errors import DoesNotFit
from tvm_sramtile.ints import Range, ceil_div, cut, round_up
from tvm_sramtile.ir import Step
from tvm_sramtile.plan.capacity import Capacity, Charge, Tile
from tvm_sramtile.plan.plan import Chunk


def seed_chunks(step: Step, capacity: Capacity) -> tuple[Chunk, ...]:
    """The first cut whose chunks all fit; raises ``DoesNotFit`` when the finest does not."""
    previous = 0
    for count in range(1, step.op.out_rows + 1):
        rows = round_up(max(capacity.row_minimum, ceil_div(step.op.out_rows, count)), capacity.row_multiple)
        if rows == previous:
            continue
        previous = rows
        chunks = chunks_of(step, rows)
        charge = capacity.charge(step, largest_tile(step, chunks))
        if charge.fits:
            return chunks
    raise DoesNotFit(_explain(step, capacity, charge, min(rows, step.op.out_rows)))


def chunks_of(step: Step, rows: int) -> tuple[Chunk, ...]:
    """Chunks of ``rows`` output rows each, the last one perhaps smaller, with the input rows they read."""
    chunks = []
    for out_rows in cut(step.op.out_rows, rows):
        window = step.op.row_window(out_rows)
        chunks.append(Chunk(out_rows, window.read, window.pad_before, window.pad_after))
    return tuple(chunks)


def largest_tile(step: Step, chunks: tuple[Chunk, ...]) -> Tile:
    """The extents that hold every chunk: buffers are made once, for the largest."""
    in_cols = step.op.col_window(Range(0, step.op.out_cols)).read
    return Tile(
        out_rows=max(len(chunk.out_rows) for chunk in chunks),
        out_cols=step.op.out_cols,
        in_rows=max(len(chunk.in_rows) for chunk in chunks),
        in_cols=len(in_cols),
    )


def _explain(step: Step, capacity: Capacity, charge: Charge, rows: int) -> str:
    """The terms in bytes, the limits, the gaps, and what would help."""
    height = "one output row does" if rows == 1 else f"{rows} output rows do"
    faults, levers = [], []
    for memory in charge.overflowing:
        terms = [f"{term.name} {term.bytes}" for term in charge.terms if term.memory == memory]
        used, limit = charge.used_bytes(memory), charge.limits[memory]
        total = f" = {used}" if len(terms) > 1 else ""
        faults.append(f"{' + '.join(terms)}{total} B in {memory}, {used - limit} B more than its {limit} B")
        levers.append(f"{'sram' if memory == 'pool' else memory}_bytes of at least {used}")
    if step.op.out_channels > 1 or step.op.in_cols > 1:
        levers.append("fewer columns or channels in the op")
    shape = "x".join(str(extent) for extent in step.data.shape)
    return (
        f"{step.op.kind} {step.name} ({shape}): {height} not fit {capacity.name}: {'; '.join(faults)}. "
        f"What would help: {', or '.join(levers)}"
    )
