"""How long a cut would take, in closed form: what the search ranks by.

The plan that is chosen gets its cycles from the timeline of its commands; this only has to order candidates.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from tvm_sramtile.geometry import Elementwise, Pool2d, Resize2d
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ints import Range, ceil_div
from tvm_sramtile.ir import Step
from tvm_sramtile.plan.cut import Convolution, Cut
from tvm_sramtile.plan.plan import Traffic
from tvm_sramtile.plan.traffic import Axis, Count


@dataclass(frozen=True, slots=True)
class Times:
    """What the estimate is made of; numbers may be arrays."""

    spec: AcceleratorSpec
    step: Step
    cut: Cut
    rows: Axis
    cols: Axis
    traffic: Traffic
    compute: int


def compute_cycles(spec: AcceleratorSpec, step: Step, cut: Cut) -> int:
    """Cycles of the compute queue for one image, by the costs in the instruction set's table."""
    op, (mac_in, mac_out) = step.op, spec.mac_array
    positions = op.out_rows * op.out_cols
    by_channel = sum(ceil_div(len(part), mac_out) for part in cut.channels)
    chain = positions * len(step.activations) * by_channel
    if isinstance(op, Convolution):
        turns = 0
        in_parts = Counter(map(len, cut.in_channels))
        for outs, times in Counter(map(len, cut.channels)).items():
            groups = 1 if len(cut.in_channels) > 1 else max(1, outs // op.out_channels_per_group)
            for ins, parts in in_parts.items():
                by_group = groups * ceil_div(ins, mac_in) * ceil_div(outs // groups, mac_out)
                turns += times * parts * min(by_group, ins * ceil_div(outs, mac_out))
        rows = [len(phase.outputs(Range(0, op.out_rows))) for phase in op.row_phases]
        cols = [len(phase.outputs(Range(0, op.out_cols))) for phase in op.col_phases]
        spent = sum(rows[one.row_phase] * cols[one.col_phase] * one.unit[0] * one.unit[1] for one in cut.passes)
        return spent * turns + chain
    taps = 1
    if isinstance(op, Pool2d):
        taps = op.kernel[0] * op.kernel[1]
    elif isinstance(op, Resize2d):
        taps = op.rows.taps * op.cols.taps
    return positions * taps * by_channel + chain


def estimated_cycles(times: Times, doubled: tuple[str, ...]) -> Count:
    """Cycles of one image, when these of "input" and "output" have two buffers.

    Queues that overlap take as long as the longest of them, those that cannot take the sum; the first load and the last
    store overlap with nothing. Weights have one buffer: they are loaded while nothing is computed.
    """
    spec, step, cut = times.spec, times.step, times.cut
    bytes_per_cycle = spec.dma_bytes_per_cycle * step.images
    chunks = times.rows.count * times.cols.count * len(cut.channels)
    maps = 2 if isinstance(step.op, Elementwise) and step.op.partner == "map" else 1
    fills = chunks * len(cut.in_channels) * (len(cut.passes) if cut.input_per_pass else 1)
    load = maps * fills * spec.dma_setup_cycles + ceil_div(times.traffic.input_bytes, bytes_per_cycle)
    if cut.rolled:
        kept = times.rows.reads.kept * times.cols.reads.total * len(cut.channels)
        load = load + kept * ceil_div(step.op.in_channels, spec.channel_align) + fills * spec.dma_setup_cycles
    store = chunks * spec.dma_setup_cycles + ceil_div(times.traffic.output_bytes, bytes_per_cycle)
    weights = ceil_div(times.traffic.weight_bytes, bytes_per_cycle)
    busy, alone = times.compute + weights, load // fills + store // chunks
    if doubled == ("input", "output"):
        return np.maximum(np.maximum(load + weights, busy), store) + alone
    if doubled == ("input",):
        return np.maximum(load + weights, busy + store) + alone
    if doubled == ("output",):
        return np.maximum(load + busy, store) + alone
    return busy + np.maximum(load, store) + alone
