"""What must hold of any region on any chip: the results are the oracle's, and all figures the plan's."""

from __future__ import annotations

from collections import Counter

from core.regions import Case

from tvm_sramtile.compile import Compiled, compile_region
from tvm_sramtile.engine import Measured, count, run
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.isa import Traffic, decode
from tvm_sramtile.lower import command_cycles
from tvm_sramtile.options import Options
from tvm_sramtile.plan import Plan

BYTES = ("input_bytes", "weight_bytes", "output_bytes", "partial_sum_bytes")


def check(case: Case, spec: AcceleratorSpec, options: Options) -> Plan:
    """Plan, check, lower, check, encode; run by the reference and by the engine. The plan."""
    compiled = compile_region(case.region, spec, options, case.constants)
    assert decode(compiled.code) == compiled.program
    assert case.run(compiled.program) == case.measures(compiled.plan)
    assert compiled.predicted.time.cycles > 0
    check_engine(case, compiled)
    return compiled.plan


def check_engine(case: Case, compiled: Compiled) -> None:
    """The outputs are the oracle's; what the engine counts is what was predicted, without tolerance."""
    arguments = case.arguments()
    found = run(compiled.code, arguments, case.region.images, checked=True)
    case.compare(arguments)
    assert count(compiled.code, case.region.images) == found
    check_steps(compiled, found)
    wanted, time = case.measures(compiled.plan), compiled.predicted.time
    assert counted(found) == (
        *(wanted.dram_bytes[kind] for kind in Traffic),
        wanted.macs,
        wanted.sram_peak_bytes,
        *(time.cycles, time.load_busy_cycles, time.compute_busy_cycles, time.store_busy_cycles),
    )


def check_steps(compiled: Compiled, found: Measured) -> None:
    """Each step's traffic is the plan's, each kind's cycles are the timeline's; the sums over steps are the totals."""
    program, images = compiled.program, compiled.region.images
    commands: Counter[tuple[int, str]] = Counter()
    cycles: Counter[tuple[int, str]] = Counter()
    for part, times in ((program.prologue, 1), (program.body, images)):
        for command in part:
            key = (command.step, command.opcode.name)
            commands[key] += times
            cycles[key] += times * command_cycles(program, command)
    assert commands == {(s, k): c.commands for s, step in enumerate(found.steps) for k, c in step.items()}
    assert cycles == {(s, k): c.busy_cycles for s, step in enumerate(found.steps) for k, c in step.items()}
    for step, plan, counts in zip(compiled.region.steps, compiled.plan.steps, found.steps, strict=True):
        kinds = counts.values()
        moved = [sum(getattr(kind, field) for kind in kinds) for field in BYTES]
        assert moved == [getattr(plan.traffic, field) for field in BYTES], step.name
    for field in ("macs", *BYTES):
        assert getattr(found, field) == sum(getattr(k, field) for step in found.steps for k in step.values())


def counted(found: Measured) -> tuple[int, ...]:
    traffic = (found.input_bytes, found.weight_bytes, found.output_bytes, found.partial_sum_bytes)
    cycles = (found.cycles, found.load_busy_cycles, found.compute_busy_cycles, found.store_busy_cycles)
    return (*traffic, found.macs, found.sram_peak_bytes, *cycles)
