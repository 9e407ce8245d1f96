"""The DRAM tensors of a program: arguments, constants, workspace, and the tables of resizes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tvm_sramtile.errors import CheckFailed
from tvm_sramtile.geometry import Conv2d, Conv2dTranspose, Resize2d
from tvm_sramtile.geometry.resize_axis import AxisTable
from tvm_sramtile.ints import round_up
from tvm_sramtile.ir import Region, Role, Step, Tensor, digest_of
from tvm_sramtile.isa import Dtype, Layout, Place, TensorRecord, Traffic
from tvm_sramtile.isa.code import Axes
from tvm_sramtile.isa.table import CONSTANTS_ALIGN_BYTES
from tvm_sramtile.lower.constants import pack_weights

Constants = Mapping[str, NDArray[np.generic]]
DTYPES = {"float32": Dtype.FLOAT32}
_TRAFFIC = {"data": Traffic.INPUTS, "weight": Traffic.WEIGHTS, "vector": Traffic.WEIGHTS, "output": Traffic.OUTPUTS}
_NO_TAP = -1
Packing = tuple[Axes, Axes]  # dims and strides of weights


@dataclass(slots=True)
class TensorTable:
    """Collects the tensors of ``region``: records, their indices, the constants' bytes, the workspace.

    A tensor has a record for each role it plays: one that a step writes and another reads is counted as output, then as
    input; weights have one for each way in which steps read their axes. Constants are looked up by digest in
    ``constants``, or left as zeros where that is ``None``; each is stored once, packed weights once a packing.
    """

    region: Region
    constants: Constants | None
    lanes: int
    records: list[TensorRecord] = field(default_factory=list)
    blob: bytearray = field(default_factory=bytearray)
    workspace_bytes: int = 0
    _index: dict[Hashable, int] = field(default_factory=dict)
    _stored: dict[tuple[str, Packing | None], int] = field(default_factory=dict)
    _workspace: dict[str, int] = field(default_factory=dict)

    def of(self, tensor: Tensor, role: Role, step: Step) -> int:
        """The index of the record for ``tensor`` in ``role``; raises ``CheckFailed`` when its constant is missing."""
        key = (tensor.name, role, weight_axes(step) if role == "weight" else None)
        if key not in self._index:
            self._index[key] = len(self.records)
            self.records.append(self._record(tensor, role, step))
        return self._index[key]

    def of_resize(self, step: Step, axis: str) -> int:
        """The index of a resize's table for its rows or cols."""
        key = (step.name, f"{axis} table")
        if key not in self._index:
            if not isinstance(step.op, Resize2d):
                raise CheckFailed(f"step {step.name}: only a resize has tables")
            table = step.op.rows if axis == "row" else step.op.cols
            dims = (len(table.first), table.taps, 1, 1, 1)
            offset = self._store(_table_bytes(table))
            self._index[key] = len(self.records)
            self.records.append(
                TensorRecord(Place.CONSTANT, Traffic.WEIGHTS, Dtype.FLOAT32, Layout.TABLE, dims, (0,) * 5, 0, offset)
            )
        return self._index[key]

    def _record(self, tensor: Tensor, role: Role, step: Step) -> TensorRecord:
        packed = False
        layout, dims, strides, image_stride = Layout.MAP, (tensor.elems, 1, 1, 1, 1), (1, 0, 0, 0, 0), 0
        if role == "weight":
            layout, (dims, strides) = Layout.WEIGHTS, weight_axes(step)
            packed = tensor.digest is not None and dims[0] == 1
        elif role != "vector":
            dims, strides, image_stride = map_axes(tensor)
        place, offset = self._place(tensor, (dims, strides) if packed else None)
        if packed:
            layout, strides = Layout.PACKED, (0, 0, 0, 0, 0)
        return TensorRecord(place, _TRAFFIC[role], DTYPES[tensor.dtype], layout, dims, strides, image_stride, offset)

    def _place(self, tensor: Tensor, packing: Packing | None) -> tuple[Place, int]:
        if tensor.digest is not None:
            key = (tensor.digest, packing)
            if key not in self._stored:
                self._stored[key] = self._store(self._constant_bytes(tensor, packing))
            return Place.CONSTANT, self._stored[key]
        for position, argument in enumerate((*self.region.inputs, *self.region.outputs)):
            if argument.name == tensor.name:
                return Place.ARGUMENT, position
        if tensor.name not in self._workspace:
            self._workspace[tensor.name] = self.workspace_bytes
            self.workspace_bytes += round_up(tensor.size_bytes, CONSTANTS_ALIGN_BYTES)
        return Place.WORKSPACE, self._workspace[tensor.name]

    def _store(self, value: bytes) -> int:
        offset = len(self.blob)
        self.blob += value
        self.blob += bytes(round_up(len(self.blob), CONSTANTS_ALIGN_BYTES) - len(self.blob))
        return offset

    def _constant_bytes(self, tensor: Tensor, packing: Packing | None) -> bytes:
        if self.constants is None:
            return bytes(tensor.size_bytes)
        value = self.constants.get(str(tensor.digest))
        if value is None or digest_of(value) != tensor.digest:
            raise CheckFailed(
                f"constant {tensor.name} {tensor.shape}: its value is not among those of the region's function"
            )
        if packing is None:
            return np.ascontiguousarray(value).tobytes()
        dims, strides = packing
        flat = np.ascontiguousarray(value).reshape(-1)
        steps = tuple(stride * flat.itemsize for stride in strides)
        return pack_weights(np.lib.stride_tricks.as_strided(flat, dims, steps)[0], self.lanes)


def map_axes(tensor: Tensor) -> tuple[Axes, Axes, int]:
    """Dims (channels, rows, cols) and strides of a map in DRAM, and the elements of an image (0: all share one)."""
    extents, strides = _letters(tensor, "NCHW")
    dims = (extents.get("C", 1), extents.get("H", 1), extents.get("W", 1), 1, 1)
    steps = (strides.get("C", 0), strides.get("H", 0), strides.get("W", 0), 0, 0)
    return dims, steps, strides.get("N", 0) if tensor.digest is None else 0


def weight_axes(step: Step) -> tuple[Axes, Axes]:
    """Dims (groups, outputs and inputs of a group, rows, cols) of a step's weights, and their strides in DRAM."""
    op, weight = step.op, step.weight
    if weight is None or not isinstance(op, Conv2d | Conv2dTranspose):
        raise CheckFailed(f"step {step.name}: {op.kind} has no weights")
    transposed = isinstance(op, Conv2dTranspose)
    _, strides = _letters(weight, "IOHW" if transposed else "OIHW")
    out, ins = strides.get("O", 0), strides.get("I", 0)
    group = op.in_channels_per_group * ins if transposed else op.out_channels_per_group * out
    dims = (op.groups, op.out_channels_per_group, op.in_channels_per_group, *op.kernel)
    return dims, (group, out, ins, strides.get("H", 0), strides.get("W", 0))


def _letters(tensor: Tensor, default: str) -> tuple[dict[str, int], dict[str, int]]:
    """Extent and stride of each axis by its letter."""
    layout = tensor.layout or default
    extents = dict(zip(layout, tensor.shape, strict=True))
    strides, stride = {}, 1
    for letter in reversed(layout):
        strides[letter] = stride
        stride *= extents[letter]
    return extents, strides


def _table_bytes(table: AxisTable) -> bytes:
    """The entries: for each output ``taps`` pairs of position and weight, those it does not need marked."""
    entries = np.zeros((len(table.first), table.taps), dtype=[("position", "<i4"), ("weight", "<f4")])
    entries["position"] = _NO_TAP
    for output, (first, weights) in enumerate(zip(table.first, table.weights, strict=True)):
        entries["position"][output, : len(weights)] = range(first, first + len(weights))
        entries["weight"][output, : len(weights)] = weights
    return entries.tobytes()
