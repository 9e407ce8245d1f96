"""What POOL, RESIZE and ELTWISE make of what lies in SRAM. Part of the proof of programs; see ``check_program``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tvm_sramtile.geometry import Elementwise, Pool2d, Resize2d
from tvm_sramtile.isa import Function, Partner, Pooling
from tvm_sramtile.lower.check_made import Extents, Made, Table, Wanted, Work
from tvm_sramtile.lower.check_operands import ENTRY_BYTES, Bytes
from tvm_sramtile.lower.check_sram import Sram

Fields = Mapping[str, int]

_AXES = ("rows", "cols")
_LIMITS = {Function.CLIP: 2, Function.LEAKY_RELU: 1}  # how many of value0 and value1 a function looks at


class ByChannel:
    """Follows commands that treat each channel by itself."""

    def __init__(self, sram: Sram) -> None:
        self.sram, self.fail = sram, sram.fail

    def result(self, fields: Fields, extents: Extents, operands: Sequence[Bytes], *, same: bool = False) -> Bytes:
        """The place of the output map."""
        place = self.sram.operands.map(fields["output"], extents, fields["out_block_bytes"], "output", self.fail)
        self.sram.apart([place], operands, same=same)
        return place

    def pool(self, wanted: Wanted, step: int, fields: Fields) -> None:
        """A window over the data."""
        op = wanted.step.op
        if not isinstance(op, Pool2d):
            self.fail(f"step {wanted.step.name} is no pooling")
        if fields["pooling"] != Pooling[op.pooling.upper()]:
            self.fail(f"pooling is {fields['pooling']}, of step {wanted.step.name} {op.pooling}")
        work, operands = Work(done=True), []
        for name, values in (("kernel", op.kernel), ("stride", op.strides), ("dilation", op.dilation)):
            for axis, value in zip(_AXES, values, strict=True):
                if fields[f"{name}_{axis}"] != value:
                    self.fail(f"{name}_{axis} is {fields[f'{name}_{axis}']}, of step {wanted.step.name} it is {value}")
        if fields["in_rows"] and fields["in_cols"]:
            extents = (fields["channels"], fields["in_rows"], fields["in_cols"])
            source, data = self.sram.map(
                fields["input"], extents, fields["in_block_bytes"], "input", wanted.step.data.name
            )
            operands.append(source)
            row, row_rest = divmod(data.rows[0] - fields["pad_top"] + op.padding[0], op.strides[0])
            col, col_rest = divmod(data.cols[0] - fields["pad_left"] + op.padding[1], op.strides[1])
            if row_rest or col_rest:
                self.fail(f"no output of step {wanted.step.name} has a window that begins there")
            work.is_of(data.channels, self.fail)
            work.begins((row, col), (data.rows, data.cols), self.fail)
        extents = (fields["channels"], fields["out_rows"], fields["out_cols"])
        place = self.result(fields, extents, operands)
        self.sram.write(place, Made(step, extents, fields["out_block_bytes"], {None: work}))

    def resize(self, wanted: Wanted, step: int, fields: Fields) -> None:
        """Rows and columns blended by the entries of tables."""
        op = wanted.step.op
        if not isinstance(op, Resize2d):
            self.fail(f"step {wanted.step.name} is no resize")
        extents = (fields["channels"], fields["in_rows"], fields["in_cols"])
        source, data = self.sram.map(fields["input"], extents, fields["in_block_bytes"], "input", wanted.step.data.name)
        if (fields["in_row"], fields["in_col"]) != (data.rows[0], data.cols[0]):
            self.fail(f"the data begins at {(data.rows[0], data.cols[0])}, not {(fields['in_row'], fields['in_col'])}")
        operands, origin = [source], []
        for axis in ("row", "col"):
            count, taps = fields[f"out_{axis}s"], fields[f"{axis}_taps"]
            size = count * taps * ENTRY_BYTES
            place = self.sram.operands.place(fields[f"{axis}_table"], size, f"{axis} table", self.fail)
            table = self.sram.held(place, Table, f"{axis} table")
            if axis not in table.axes or table.taps != taps or table.outs[1] - table.outs[0] != count:
                self.fail(f"{axis} table: there lie {table.taps} taps of outputs {table.outs} of {set(table.axes)}")
            operands.append(place)
            origin.append(table.outs[0])
        work = Work(done=True)
        work.is_of(data.channels, self.fail)
        work.begins((origin[0], origin[1]), (data.rows, data.cols), self.fail)
        extents = (fields["channels"], fields["out_rows"], fields["out_cols"])
        place = self.result(fields, extents, operands)
        self.sram.write(place, Made(step, extents, fields["out_block_bytes"], {None: work}))

    def eltwise(self, wanted: Wanted, step: int, fields: Fields) -> None:
        """The step's own function of its data, or its next activation of what has been made."""
        extents = (fields["channels"], fields["rows"], fields["cols"])
        block_bytes = fields["in_block_bytes"]
        source = self.sram.operands.map(fields["input"], extents, block_bytes, "input", self.fail)
        held = self.sram.space.holds(*source)
        if isinstance(held, Made) and held.step == step:
            self.activate(wanted, step, fields, extents, source)
            return
        op, own = wanted.step.op, wanted.step
        if not isinstance(op, Elementwise):
            self.fail(f"SRAM bytes {source[0]}-{source[1]} hold no result of step {own.name}")
        _, data = self.sram.map(fields["input"], extents, block_bytes, "input", own.data.name)
        work = Work(done=True)
        work.is_of(data.channels, self.fail)
        work.begins((data.rows[0], data.cols[0]), (data.rows, data.cols), self.fail)
        self.function(fields, op.function, op.partner, (op.value, 0.0))
        operands = [source]
        if own.other is not None:
            vector = op.partner == "vector"
            lies = (extents[0], 1, 1) if vector else extents
            what = "vector" if vector else "partner"
            place, other = self.sram.map(
                fields["partner"], lies, fields["partner_block_bytes"], what, own.other.name
            )  # fmt: skip
            operands.append(place)
            if other.channels != data.channels or (not vector and (other.rows, other.cols) != (data.rows, data.cols)):
                self.fail(f"the partner is another part of its map than the data: channels {other.channels}")
        made = Made(step, extents, fields["out_block_bytes"], {None: work})
        self.sram.write(self.result(fields, extents, operands, same=True), made)

    def activate(self, wanted: Wanted, step: int, fields: Fields, extents: Extents, source: Bytes) -> None:
        """The step's next activation."""
        made, name = self.sram.held(source, Made, "input"), wanted.step.name
        if made.step != step or (made.extents, made.block_bytes) != (extents, fields["in_block_bytes"]):
            found = f"{made.extents} with blocks of {made.block_bytes} B of step {made.step}"
            self.fail(f"activates {extents} with blocks of {fields['in_block_bytes']} B, but there lie {found}")
        if made.stored or made.stage >= len(wanted.step.activations):
            self.fail(f"step {name} has no more than {len(wanted.step.activations)} activations, before its store")
        activation = wanted.step.activations[made.stage]
        self.function(fields, activation.function, activation.partner, (activation.value0, activation.value1))
        operands, phases = [source], made.phases
        if activation.vector is not None:
            lies, at = (extents[0], 1, 1), fields["partner"]
            place, vector = self.sram.map(at, lies, fields["partner_block_bytes"], "vector", activation.vector.name)
            operands.append(place)
            for work in phases.values():
                work.is_of(vector.channels, self.fail)
        after = replace(made, block_bytes=fields["out_block_bytes"], stage=made.stage + 1)
        self.sram.write(self.result(fields, extents, operands, same=True), after)

    def function(self, fields: Fields, name: str, partner: str, values: tuple[float, float]) -> None:
        """The function, its partner's kind, and the values that it looks at, are these."""
        function, kind = Function[name.upper()], Partner[partner.upper()]
        if fields["function"] != function:
            self.fail(f"function is {fields['function']}, must be {int(function)} ({name})")
        if fields["partner_kind"] != kind:
            self.fail(f"partner_kind is {fields['partner_kind']}, must be {int(kind)} ({partner})")
        looked_at = 1 if kind is Partner.VALUE else _LIMITS.get(function, 0)
        for index, value in enumerate(values[:looked_at]):
            if np.float32(fields[f"value{index}"]) != np.float32(value):
                self.fail(f"value{index} is {fields[f'value{index}']}, must be {value}")
