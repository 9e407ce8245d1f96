"""The DRAM tensors of a program: arguments, constants, workspace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tvm_sramtile.errors import CheckFailed
from tvm_sramtile.ints import round_up
from tvm_sramtile.ir import Region, Step, Tensor, digest_of
from tvm_sramtile.isa import Dtype, Layout, Place, TensorRecord, Traffic
from tvm_sramtile.isa.table import CONSTANTS_ALIGN_BYTES
from tvm_sramtile.lower.constants import pack_weights

Role = Literal["data", "weight", "bias", "output"]
_DTYPES = {"float32": Dtype.FLOAT32}
_TRAFFIC = {"data": Traffic.INPUTS, "weight": Traffic.WEIGHTS, "bias": Traffic.WEIGHTS, "output": Traffic.OUTPUTS}


@dataclass(frozen=True, slots=True)
class TensorTable:
    """Records of the program's DRAM tensors, their indices, and what they need.

    A tensor has a record for each role it plays: one that a step writes and another reads is counted as output, then as
    input.

    Attributes:
        index: record by (tensor name, role).
        constants: the bytes of all constants, each once.
        workspace_bytes: DRAM for tensors between steps, for all images of a call at once.
    """

    records: tuple[TensorRecord, ...]
    index: Mapping[tuple[str, Role], int]
    constants: bytes
    workspace_bytes: int


def tensor_table(region: Region, constants: Mapping[str, NDArray[np.generic]] | None, lanes: int) -> TensorTable:
    """Collect the tensors of ``region``; ``constants`` are looked up by digest, or left as zeros where there are none.

    Raises:
        CheckFailed: a constant is missing or its value is not the one that the region names.
    """
    arguments = {tensor.name: place for place, tensor in enumerate((*region.inputs, *region.outputs))}
    records: list[TensorRecord] = []
    index: dict[tuple[str, Role], int] = {}
    stored: dict[tuple[str | None, bool], int] = {}
    workspace: dict[str, int] = {}
    blob = bytearray()
    workspace_bytes = 0
    for tensor, role in _uses(region):
        if (tensor.name, role) in index:
            continue
        packed = tensor.digest is not None and role == "weight"
        if tensor.digest is not None:
            place, key = Place.CONSTANT, (tensor.digest, packed)
            if key not in stored:
                stored[key] = len(blob)
                blob += _constant_bytes(tensor, constants, lanes if packed else None)
                blob += bytes(round_up(len(blob), CONSTANTS_ALIGN_BYTES) - len(blob))
            offset = stored[key]
        elif tensor.name in arguments:
            place, offset = Place.ARGUMENT, arguments[tensor.name]
        else:
            place = Place.WORKSPACE
            if tensor.name not in workspace:
                workspace[tensor.name] = workspace_bytes
                workspace_bytes += round_up(tensor.size_bytes, CONSTANTS_ALIGN_BYTES)
            offset = workspace[tensor.name]
        index[tensor.name, role] = len(records)
        records.append(_record(tensor, role, place, offset, packed=packed))
    return TensorTable(tuple(records), index, bytes(blob), workspace_bytes)


def _uses(region: Region) -> Iterator[tuple[Tensor, Role]]:
    for step in region.steps:
        yield step.data, "data"
        yield step.weight, "weight"
        if step.bias is not None:
            yield step.bias, "bias"
        yield step.output, "output"


def _constant_bytes(
    tensor: Tensor, constants: Mapping[str, NDArray[np.generic]] | None, pack_lanes: int | None
) -> bytes:
    if constants is None:
        return bytes(tensor.size_bytes)
    value = constants.get(str(tensor.digest))
    if value is None or digest_of(value) != tensor.digest:
        raise CheckFailed(
            f"constant {tensor.name} {tensor.shape}: its value is not among those of the region's function"
        )
    return np.ascontiguousarray(value).tobytes() if pack_lanes is None else pack_weights(value, pack_lanes)


def _record(tensor: Tensor, role: Role, place: Place, offset: int, *, packed: bool) -> TensorRecord:
    if role == "weight":
        layout = Layout.PACKED if packed else Layout.OIHW
        first, second, rows, cols = tensor.shape
    elif role == "bias":  # whatever its shape: one element a channel
        layout, (first, second, rows, cols) = Layout.NCHW, (1, tensor.elems, 1, 1)
    else:
        layout = Layout.NCHW
        _, second, rows, cols = tensor.shape
        first = 1
    per_image = role in ("data", "output")
    dims = (first, second, rows, cols)
    return TensorRecord(place, _TRAFFIC[role], _DTYPES[tensor.dtype], layout, per_image, dims, offset)


def weights_of(step: Step) -> tuple[tuple[Tensor, Role], ...]:
    """What a step loads before its first chunk: weights, then the bias."""
    return ((step.weight, "weight"),) if step.bias is None else ((step.weight, "weight"), (step.bias, "bias"))
