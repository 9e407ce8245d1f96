"""What CONVs make of what lies in SRAM. Part of the proof of programs; see ``check_program``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tvm_sramtile.geometry import Conv2d, Conv2dTranspose
from tvm_sramtile.isa import Dtype
from tvm_sramtile.isa.table import CONV_BIAS, CONV_CLIP, CONV_FIRST, CONV_LAST
from tvm_sramtile.lower.check_made import Comb, Loaded, Made, Taps, Wanted, Weights, Work
from tvm_sramtile.lower.check_operands import Bytes
from tvm_sramtile.lower.check_sram import Sram

Fields = Mapping[str, int]
Convolution = Conv2d | Conv2dTranspose

_FLOAT32 = int(Dtype.FLOAT32)
_DTYPES = ("input_dtype", "weight_dtype", "accumulator_dtype", "output_dtype")
_AXES = ("rows", "cols")
_COMPUTE = 1  # its queue


class Convolving:
    """Follows CONVs: their operands, and the sums that they leave."""

    def __init__(self, sram: Sram, units: Sequence[tuple[int, int]]) -> None:
        self.sram, self.units, self.fail = sram, units, sram.fail

    def convolve(self, wanted: Wanted, step: int, flags: int, fields: Fields) -> None:
        """One addition to the sums of a phase, with the epilogue at its end."""
        op = wanted.conv
        if op is None:
            self.fail(f"step {wanted.step.name} is no convolution")
        self.conv_fields(fields)
        ins, outs, groups = fields["in_channels"], fields["out_channels"], fields["groups"]
        taps = fields["kernel_rows"] * fields["kernel_cols"]
        extents = (outs, fields["out_map_rows"], fields["out_map_cols"])
        block_bytes = fields["out_block_bytes"]
        output = self.sram.operands.map(fields["output"], extents, block_bytes, "output", self.fail)
        sums = self.sram.operands.map(fields["accumulators"], extents, block_bytes, "accumulators", self.fail)
        rows, cols = (self.comb(fields, axis) for axis in ("row", "col"))
        fresh = Made(step, extents, block_bytes)
        made = self.target(sums, fresh, (rows, cols), begins=bool(flags & CONV_FIRST))
        work = made.phases[rows, cols]
        operands = []
        if taps and fields["in_rows"] and fields["in_cols"]:
            source, data = self.sram.map(
                fields["input"], (ins, fields["in_rows"], fields["in_cols"]), fields["in_block_bytes"], "input",
                wanted.step.data.name,
            )  # fmt: skip
            place = self.sram.operands.weights(fields["weights"], outs, ins // groups, taps, self.fail)
            weights = self.sram.held(place, Weights, "weights")
            operands += [source, place]
            self.add(wanted, op, fields, data, weights, work)
        work.macs += rows[1] * cols[1] * taps * (ins // groups) * outs
        if flags & CONV_LAST:
            operands += self.epilogue(wanted, flags, fields, outs, work)
        elif flags & ~CONV_FIRST:
            self.fail(f"flags are {flags}: an epilogue before the last addition")
        self.sram.apart([sums] if sums == output else [sums, output], operands)
        self.leave(flags, made, sums, output, (rows, cols))

    def conv_fields(self, fields: Fields) -> None:
        """What the table demands of the fields, whatever the step."""
        for name in ("stride", "dilation", "unit"):
            for axis in _AXES:
                if fields[f"{name}_{axis}"] < 1:
                    self.fail(f"{name}_{axis} is {fields[f'{name}_{axis}']}, must be positive")
        kernel, unit = [(fields[f"{name}_rows"], fields[f"{name}_cols"]) for name in ("kernel", "unit")]
        if kernel[0] < 0 or kernel[1] < 0 or kernel[0] > unit[0] or kernel[1] > unit[1]:
            self.fail(f"a kernel of {kernel} on a unit of {unit}")
        if unit not in self.units and (unit != (1, 1) or all(kernel)):
            self.fail(f"{unit} is no unit kernel: units are {list(self.units)}")
        for name in _DTYPES:
            if fields[name] != _FLOAT32:
                self.fail(f"{name} is {fields[name]}, must be {_FLOAT32}")
        groups = fields["groups"]
        if groups < 1 or fields["in_channels"] < 1 or fields["in_channels"] % groups or fields["out_channels"] % groups:
            self.fail(f"{groups} groups of {fields['in_channels']} input and {fields['out_channels']} output channels")
        if min(fields["in_rows"], fields["in_cols"]) < 0 or not fields["clip_low"] <= fields["clip_high"]:
            limits = (fields["clip_low"], fields["clip_high"])
            self.fail(f"{fields['in_rows']} rows and {fields['in_cols']} columns, clipped to {limits}")

    def comb(self, fields: Fields, axis: str) -> Comb:
        """The outputs computed along an axis, within the map."""
        first, count, step = fields[f"out_{axis}"], fields[f"out_{axis}s"], fields[f"out_{axis}_step"]
        if first < 0 or count < 1 or step < 1 or first + (count - 1) * step >= fields[f"out_map_{axis}s"]:
            size = fields[f"out_map_{axis}s"]
            self.fail(f"output {axis}s {first} and {count - 1} more, {step} apart, are not within the map's {size}")
        return first, count, step if count > 1 else 1

    def target(self, place: Bytes, fresh: Made, phase: tuple[Comb, Comb], *, begins: bool) -> Made:
        """The sums in ``place`` that this phase is added to, or begins."""
        held = self.sram.space.holds(*place)
        old = held if isinstance(held, Made) and self.goes_on(held, fresh) else None
        if begins:
            made = fresh if old is None or phase in old.phases else old
            made.phases[phase] = Work()
            return made
        self.sram.space.read(*place, _COMPUTE, self.sram.clock, self.fail)
        if old is None or phase not in old.phases or old.phases[phase].done:
            self.fail(f"adds to the sums in SRAM bytes {place[0]}-{place[1]}, where these outputs have not begun")
        return old

    @staticmethod
    def goes_on(old: Made, new: Made) -> bool:
        """Whether what lies there is a part of the same result."""
        alike = (old.step, old.extents, old.block_bytes) == (new.step, new.extents, new.block_bytes)
        return alike and not old.stored and old.stage == 0

    def add(self, wanted: Wanted, op: Convolution, fields: Fields, data: Loaded, weights: Weights, work: Work) -> None:
        """The taps and channels of ``weights`` meet the right positions and channels of ``data``."""
        (ins, *taps), groups = weights.part, fields["groups"]
        weight = wanted.step.weight
        if weight is None or weight.name not in weights.names:
            self.fail(f"reads the weights {', '.join(sorted(weights.names))} of another step")
        outs, width, depth = weights.outs, op.out_channels // op.groups, op.in_channels // op.groups
        found = (fields["out_channels"], fields["in_channels"] // groups, fields["kernel_rows"], fields["kernel_cols"])
        lies = (outs[1] - outs[0], ins[1] - ins[0], taps[0][1], taps[1][1])
        if found != lies:
            self.fail(f"reads weights of (outputs, inputs, rows, cols) {found}, but there lie {lies}")
        first, last = outs[0] // width, (outs[1] - 1) // width
        whole = first == last or (outs[0] % width == 0 == outs[1] % width and ins == (0, depth))
        if not whole or groups != last - first + 1:
            self.fail(f"groups is {groups}, outputs {outs} and inputs {ins} are of the groups {first}-{last}")
        channels = (first * depth + ins[0], last * depth + ins[1])
        if data.channels != channels:
            self.fail(f"reads the input channels {data.channels}, the weights belong to {channels}")
        row = self.origin(op, 0, fields, data.rows[0], taps[0])
        col = self.origin(op, 1, fields, data.cols[0], taps[1])
        work.is_of(outs, self.fail)
        work.begins((row, col), None, self.fail)
        for axis, (first, held) in enumerate(((row, data.rows), (col, data.cols))):
            start, count, step = self.comb(fields, _AXES[axis][:-1])
            needed = wanted.tap_hull(axis, (first + start, count, step), taps[axis])
            if needed is not None and not held[0] <= needed[0] <= needed[1] <= held[1]:
                self.fail(f"reads {_AXES[axis]} {needed[0]}-{needed[1]} of the data, but there lie {held[0]}-{held[1]}")
        work.parts.append(weights.part)

    def origin(self, op: Convolution, axis: int, fields: Fields, first: int, taps: Taps) -> int:
        """The output position at which the map begins along an axis, if taps and positions are to meet as they should.

        Output ``o`` and tap ``t`` of a convolution meet at ``o*stride + t*dilation - pad``, and of a transposed one
        where ``i*stride + t*dilation - pad`` is ``o``.
        """
        name, one = _AXES[axis], _AXES[axis][:-1]
        stride, dilation, pad = op.strides[axis], op.dilation[axis], op.padding[axis]
        tap, count, tap_step = taps
        top = first - fields["pad_top" if axis == 0 else "pad_left"]
        outs, step = fields[f"out_{name}"], fields[f"out_{one}_step"]
        moves, spreads = fields[f"stride_{name}"], fields[f"dilation_{name}"]
        if isinstance(op, Conv2d):
            right = (outs == 1 or moves == step * stride) and (count == 1 or spreads == tap_step * dilation)
            place, rest = divmod(top + pad - tap * dilation, stride)
        else:
            right = (outs == 1 or moves * stride == step) and (count == 1 or spreads * stride == -tap_step * dilation)
            place, rest = top * stride + tap * dilation - pad, 0
        if not right or rest:
            self.fail(f"{name}: no output of this {op.kind} reads so: stride {moves}, dilation {spreads}")
        return place - fields[f"out_{one}"]

    def epilogue(self, wanted: Wanted, flags: int, fields: Fields, outs: int, work: Work) -> list[Bytes]:
        """Bias and clip are the step's; returns the operands."""
        step = wanted.step
        right = (CONV_BIAS if step.bias is not None else 0) | (CONV_CLIP if step.clip is not None else 0)
        if flags & ~(CONV_FIRST | CONV_LAST) != right:
            self.fail(f"flags are {flags}: the epilogue of step {step.name} is {right}")
        if step.clip is not None:
            low = -math.inf if step.clip.low is None else step.clip.low
            high = math.inf if step.clip.high is None else step.clip.high
            for name, limit in (("clip_low", low), ("clip_high", high)):
                if np.float32(fields[name]) != np.float32(limit):
                    self.fail(f"{name} is {fields[name]}, of step {step.name} {limit}")
        work.done = True
        if step.bias is None:
            return []
        place, bias = self.sram.map(
            fields["bias"], (outs, 1, 1), self.sram.operands.rows_bytes(1, 1), "bias", step.bias.name
        )  # fmt: skip
        work.is_of(bias.channels, self.fail)
        return [place]

    def leave(self, flags: int, made: Made, sums: Bytes, output: Bytes, phase: tuple[Comb, Comb]) -> None:
        """The sums, or the finished phase in the output map."""
        if not flags & CONV_LAST or sums == output:
            self.sram.write(sums, made)
            return
        fresh = Made(made.step, made.extents, made.block_bytes)
        held = self.sram.space.holds(*output)
        target = held if isinstance(held, Made) and self.goes_on(held, fresh) and phase not in held.phases else fresh
        target.phases[phase] = made.phases.pop(phase)
        self.sram.write(sums, made)
        self.sram.write(output, target)
