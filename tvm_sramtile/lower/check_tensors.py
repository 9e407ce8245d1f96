"""Whether a program's DRAM tensors are those of the region. Part of the proof of programs; see ``check_program``."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tvm_sramtile.errors import CheckFailed
from tvm_sramtile.ir import Region, Tensor, digest_of
from tvm_sramtile.isa import Dtype, Layout, Place, Program, TensorRecord, Traffic
from tvm_sramtile.lower.check_order import Fail

Role = Literal["data", "weight", "bias", "output"]

_TRAFFIC = {"data": Traffic.INPUTS, "weight": Traffic.WEIGHTS, "bias": Traffic.WEIGHTS, "output": Traffic.OUTPUTS}
_DTYPES = {"float32": Dtype.FLOAT32}


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
        self._proven: set[tuple[int, str, Role]] = set()
        self._digests: dict[tuple[int, Layout, tuple[int, ...]], str | None] = {}

    def record(self, index: int, tensor: Tensor, role: Role, fail: Fail) -> TensorRecord:
        """The record ``index``, which must describe ``tensor`` in this role."""
        if not 0 <= index < len(self.program.tensors):
            fail(f"there is no tensor {index}")
        record = self.program.tensors[index]
        if (index, tensor.name, role) not in self._proven:
            self._prove(record, tensor, role, lambda message: fail(f"tensor {index}: {message}"))
            self._proven.add((index, tensor.name, role))
        return record

    def _prove(self, record: TensorRecord, tensor: Tensor, role: Role, fail: Fail) -> None:
        shape = tensor.shape
        if role == "weight":
            dims, layouts = shape, {Layout.OIHW}
        else:
            dims = (1, tensor.elems, 1, 1) if role == "bias" else (1, *shape[1:])
            layouts = {Layout.NCHW}
        place = self._place(tensor)
        if role == "weight" and place is Place.CONSTANT:
            layouts = {Layout.OIHW, Layout.PACKED}
        per_image = role in ("data", "output")
        found = (record.place, record.traffic, record.dtype, record.per_image, record.dims)
        wanted = (place, _TRAFFIC[role], _DTYPES.get(tensor.dtype), per_image, dims)
        for name, one, other in zip(("place", "traffic", "dtype", "per_image", "dims"), found, wanted, strict=True):
            if one != other:
                fail(f"{name} is {one}, of {role} {tensor.name} it is {other}")
        if record.layout not in layouts:
            fail(f"layout {record.layout.name} is none of a {role}")
        if place is Place.ARGUMENT:
            if record.offset != self._arguments[tensor.name]:
                fail(f"is argument {record.offset}, {tensor.name} is argument {self._arguments[tensor.name]}")
        elif record.offset % 4:
            fail(f"offset {record.offset} is no multiple of the element size, 4")
        elif place is Place.WORKSPACE:
            self._prove_workspace(record.offset, tensor, fail)
        elif self._digest(record, tensor) not in (tensor.digest, None):
            fail(f"its bytes are not the value of constant {tensor.name}")

    def _place(self, tensor: Tensor) -> Place:
        if tensor.digest is not None:
            return Place.CONSTANT
        return Place.ARGUMENT if tensor.name in self._arguments else Place.WORKSPACE

    def _prove_workspace(self, offset: int, tensor: Tensor, fail: Fail) -> None:
        """A tensor between steps has bytes of its own, for all images, in all its records the same."""
        stop = offset + 4 * tensor.elems
        if stop > self.program.workspace_bytes:
            fail(f"ends at byte {stop} of the workspace, which has {self.program.workspace_bytes}")
        for name, (other, other_stop) in self._workspace.items():
            if name != tensor.name and offset < other_stop and other < stop:
                fail(f"bytes {offset}-{stop} of the workspace overlap those of {name}, {other}-{other_stop}")
        if self._workspace.setdefault(tensor.name, (offset, stop)) != (offset, stop):
            fail(f"{tensor.name} lies at {offset} of the workspace, elsewhere at {self._workspace[tensor.name][0]}")

    def _digest(self, record: TensorRecord, tensor: Tensor) -> str | None:
        """The identity of the value that a constant's bytes spell, read back from its layout; None: any will do."""
        key = (record.offset, record.layout, tensor.shape)
        if key not in self._digests:
            code = self.program.constants[record.offset : record.offset + 4 * tensor.elems]
            flat = np.frombuffer(code[: len(code) // 4 * 4], tensor.dtype)
            if flat.size != tensor.elems:
                self._digests[key] = "none: it ends beyond the constants"
            elif not self.values:
                self._digests[key] = None
            elif record.layout is Layout.PACKED:
                self._digests[key] = digest_of(_unpacked(flat, tensor.shape, self.program.lanes))
            else:
                self._digests[key] = digest_of(flat.reshape(tensor.shape))
        return self._digests[key]


def _unpacked(flat: NDArray[np.generic], shape: tuple[int, ...], lanes: int) -> NDArray[np.generic]:
    """Weights as OIHW from [output block][input block][row][col][input channel][output channel]."""
    outs, ins, rows, cols = shape
    weights = np.empty(shape, flat.dtype)
    at = 0
    for out in range(0, outs, lanes):
        for first in range(0, ins, lanes):
            block = weights[out : out + lanes, first : first + lanes]
            size = block.size
            block[...] = flat[at : at + size].reshape(rows, cols, block.shape[1], block.shape[0]).transpose(3, 2, 0, 1)
            at += size
    return weights
