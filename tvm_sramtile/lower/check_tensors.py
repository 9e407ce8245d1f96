"""Whether a program's DRAM tensors are those of the region. Part of the proof of programs; see ``check_program``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from tvm_sramtile.errors import CheckFailed
from tvm_sramtile.geometry import Conv2d, Conv2dTranspose, Resize2d
from tvm_sramtile.geometry.resize_axis import AxisTable
from tvm_sramtile.ir import Region, Step, Tensor, digest_of
from tvm_sramtile.isa import Dtype, Layout, Place, Program, TensorRecord, Traffic
from tvm_sramtile.lower.check_order import Fail
from tvm_sramtile.plan.check_shapes import extents_of

Role = Literal["data", "weight", "vector", "output"]
Uses = Sequence[tuple[Tensor, Role]]

_TRAFFIC = {"data": Traffic.INPUTS, "weight": Traffic.WEIGHTS, "vector": Traffic.WEIGHTS, "output": Traffic.OUTPUTS}
_DTYPES = {"float32": Dtype.FLOAT32}
_NO_STRIDES = (0,) * 6
_ENTRY = np.dtype([("position", "<i4"), ("weight", "<f4")])


class _Fault(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Identity:
    """What a record is to a step: the role, and the tensors with these contents (of equal constants several)."""

    role: Role
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Lies:
    """How a tensor lies in DRAM; ``letters`` name the axes of its shape."""

    letters: str
    layout: Layout
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    image_stride: int = 0


class TensorCheck:
    """Proves that tensor records describe the region's tensors, each place once."""

    def __init__(self, region: Region, program: Program, *, values: bool) -> None:
        self.region, self.program, self.values = region, program, values
        names = [tensor.name for tensor in (*region.inputs, *region.outputs)]
        if len(set(names)) != len(names):
            raise CheckFailed(f"region {region.name}: one tensor is more than one argument: {', '.join(names)}")
        if program.argument_count != len(names):
            raise CheckFailed(f"program: argument_count = {program.argument_count}, the region has {len(names)}")
        if program.steps != len(region.steps):
            raise CheckFailed(f"program: it has {program.steps} steps, the region {len(region.steps)}")
        self._arguments = {name: place for place, name in enumerate(names)}
        self._workspace: dict[str, tuple[int, int]] = {}
        self._digests: dict[tuple[object, ...], str | None] = {}

    def record(self, index: int, fail: Fail) -> TensorRecord:
        """The record ``index``."""
        if not 0 <= index < len(self.program.tensors):
            fail(f"there is no tensor {index}")
        return self.program.tensors[index]

    def identify(self, index: int, step: Step, uses: Uses, fail: Fail) -> Identity:
        """What the record ``index`` is among ``uses`` of ``step``; it must be one of them."""
        record = self.record(index, fail)
        uses = [(tensor, role) for tensor, role in uses if _TRAFFIC[role] is record.traffic]
        if not uses:
            fail(f"tensor {index} is counted as {record.traffic.name}: no such tensor of step {step.name} belongs here")
        names, faults = [], []
        for tensor, role in uses:
            try:
                self._prove(record, tensor, role, step)
                names.append(tensor.name)
            except _Fault as fault:
                faults.append((record.place is not self._place(tensor), str(fault)))
        if not names:
            fail(f"tensor {index}: {min(faults)[1]}")
        return Identity(uses[0][1], frozenset(names))

    def table_axes(self, index: int, step: Step, fail: Fail) -> frozenset[str]:
        """Which of the tables of ``step``, "row" and "col", the record ``index`` is; both when they are alike."""
        op, record = step.op, self.record(index, fail)
        tables = {"row": op.rows, "col": op.cols} if isinstance(op, Resize2d) else {}
        axes = frozenset(axis for axis, table in tables.items() if self._is_table(record, table))
        if not axes:
            fail(f"tensor {index} is no table of step {step.name}")
        return axes

    def _is_table(self, record: TensorRecord, table: AxisTable) -> bool:
        taps = max(map(len, table.weights))
        dims = (len(table.first), taps, 1, 1, 1)
        kinds = (record.place, record.traffic, record.dtype, record.layout, record.dims)
        strides = (*record.strides, record.image_stride)
        if kinds != (Place.CONSTANT, Traffic.WEIGHTS, Dtype.FLOAT32, Layout.TABLE, dims) or strides != _NO_STRIDES:
            return False
        if record.offset % 4:
            return False
        code = self.program.constants[record.offset : record.offset + len(table.first) * taps * _ENTRY.itemsize]
        if len(code) != len(table.first) * taps * _ENTRY.itemsize:
            return False
        entries = np.frombuffer(code, _ENTRY).reshape(len(table.first), taps)
        return all(
            [(int(position), float(weight)) for position, weight in entry if position != -1]
            == list(enumerate(map(float, np.array(weights, np.float32)), first))
            for entry, first, weights in zip(entries, table.first, table.weights, strict=True)
        )

    def _prove(self, record: TensorRecord, tensor: Tensor, role: Role, step: Step) -> None:
        place = self._place(tensor)
        wanted = _lies_of(tensor, role, step)
        packed = role == "weight" and place is Place.CONSTANT and record.layout is Layout.PACKED and wanted.dims[0] == 1
        found = (record.place, record.traffic, record.dtype, record.dims, record.image_stride)
        right = (place, _TRAFFIC[role], _DTYPES.get(tensor.dtype), wanted.dims, wanted.image_stride)
        for name, one, other in zip(("place", "traffic", "dtype", "dims", "image_stride"), found, right, strict=True):
            if one != other:
                _fault(f"{name} is {one}, of {role} {tensor.name} it is {other}")
        if record.layout is not wanted.layout and not packed:
            _fault(f"layout {record.layout.name} is none of a {role}")
        strides = (0,) * len(wanted.dims) if packed else wanted.strides
        if len(record.strides) != len(strides):
            _fault(f"it has {len(record.strides)} strides")
        for axis, (extent, one, other) in enumerate(zip(wanted.dims, record.strides, strides, strict=True)):
            if one != other and (packed or extent > 1):  # one position alone has no next one
                _fault(f"stride{axis} is {one}, of {role} {tensor.name} it is {other}")
        if place is Place.ARGUMENT:
            if record.offset != self._arguments[tensor.name]:
                _fault(f"is argument {record.offset}, {tensor.name} is argument {self._arguments[tensor.name]}")
        elif record.offset % 4:
            _fault(f"offset {record.offset} is no multiple of the element size, 4")
        elif place is Place.WORKSPACE:
            self._prove_workspace(record.offset, tensor)
        elif self._digest(record, tensor, wanted.letters) not in (tensor.digest, None):
            _fault(f"its bytes are not the value of constant {tensor.name}")

    def _place(self, tensor: Tensor) -> Place:
        if tensor.digest is not None:
            return Place.CONSTANT
        return Place.ARGUMENT if tensor.name in self._arguments else Place.WORKSPACE

    def _prove_workspace(self, offset: int, tensor: Tensor) -> None:
        """A tensor between steps has bytes of its own, for all images, in all its records the same."""
        stop = offset + 4 * tensor.elems
        if stop > self.program.workspace_bytes:
            _fault(f"ends at byte {stop} of the workspace, which has {self.program.workspace_bytes}")
        for name, (other, other_stop) in self._workspace.items():
            if name != tensor.name and offset < other_stop and other < stop:
                _fault(f"bytes {offset}-{stop} of the workspace overlap those of {name}, {other}-{other_stop}")
        if self._workspace.setdefault(tensor.name, (offset, stop)) != (offset, stop):
            _fault(f"{tensor.name} lies at {offset} of the workspace, elsewhere at {self._workspace[tensor.name][0]}")

    def _digest(self, record: TensorRecord, tensor: Tensor, letters: str) -> str | None:
        """The identity of the value that a constant's bytes spell, read back from its layout; None: any will do."""
        key = (record.offset, record.layout, record.dims, tensor.shape, letters)
        if key not in self._digests:
            code = self.program.constants[record.offset : record.offset + 4 * tensor.elems]
            flat = np.frombuffer(code[: len(code) // 4 * 4], tensor.dtype)
            if flat.size != tensor.elems:
                self._digests[key] = "none: it ends beyond the constants"
            elif not self.values:
                self._digests[key] = None
            elif record.layout is Layout.PACKED:
                self._digests[key] = digest_of(self._unpacked(flat, record, tensor, letters))
            else:
                self._digests[key] = digest_of(flat.reshape(tensor.shape))
        return self._digests[key]

    def _unpacked(
        self, flat: NDArray[np.generic], record: TensorRecord, tensor: Tensor, letters: str
    ) -> NDArray[np.generic]:
        """Weights as the tensor has them, from [output block][input block][row][col][input][output]."""
        _, outs, ins, rows, cols = record.dims
        lanes = self.program.lanes
        weights = np.empty((outs, ins, rows, cols), flat.dtype)
        at = 0
        for out in range(0, outs, lanes):
            for first in range(0, ins, lanes):
                block = weights[out : out + lanes, first : first + lanes]
                size = block.size
                packed = flat[at : at + size].reshape(rows, cols, block.shape[1], block.shape[0])
                block[...] = packed.transpose(3, 2, 0, 1)
                at += size
        axes = ["OIHW".index(letter) for letter in letters]
        rest = [axis for axis in range(4) if axis not in axes]
        return weights.transpose(*axes, *rest).reshape(tensor.shape)


def _lies_of(tensor: Tensor, role: Role, step: Step) -> _Lies:
    """Dims and strides of a tensor in a role, from the letters of its layout."""
    if role == "vector":
        return _Lies("", Layout.MAP, (tensor.elems, 1, 1, 1, 1), (1, 0, 0, 0, 0))
    op = step.op
    transposed = isinstance(op, Conv2dTranspose)
    default = {True: "IOHW", False: "OIHW"}[transposed] if role == "weight" else "NCHW"
    extents = extents_of(tensor, default, _fault)
    letters = tensor.layout or default
    strides = {letter: int(np.prod(tensor.shape[at + 1 :], dtype=np.int64)) for at, letter in enumerate(letters)}
    if role == "weight" and isinstance(op, Conv2d | Conv2dTranspose):
        outs, ins = op.out_channels // op.groups, op.in_channels // op.groups
        out, read = strides.get("O", 0), strides.get("I", 0)
        group = ins * read if transposed else outs * out
        steps = (group, out, read, strides.get("H", 0), strides.get("W", 0))
        return _Lies(letters, Layout.WEIGHTS, (op.groups, outs, ins, *op.kernel), steps)
    dims, apart = [extents.get(one, 1) for one in "CHW"], [strides.get(one, 0) for one in "CHW"]
    images = strides.get("N", 0) if tensor.digest is None else 0
    return _Lies(letters, Layout.MAP, (*dims, 1, 1), (*apart, 0, 0), images)


def _fault(message: str) -> NoReturn:
    raise _Fault(message)
