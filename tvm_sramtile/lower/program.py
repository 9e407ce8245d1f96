"""Commands of a region: for each step its weights, then chunk by chunk load, convolve, store."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ints import Range
from tvm_sramtile.ir import Region, Step, Tensor, dtype_bytes
from tvm_sramtile.isa import Command, Opcode, Program
from tvm_sramtile.isa.table import CONV, CONV_BIAS, CONV_CLIP, CONV_FIRST, CONV_LAST, LOAD, LOAD_WEIGHTS, STORE
from tvm_sramtile.lower.slots import Slot, place_buffers
from tvm_sramtile.lower.tensors import Role, TensorTable, tensor_table, weights_of
from tvm_sramtile.lower.waits import Sequencer
from tvm_sramtile.plan import Chunk, Plan, StepPlan


def lower(
    region: Region, plan: Plan, spec: AcceleratorSpec, constants: Mapping[str, NDArray[np.generic]] | None
) -> Program:
    """The program of ``region`` for one image; the same plan always gives the same program.

    Args:
        region: what to compute.
        plan: how.
        spec: the accelerator that the plan was made for.
        constants: the values of the region's constants by their digests; ``None`` for a program that is only counted,
            with zeros in their place.

    Raises:
        CheckFailed: a constant is missing, or the plan's buffers do not fit the spec.
    """
    table = tensor_table(region, constants, spec.channel_align)
    prologue, body = Sequencer(), Sequencer()
    for index, (step, step_plan) in enumerate(zip(region.steps, plan.steps, strict=True)):
        lowering = _StepLowering(index, step, step_plan, spec, table, place_buffers(step_plan, spec))
        lowering.load_weights(prologue if step_plan.weights_resident else body)
        for count, chunk in enumerate(step_plan.chunks):
            lowering.run_chunk(body, count, chunk)
    return Program(
        **Program.chip(spec),
        argument_count=len(region.inputs) + len(region.outputs),
        tensors=table.records,
        prologue=tuple(prologue.commands),
        body=tuple(body.commands),
        steps=len(region.steps),
        constants=table.constants,
        workspace_bytes=table.workspace_bytes,
    )


@dataclass(frozen=True, slots=True)
class _StepLowering:
    index: int
    step: Step
    plan: StepPlan
    spec: AcceleratorSpec
    table: TensorTable
    slots: Mapping[str, tuple[Slot, ...]]

    def load_weights(self, out: Sequencer) -> None:
        """Weights and bias, whole."""
        for tensor, role in weights_of(self.step):
            slot = self.slots["weights" if role == "weight" else "bias"][0]
            if role == "bias":
                self._move(out, LOAD, tensor, role, Range(0, 1), Range(0, 1), tensor.elems, slot)
                continue
            out_channels, in_channels, rows, cols = tensor.shape
            command = Command.make(
                LOAD_WEIGHTS,
                step=self.index,
                tensor=self.table.index[tensor.name, role],
                out_channel=0,
                out_channels=out_channels,
                in_channel=0,
                in_channels=in_channels,
                kernel_row=0,
                kernel_rows=rows,
                kernel_col=0,
                kernel_cols=cols,
                sram=slot.address,
            )
            out.add(command, (tensor.name,), (slot,))

    def run_chunk(self, out: Sequencer, count: int, chunk: Chunk) -> None:
        """Load the chunk's input rows, convolve, store its output rows."""
        step = self.step
        source = self._slot("input", count)
        target = self._slot("output", count)
        if len(chunk.in_rows) and len(self.plan.in_cols):
            self._move(out, LOAD, step.data, "data", chunk.in_rows, self.plan.in_cols, step.op.in_channels, source)
        self._convolve(out, chunk, source, target, self._slot("accumulators", count))
        cols = Range(0, step.op.out_cols)
        self._move(out, STORE, step.output, "output", chunk.out_rows, cols, step.op.out_channels, target)

    def _slot(self, buffer: str, count: int) -> Slot:
        slots = self.slots.get(buffer, (Slot(0, 0),))
        return slots[count % len(slots)]

    def _map_bytes(self, rows: int, cols: int, dtype: str) -> tuple[int, int]:
        """Bytes from block to block, and from row to row."""
        layout, elem_bytes = self.spec.layout, dtype_bytes(dtype)
        return layout.block_elems(rows, cols) * elem_bytes, layout.row_elems(cols) * elem_bytes

    def _move(
        self,
        out: Sequencer,
        opcode: Opcode,
        tensor: Tensor,
        role: Role,
        rows: Range,
        cols: Range,
        channels: int,
        slot: Slot,
    ) -> None:
        block_bytes, row_bytes = self._map_bytes(len(rows), len(cols), tensor.dtype)
        command = Command.make(
            opcode,
            step=self.index,
            tensor=self.table.index[tensor.name, role],
            channel=0,
            channels=channels,
            row=rows.start,
            rows=len(rows),
            col=cols.start,
            cols=len(cols),
            sram=slot.address,
            block_bytes=block_bytes,
            row_bytes=row_bytes,
        )
        dram, sram = (tensor.name,), (slot,)
        out.add(command, *((dram, sram) if opcode is LOAD else (sram, dram)))

    def _convolve(self, out: Sequencer, chunk: Chunk, source: Slot, target: Slot, accumulators: Slot) -> None:
        step, op, clip = self.step, self.step.op, self.step.clip
        in_rows, in_cols = len(chunk.in_rows), len(self.plan.in_cols)
        if not (in_rows and in_cols):  # all of it lies in padding
            in_rows = in_cols = 0
        low = -math.inf if clip is None or clip.low is None else clip.low
        high = math.inf if clip is None or clip.high is None else clip.high
        if not accumulators.bytes:
            accumulators = target
        flags = CONV_FIRST | CONV_LAST | (CONV_BIAS if step.bias else 0) | (CONV_CLIP if clip else 0)
        weights = self.slots["weights"][0]
        bias = self.slots["bias"][0] if step.bias else Slot(0, 0)
        code = self.table.records[self.table.index[step.data.name, "data"]].dtype
        command = Command.make(
            CONV,
            flags=flags,
            step=self.index,
            input=source.address,
            in_block_bytes=self._map_bytes(in_rows, in_cols, step.data.dtype)[0],
            in_rows=in_rows,
            in_cols=in_cols,
            in_channels=op.in_channels,
            weights=weights.address,
            bias=bias.address,
            accumulators=accumulators.address,
            output=target.address,
            out_block_bytes=self._map_bytes(len(chunk.out_rows), op.out_cols, step.output.dtype)[0],
            out_rows=len(chunk.out_rows),
            out_cols=op.out_cols,
            out_channels=op.out_channels,
            groups=op.groups,
            kernel_rows=op.kernel[0],
            kernel_cols=op.kernel[1],
            stride_rows=op.strides[0],
            stride_cols=op.strides[1],
            dilation_rows=op.dilation[0],
            dilation_cols=op.dilation[1],
            pad_top=chunk.pad_top,
            pad_left=self.plan.pad_left,
            clip_low=low,
            clip_high=high,
            input_dtype=code,
            weight_dtype=code,
            accumulator_dtype=code,
            output_dtype=code,
        )
        reads = [place for place in (source, weights, bias) if place.bytes]
        out.add(command, reads, {target, accumulators})
