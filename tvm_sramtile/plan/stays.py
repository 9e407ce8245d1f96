"""Which maps stay in SRAM between the steps of a region: those whose stay saves more than the room they take costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tvm_sramtile.errors import DoesNotFit
from tvm_sramtile.geometry import Elementwise
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Region, Step, Tensor, dtype_bytes
from tvm_sramtile.plan.plan import ALONE, Around, MapName, Stay

Cost = tuple[int, int]
Price = Callable[[int, Around], Cost]
"""What the step of this index costs at best with these maps around it; raises ``DoesNotFit``."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A map that could stay from the step ``first`` on, and the steps that read it, in order."""

    tensor: Tensor
    first: int
    readers: tuple[int, ...]
    bytes: int


def choose_stays(region: Region, spec: AcceleratorSpec, price: Price) -> tuple[Stay, ...]:
    """The maps that stay, in the order in which they are made.

    One after the other, each is left in SRAM as long as that lowers the cost of the steps that then run beside it, up
    to its last reader or an earlier one. What it takes from a step that must be cut finer for it is counted.
    """
    stays: tuple[Stay, ...] = ()
    if spec.sram_bytes is None:  # outputs are made in one memory, and read in another
        return stays
    for one in _candidates(region, spec):
        best, least = stays, _cost(region, stays, one, price)
        for last in one.readers:
            kept = (*stays, _placed(one, last, stays))
            try:
                cost = _cost(region, kept, one, price)
            except DoesNotFit:
                continue
            if cost < least:
                best, least = kept, cost
        stays = best
    return stays


def around_step(region: Region, stays: Sequence[Stay], index: int) -> Around:
    """What stays in SRAM around a step."""
    alive = [stay for stay in stays if stay.first <= index <= stay.last]
    if not alive:
        return ALONE
    names, step = {stay.tensor for stay in alive}, region.steps[index]
    maps = tuple(name for name, tensor in maps_of(step) if tensor.name in names)
    return Around(maps, _is_stored(region, stays, step), max(stay.end_bytes for stay in alive))


def maps_of(step: Step) -> tuple[tuple[MapName, Tensor], ...]:
    """The maps of a step by their buffers' names."""
    found: list[tuple[MapName, Tensor]] = [("input", step.data)]
    if isinstance(step.op, Elementwise) and step.op.partner == "map" and step.other is not None:
        found.append(("other", step.other))
    return (*found, ("output", step.output))


def _is_stored(region: Region, stays: Sequence[Stay], step: Step) -> bool:
    """Whether the region's caller or a step that does not find it in SRAM wants the step's output."""
    last = next((stay.last for stay in stays if stay.tensor == step.output.name), -1)
    late = any(step.output in later.inputs for later in region.steps[last + 1 :])
    return late or any(tensor.name == step.output.name for tensor in region.outputs)


def _cost(region: Region, stays: Sequence[Stay], one: _Candidate, price: Price) -> Cost:
    """Of the steps during which a candidate could stay."""
    steps = range(one.first, one.readers[-1] + 1)
    costs = [price(index, around_step(region, stays, index)) for index in steps]
    return sum(cost[0] for cost in costs), sum(cost[1] for cost in costs)


def _candidates(region: Region, spec: AcceleratorSpec) -> Iterator[_Candidate]:
    """Maps that one step makes whole, and that all later steps read as it does."""
    writers = [step.output.name for step in region.steps]
    for first, step in enumerate(region.steps):
        tensor, op = step.output, step.op
        uses = [
            (at, each) for at, later in enumerate(region.steps) for each in later.uses if each[0].name == tensor.name
        ]
        alike = all(used == tensor and role == "data" and at > first for at, (used, role) in uses)
        if uses and alike and writers.count(tensor.name) == 1 and (tensor.layout or "NCHW").find("C") >= 0:
            size = spec.layout.footprint_bytes(op.out_rows, op.out_cols, op.out_channels, dtype_bytes(tensor.dtype))
            yield _Candidate(tensor, first, tuple(sorted({at for at, _ in uses})), size)


def _placed(one: _Candidate, last: int, stays: Sequence[Stay]) -> Stay:
    """The candidate at the first place that is free from the step that makes it to ``last``."""
    offset = 0
    for stay in sorted(stays, key=lambda stay: stay.offset_bytes):
        beside = stay.first <= last and one.first <= stay.last
        if beside and stay.offset_bytes < offset + one.bytes and offset < stay.end_bytes:
            offset = stay.end_bytes
    return Stay(one.tensor.name, one.first, last, offset, one.bytes)
