"""The report of a partitioned network, as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tvm_sramtile.compile import Compiled
from tvm_sramtile.geometry import Elementwise, Operator, Pool2d, Resize2d
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Step
from tvm_sramtile.plan import Chunk, StepPlan
from tvm_sramtile.plan.bounds import bound_bytes


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step of a region.

    Attributes:
        region, step: names.
        op: what is computed, e.g. ``conv2d 3x3 s2 + bias + clip``.
        input_shape, output_shape: as in TVM.
        direction, tested_map, reason: how the step was cut and why, see ``StepPlan``.
        chunks: the marks: where each chunk starts and ends in the whole maps.
        footprint_bytes, chunk_footprint_bytes: formula (1) of the tested map, whole and of the largest chunk.
        sram_peak_bytes, dram_bytes: predicted for one call.
        bound_bytes: no plan of the step by itself moves less; see ``plan.bounds``.
        cycles: likewise, of the step's region: its steps overlap.
        macs: multiply-accumulates of one call.
        max_abs_diff: the region's largest difference from TVM on the same inputs; ``None`` when nothing was run.
    """

    region: str
    step: str
    op: str
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    direction: str
    tested_map: str
    reason: str
    chunks: tuple[Chunk, ...]
    footprint_bytes: int
    chunk_footprint_bytes: int
    sram_peak_bytes: int
    dram_bytes: int
    bound_bytes: int
    cycles: int
    macs: int
    max_abs_diff: float | None = None


@dataclass(frozen=True, slots=True)
class HostGroup:
    """Operators of one kind that stay on the host for one reason."""

    op: str
    count: int
    macs: int
    reason: str


@dataclass(frozen=True, slots=True)
class NetworkReport:
    """A partitioned network: the steps on the accelerator, and what stays on the host."""

    spec: str
    steps: tuple[StepReport, ...]
    host_ops: tuple[HostGroup, ...]

    @property
    def accelerator_macs(self) -> int:
        """Multiply-accumulates of the steps."""
        return sum(step.macs for step in self.steps)

    @property
    def host_macs(self) -> int:
        """Multiply-accumulates of what stays on the host."""
        return sum(group.macs for group in self.host_ops)

    @property
    def dram_bytes(self) -> int:
        """DRAM bytes of all steps."""
        return sum(step.dram_bytes for step in self.steps)

    @property
    def bound_bytes(self) -> int:
        """The bounds of all steps."""
        return sum(step.bound_bytes for step in self.steps)

    @property
    def cycles(self) -> int:
        """Cycles of all regions, one after the other."""
        return sum({step.region: step.cycles for step in self.steps}.values())

    @property
    def sram_peak_bytes(self) -> int:
        """The most SRAM that any step takes."""
        return max((step.sram_peak_bytes for step in self.steps), default=0)


def network_report(
    spec: AcceleratorSpec,
    regions: Sequence[Compiled],
    host_ops: Iterable[tuple[str, int, str]],
    diffs: Mapping[str, float] | None = None,
) -> NetworkReport:
    """Collect the report.

    Args:
        spec: the accelerator.
        regions: in order of execution.
        host_ops: (op, MACs, reason) of each operator on the host.
        diffs: largest difference from TVM by region, once run.
    """
    steps: list[StepReport] = []
    for compiled in regions:
        cycles, diff = compiled.predicted.time.cycles, (diffs or {}).get(compiled.region.name)
        for step, plan in zip(compiled.region.steps, compiled.plan.steps, strict=True):
            steps.append(
                _step_report(compiled.region.name, step, plan, bound_bytes(step, spec, plan.around), cycles, diff)
            )
    return NetworkReport(spec.name, tuple(steps), _groups(host_ops))


def _step_report(region: str, step: Step, plan: StepPlan, bound: int, cycles: int, diff: float | None) -> StepReport:
    memories = plan.memories
    return StepReport(
        region=region,
        step=step.name,
        op=describe(step),
        input_shape=step.data.shape,
        output_shape=step.output.shape,
        direction=plan.direction,
        tested_map=plan.tested_map,
        reason=plan.reason,
        chunks=plan.chunks,
        footprint_bytes=plan.footprint_bytes,
        chunk_footprint_bytes=plan.chunk_footprint_bytes,
        sram_peak_bytes=sum(plan.used_bytes(memory) for memory in memories),
        dram_bytes=plan.traffic.total_bytes,
        bound_bytes=bound,
        cycles=cycles,
        macs=step.op.macs * step.images,
        max_abs_diff=diff,
    )


def describe(step: Step) -> str:
    """An operator in a few words: kind, kernel, what differs from the default, epilogue."""
    epilogue = [name for name, part in (("bias", step.bias), ("clip", step.clip)) if part is not None]
    epilogue += [activation.function for activation in step.activations]
    return " ".join(_words(step.op)) + "".join(f" + {name}" for name in epilogue)


def _words(op: Operator) -> list[str]:
    if isinstance(op, Elementwise):
        return [op.kind, op.function, *([op.partner] if op.partner in ("vector", "value") else [])]
    if isinstance(op, Resize2d):
        return [op.kind, op.method, op.coordinate_transformation_mode]
    words = [op.kind, f"{op.kernel[0]}x{op.kernel[1]}"]
    for letter, pair in (("s", op.strides), ("d", op.dilation)):
        if pair != (1, 1):
            words.append(f"{letter}{pair[0]}" if pair[0] == pair[1] else f"{letter}{pair[0]},{pair[1]}")
    if isinstance(op, Pool2d):
        words.insert(1, op.pooling.partition("_")[0])
    elif op.groups > 1:
        words.append("depthwise" if op.groups == op.in_channels else f"g{op.groups}")
    return words


def _groups(host_ops: Iterable[tuple[str, int, str]]) -> tuple[HostGroup, ...]:
    groups: dict[tuple[str, str], HostGroup] = {}
    for op, macs, reason in host_ops:
        old = groups.get((op, reason), HostGroup(op, 0, 0, reason))
        groups[op, reason] = HostGroup(op, old.count + 1, old.macs + macs, reason)
    return tuple(sorted(groups.values(), key=lambda group: (-group.macs, -group.count, group.op, group.reason)))
