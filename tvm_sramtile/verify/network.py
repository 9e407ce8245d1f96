"""Compare the accelerator with TVM: each region on its own inputs, and the network end to end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm_sramtile.compile import Compiled, compile_region
from tvm_sramtile.frontend import Array, Frontend, HostOp, NetworkRun, RegionRun
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Region
from tvm_sramtile.options import Options
from tvm_sramtile.report import NetworkReport, network_report
from tvm_sramtile.verify.tolerance import magnitude, max_abs_diff, reduction_length, region_tolerance, rounding


@dataclass(frozen=True, slots=True)
class Pair:
    """A figure as predicted by the compiler and as measured by the engine."""

    predicted: int
    measured: int

    @property
    def ok(self) -> bool:
        """Whether they are equal: there is no tolerance."""
        return self.predicted == self.measured


@dataclass(frozen=True, slots=True)
class OutputResult:
    """One output of the network, accelerator against TVM's own execution of the untouched network."""

    name: str
    max_abs_diff: float
    tolerance: float

    @property
    def ok(self) -> bool:
        """Whether the difference is within the tolerance."""
        return self.max_abs_diff <= self.tolerance


@dataclass(frozen=True, slots=True)
class RegionResult:
    """One region: its executions on the same inputs, and the predictions against the counters.

    Attributes:
        max_abs_diff: the largest difference between any two of the original op under TVM, the chunked subgraph under
            TVM (where the region is split and the subgraph was asked for), and the accelerator.
        executions: how many of the three were compared; for a region of one chunk the first two are the same graph.
    """

    name: str
    max_abs_diff: float
    tolerance: float
    executions: int
    dram_bytes: Pair
    sram_peak_bytes: Pair
    cycles: Pair

    @property
    def ok(self) -> bool:
        """Whether the values agree and every prediction is exact."""
        exact = self.dram_bytes.ok and self.sram_peak_bytes.ok and self.cycles.ok
        return exact and self.max_abs_diff <= self.tolerance


@dataclass(frozen=True, slots=True)
class Verification:
    """The result for a network."""

    outputs: tuple[OutputResult, ...]
    regions: tuple[RegionResult, ...]
    compiled: tuple[Compiled, ...]
    report: NetworkReport

    @property
    def ok(self) -> bool:
        """Whether all agrees."""
        return all(output.ok for output in self.outputs) and all(region.ok for region in self.regions)


def compile_regions(frontend: Frontend, partitioned: Any) -> tuple[Compiled, ...]:
    """The regions of a partitioned module with their plans and programs, for counting only."""
    return tuple(
        compile_region(attrs.region, attrs.spec, attrs.options, None, attrs.plan)
        for attrs in frontend.regions(partitioned)
    )


def host_lines(ops: Sequence[HostOp]) -> list[tuple[str, int, str]]:
    """What the report needs of the operators on the host."""
    return [(op.op, op.macs, op.reason) for op in ops]


def verify(
    frontend: Frontend,
    mod: Any,
    inputs: Mapping[str, Array],
    output_names: Sequence[str],
    spec: AcceleratorSpec,
    options: Options,
    *,
    chunked: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> Verification:
    """Run ``mod`` on the accelerator and compare it with TVM.

    Args:
        frontend: ``tvm_sramtile.relax`` or ``tvm_sramtile.relay``.
        mod: the untouched network.
        inputs: arrays by input name.
        output_names: what to call the outputs, in order.
        spec: the accelerator.
        options: how to compile.
        chunked: run the chunked subgraphs under TVM as well.
        progress: told what starts.
    """
    progress("partitioning")
    partitioned = frontend.partition_for_sramtile(mod, spec, options)
    compiled = compile_regions(frontend, partitioned)
    progress("running the network under TVM")
    expected = frontend.run_host(mod, inputs)
    progress("running the network on the accelerator")
    run = frontend.run_accelerator(partitioned, inputs)
    progress("running each region under TVM")
    feeds = {name: region.inputs for name, region in run.regions.items()}
    whole = frontend.run_regions(partitioned, feeds, chunked=False)
    split: Mapping[str, tuple[Array, ...]] = {}
    if chunked:
        progress("running each chunked subgraph under TVM")
        names = {item.region.name for item in compiled if any(step.is_split for step in item.plan.steps)}
        split = frontend.run_regions(partitioned, {n: feeds[n] for n in feeds if n in names}, chunked=True)
    constants = frontend.constants(partitioned)
    results = tuple(_region_result(item, run.regions[item.region.name], whole, split, constants) for item in compiled)
    outputs = _output_results(output_names, expected, run, [item.region for item in compiled])
    diffs = {result.name: result.max_abs_diff for result in results}
    report = network_report(spec, compiled, host_lines(frontend.host_ops(partitioned)), diffs)
    return Verification(outputs, results, compiled, report)


def _region_result(
    compiled: Compiled,
    run: RegionRun,
    whole: Mapping[str, tuple[Array, ...]],
    split: Mapping[str, tuple[Array, ...]],
    constants: Mapping[str, Array],
) -> RegionResult:
    name, predicted, measured = compiled.region.name, compiled.predicted, run.measured
    executions = [run.outputs, whole[name], *([split[name]] if name in split else [])]
    diff = max(
        max_abs_diff(a, b)
        for index, one in enumerate(executions)
        for other in executions[index + 1 :]
        for a, b in zip(one, other, strict=True)
    )
    return RegionResult(
        name=name,
        max_abs_diff=diff,
        tolerance=region_tolerance(compiled.region, run.inputs, run.outputs, constants),
        executions=len(executions),
        dram_bytes=Pair(predicted.traffic.total_bytes, measured.dram_bytes),
        sram_peak_bytes=Pair(predicted.sram_peak_bytes, measured.sram_peak_bytes),
        cycles=Pair(predicted.time.cycles, measured.cycles),
    )


def _output_results(
    names: Sequence[str], expected: Sequence[Array], run: NetworkRun, regions: Sequence[Region]
) -> tuple[OutputResult, ...]:
    """Compare the network's outputs.

    Each step adds its own rounding errors (see ``tolerance.rounding``) to those of the steps before it; in the worst
    chain they add up.
    """
    factor = sum(rounding(reduction_length(step)) for region in regions for step in region.steps)
    return tuple(
        OutputResult(name, max_abs_diff(ours, theirs), factor * magnitude(theirs))
        for name, ours, theirs in zip(names, run.outputs, expected, strict=True)
    )
