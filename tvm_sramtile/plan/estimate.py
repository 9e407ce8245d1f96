"""How long a cut would take, in closed form: what the search ranks by.

The plan that is chosen gets its cycles from the timeline of its commands; this only has to order candidates. Numbers
may be arrays, which stand for many cuts at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tvm_sramtile.geometry import Pool2d, Resize2d
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ints import Range, ceil_div
from tvm_sramtile.ir import Step
from tvm_sramtile.isa.cost import channel_turns, conv_turns
from tvm_sramtile.plan.cut import Convolution, Cut, maps_loaded
from tvm_sramtile.plan.plan import KernelPass, Traffic
from tvm_sramtile.plan.traffic import Axis, Count, loads_once_per_call, span_axis, traffic_of


@dataclass(frozen=True, slots=True)
class Times:
    """Cycles of one image.

    Attributes:
        load: of the input, with the rows that are copied.
        busy: computing and loading weights: these have one buffer, and are loaded while nothing is computed.
        weights: loading weights.
        store: of the output.
        alone: the first load and the last store, which overlap with nothing.
    """

    load: Count
    busy: Count
    weights: Count
    store: Count
    alone: Count


def compute_cycles(
    spec: AcceleratorSpec,
    step: Step,
    passes: Sequence[KernelPass],
    channels: Mapping[int, int],
    in_channels: Mapping[int, int],
) -> int:
    """Cycles of the compute queue for one image, which do not depend on how rows and columns are cut.

    Args:
        spec: the accelerator.
        step: what to compute.
        passes: of the kernel.
        channels: how many chunks along the output channels have how many of them.
        in_channels: likewise, of a group, the parts that are summed up.
    """
    op, array = step.op, spec.mac_array
    positions = op.out_rows * op.out_cols
    by_channel = sum(times * channel_turns(outs, array) for outs, times in channels.items())
    chain = positions * len(step.activations) * by_channel
    if isinstance(op, Convolution):
        turns = 0
        in_parts = sum(in_channels.values())
        for outs, times in channels.items():
            groups = 1 if in_parts > 1 else max(1, outs // op.out_channels_per_group)
            turns += times * sum(parts * conv_turns(ins, outs, groups, array) for ins, parts in in_channels.items())
        rows = [len(phase.outputs(Range(0, op.out_rows))) for phase in op.row_phases]
        cols = [len(phase.outputs(Range(0, op.out_cols))) for phase in op.col_phases]
        spent = sum(rows[one.row_phase] * cols[one.col_phase] * one.unit[0] * one.unit[1] for one in passes)
        return spent * turns + chain
    taps = 1
    if isinstance(op, Pool2d):
        taps = op.kernel[0] * op.kernel[1]
    elif isinstance(op, Resize2d):
        taps = op.rows.taps * op.cols.taps
    return positions * taps * by_channel + chain


def times_of(
    spec: AcceleratorSpec,
    step: Step,
    cut: Cut,
    shelves: Count,
    channels: Count,
    rows: Axis,
    cols: Axis,
    traffic: Traffic,
    compute: Count,
) -> Times:
    """What each part of a cut along these rows and columns takes.

    Args:
        spec: the accelerator.
        step: what to compute.
        cut: its loops and passes.
        shelves: chunks of channels, those whose weights are in SRAM together as one.
        channels: chunks of channels.
        rows: the chunks along the rows.
        cols: along the columns.
        traffic: what is moved then.
        compute: see ``compute_cycles``.
    """
    bytes_per_cycle = spec.dma_bytes_per_cycle * step.images
    chunks = rows.count * cols.count * channels
    maps = maps_loaded(step, cut.around)
    fills = rows.count * cols.count * shelves * len(cut.in_channels) * (len(cut.passes) if cut.input_per_pass else 1)
    load = maps * fills * spec.dma_setup_cycles + ceil_div(traffic.input_bytes, bytes_per_cycle)
    if cut.rolled:
        kept = rows.reads.kept * cols.reads.total * shelves
        copies = np.minimum(rows.reads.kept, rows.count - 1) * cols.count * shelves  # no more than there are rows
        load = load + kept * ceil_div(step.op.in_channels, spec.channel_align) + copies * spec.dma_setup_cycles
    store = ceil_div(traffic.output_bytes, bytes_per_cycle)
    if cut.around.stores:
        store = store + chunks * spec.dma_setup_cycles
    weights = ceil_div(traffic.weight_bytes, bytes_per_cycle)
    return Times(load, compute + weights, weights, store, load // fills + store // chunks)


def cycles_of(spec: AcceleratorSpec, step: Step, cut: Cut, *, only_step: bool = True) -> int:
    """What one image of a step takes when it is cut in a given way: an estimate.

    Args:
        spec: the accelerator.
        step: what to compute.
        cut: how.
        only_step: the region has no other.
    """
    channels, ins = (Counter(map(len, parts)) for parts in (cut.channels, cut.in_channels))
    once = loads_once_per_call(cut, only_step=only_step)
    times = times_of(
        spec,
        step,
        cut,
        len(cut.held),
        len(cut.channels),
        span_axis(cut.rows, rolled=cut.rolled),
        span_axis(cut.cols),
        traffic_of(step, cut, once_per_call=once),
        compute_cycles(spec, step, cut.passes, channels, ins),
    )
    return int(estimated_cycles(times, cut.double or ()))


def estimated_cycles(times: Times, doubled: tuple[str, ...]) -> Count:
    """Cycles of one image, when these of "input" and "output" have two buffers.

    Queues that overlap take as long as the longest of them, those that cannot take the sum.
    """
    load, busy, store = times.load + times.weights, times.busy, times.store
    if doubled == ("input", "output"):
        return np.maximum(np.maximum(load, busy), store) + times.alone
    if doubled == ("input",):
        return np.maximum(load, busy + store) + times.alone
    if doubled == ("output",):
        return np.maximum(times.load + busy, store) + times.alone
    return busy + np.maximum(times.load, store) + times.alone
