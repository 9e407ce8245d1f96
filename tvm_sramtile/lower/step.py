"""Commands of one step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose, Elementwise, Pool2d, Resize2d
from tvm_sramtile.ints import Range
from tvm_sramtile.ir import dtype_bytes
from tvm_sramtile.isa import Command, Function, Partner, Pooling
from tvm_sramtile.isa.table import (
    CONV,
    CONV_BIAS,
    CONV_CLIP,
    CONV_FIRST,
    CONV_LAST,
    ELTWISE,
    POOL,
    RESIZE,
)
from tvm_sramtile.lower.memory import NOWHERE, SramMap, StepMemory, Window, window_of
from tvm_sramtile.lower.slots import Slot
from tvm_sramtile.lower.tensors import DTYPES
from tvm_sramtile.plan import Chunk, KernelPass

Convolution = Conv2d | Conv2dTranspose


@dataclass(slots=True)
class StepLowering(StepMemory):
    """Emits the commands of a step by its plan."""

    def run(self) -> None:
        """All chunks in the plan's order."""
        for count, chunk in enumerate(self.plan.chunks):
            target = self.target(count, chunk)
            self.load_vectors(chunk)
            match self.step.op:
                case Conv2d() | Conv2dTranspose() as op:
                    self._convolve(op, chunk, target)
                case Pool2d() as op:
                    self._pool(op, chunk, target)
                case Resize2d() as op:
                    self._resize(op, chunk, target)
                case Elementwise() as op:
                    self._elementwise(op, chunk, target)
            for position, activation in enumerate(self.step.activations):
                vector = self.vector(f"vector {position}", chunk)
                values = (activation.value0, activation.value1)
                self._eltwise(chunk, target, activation.function, activation.partner, target, vector, values)
            self.store(chunk, target)

    # Computing.

    def _convolve(self, op: Convolution, chunk: Chunk, target: SramMap) -> None:
        passes = self.plan.passes
        sums = len(self.plan.in_channels)
        source_channels = op.in_channel_range(chunk.channels)
        last = {(p.row_phase, p.col_phase): count for count, p in enumerate(passes)}
        for turn, ins in enumerate(self.plan.in_channels):
            channels = source_channels
            if sums > 1:
                channels = Range(source_channels.start + ins.start, source_channels.start + ins.stop)
            window = window_of(chunk, channels)
            # The input first: it may have a second buffer, and the queue waits until the weights' only one is free.
            source = SramMap(NOWHERE, 0) if self.plan.input_per_pass else self.load_map("input", self.step.data, window)
            if self.plan.passes_resident:
                self.load_weights(op, chunk, ins, passes)
            addresses = dict(self.weight_addresses(chunk, ins, passes))
            begun: set[tuple[int, int]] = set()
            for count, kernel_pass in enumerate(passes):
                if not self.plan.passes_resident and kernel_pass.taps:
                    self.load_weights(op, chunk, ins, (kernel_pass,))
                    addresses[kernel_pass] = self.slot("weights").address
                if self.plan.input_per_pass:
                    window = self._pass_window(op, chunk, kernel_pass, channels)
                    source = self.load_anew("input", self.step.data, window)
                phase = (kernel_pass.row_phase, kernel_pass.col_phase)
                flags = CONV_FIRST if turn == 0 and phase not in begun else 0
                begun.add(phase)
                if turn == sums - 1 and last[phase] == count:
                    flags |= CONV_LAST | (CONV_BIAS if self.step.bias else 0) | (CONV_CLIP if self.step.clip else 0)
                weights = addresses.get(kernel_pass, 0)
                self._conv(op, chunk, kernel_pass, flags, source, channels, weights, target)

    def _conv(
        self,
        op: Convolution,
        chunk: Chunk,
        kernel_pass: KernelPass,
        flags: int,
        source: SramMap,
        channels: Range,
        weights: int,
        target: SramMap,
    ) -> None:
        row, col = op.row_phases[kernel_pass.row_phase], op.col_phases[kernel_pass.col_phase]
        out_rows, out_cols = row.outputs(chunk.row.out), col.outputs(chunk.col.out)
        if not len(out_rows) or not len(out_cols):
            return
        clip = self.step.clip
        groups = 1 if len(self.plan.in_channels) > 1 else len(op.groups_of(chunk.channels))
        accumulators, bias = self.slot("accumulators"), self.vector("bias", chunk)
        code = DTYPES[self.step.data.dtype]
        values = (
            source.slot.address,
            source.block_bytes,
            len(source.rows),
            len(source.cols),
            len(channels),
            weights,
            bias.address,
            accumulators.address if accumulators.bytes else target.slot.address,
            target.slot.address,
            target.block_bytes,
            len(chunk.row.out),
            len(chunk.col.out),
            row.offset + out_rows.start * row.step - chunk.row.out.start,
            len(out_rows),
            row.step,
            col.offset + out_cols.start * col.step - chunk.col.out.start,
            len(out_cols),
            col.step,
            len(chunk.channels),
            groups,
            *kernel_pass.unit,
            len(kernel_pass.rows),
            len(kernel_pass.cols),
            row.stride,
            col.stride,
            row.dilation,
            col.dilation,
            source.rows.start - (out_rows.start * row.stride + row.first + row.dilation * kernel_pass.rows.start),
            source.cols.start - (out_cols.start * col.stride + col.first + col.dilation * kernel_pass.cols.start),
            -math.inf if clip is None or clip.low is None else clip.low,
            math.inf if clip is None or clip.high is None else clip.high,
            code,
            code,
            code,
            code,
        )
        places = (source.slot, self.slot("weights"), bias)
        written = {target.slot, accumulators} if accumulators.bytes else {target.slot}
        self.body.add(Command(CONV, values, flags, self.index), [p for p in places if p.bytes], written)

    def _pass_window(self, op: Convolution, chunk: Chunk, one: KernelPass, channels: Range) -> Window:
        """What one pass reads of these input channels for a chunk."""
        rows = op.row_phases[one.row_phase].reads(chunk.row.out, one.rows, op.in_rows)
        cols = op.col_phases[one.col_phase].reads(chunk.col.out, one.cols, op.in_cols)
        return Window(channels, rows, cols)

    def _pool(self, op: Pool2d, chunk: Chunk, target: SramMap) -> None:
        window = window_of(chunk, chunk.channels)
        source = self.load_map("input", self.step.data, window)
        values = (
            source.slot.address,
            source.block_bytes,
            len(source.rows),
            len(source.cols),
            len(chunk.channels),
            target.slot.address,
            target.block_bytes,
            len(chunk.row.out),
            len(chunk.col.out),
            *op.kernel,
            *op.strides,
            *op.dilation,
            source.rows.start - (chunk.row.out.start * op.strides[0] - op.padding[0]),
            source.cols.start - (chunk.col.out.start * op.strides[1] - op.padding[1]),
            Pooling[op.pooling.upper()],
        )
        reads = [source.slot] if source.slot.bytes else []
        self.body.add(Command(POOL, values, step=self.index), reads, (target.slot,))

    def _resize(self, op: Resize2d, chunk: Chunk, target: SramMap) -> None:
        source = self.load_map("input", self.step.data, window_of(chunk, chunk.channels))  # first: see _convolve
        rows = self.load_table("row", chunk.row.out)
        cols = self.load_table("col", chunk.col.out)
        values = (
            source.slot.address,
            source.block_bytes,
            len(source.rows),
            len(source.cols),
            source.rows.start,
            source.cols.start,
            len(chunk.channels),
            rows.address,
            op.rows.taps,
            cols.address,
            op.cols.taps,
            target.slot.address,
            target.block_bytes,
            len(chunk.row.out),
            len(chunk.col.out),
        )
        self.body.add(Command(RESIZE, values, step=self.index), (source.slot, rows, cols), (target.slot,))

    def _elementwise(self, op: Elementwise, chunk: Chunk, target: SramMap) -> None:
        window = window_of(chunk, chunk.channels)
        source = self.load_map("input", self.step.data, window)
        partner = NOWHERE
        if op.partner == "map" and self.step.other is not None:
            partner = self.load_map("other", self.step.other, window).slot
        elif op.partner == "vector":
            partner = self.vector("vector", chunk)
        self._eltwise(chunk, source, op.function, op.partner, target, partner, (op.value, 0.0))

    def _eltwise(
        self,
        chunk: Chunk,
        source: SramMap,
        function: str,
        kind: str,
        target: SramMap,
        partner: Slot,
        params: tuple[float, float],
    ) -> None:
        partner_block = self.in_block_bytes if kind == "map" else 0
        if kind == "vector":
            partner_block = self.spec.layout.block_elems(1, 1) * dtype_bytes(self.step.data.dtype)
        values = (
            source.slot.address,
            source.block_bytes,
            partner.address,
            partner_block,
            Partner[kind.upper()],
            target.slot.address,
            target.block_bytes,
            len(chunk.row.out),
            len(chunk.col.out),
            len(chunk.channels),
            Function[function.upper()],
            *params,
        )
        reads = [place for place in (source.slot, partner) if place.bytes]
        self.body.add(Command(ELTWISE, values, step=self.index), reads, (target.slot,))
