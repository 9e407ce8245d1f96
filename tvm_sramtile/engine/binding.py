"""The engine through ctypes: run a program on numpy arrays, and get what it measured."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_sramtile.engine.native import MESSAGE_BYTES, engine_library
from tvm_sramtile.errors import EngineError
from tvm_sramtile.isa.code import record_struct
from tvm_sramtile.isa.table import (
    COUNTERS,
    HEADER,
    MAGIC,
    TENSOR,
    TENSOR_AXES,
    VERSION,
    Dtype,
    Layout,
    Place,
    Traffic,
)

_ELEMENT_TYPES: dict[int, np.dtype[Any]] = {Dtype.FLOAT32: np.dtype(np.float32)}
_TABLE_ENTRY: np.dtype[Any] = np.dtype([("position", "<i4"), ("weight", "<f4")])


@dataclass(frozen=True, slots=True)
class Measured:
    """What the engine counted: sums over the calls, the SRAM peak their maximum. Fields are those of ``COUNTERS``."""

    calls: int
    images: int
    cycles: int
    load_busy_cycles: int
    compute_busy_cycles: int
    store_busy_cycles: int
    load_commands: int
    compute_commands: int
    store_commands: int
    macs: int
    input_bytes: int
    weight_bytes: int
    output_bytes: int
    partial_sum_bytes: int
    sram_peak_bytes: int

    @classmethod
    def of(cls, values: Sequence[int]) -> Measured:
        """From the values of a counter block, in the table's order."""
        return cls(**dict(zip(COUNTERS, values, strict=True)))

    @property
    def dram_bytes(self) -> int:
        """All bytes moved between DRAM and SRAM."""
        return self.input_bytes + self.weight_bytes + self.output_bytes + self.partial_sum_bytes


if tuple(field.name for field in fields(Measured)) != COUNTERS:
    raise ImportError(f"the fields of Measured differ from the counters of the instruction set, {', '.join(COUNTERS)}")


class _Counters(ctypes.Structure):
    """``struct sramtile_counters``."""

    _fields_ = (("lock", ctypes.c_uint32), ("values", ctypes.c_int64 * len(COUNTERS)))


def run(code: bytes, tensors: Sequence[NDArray[Any]], images: int = 1) -> Measured:
    """Run a program in the engine; outputs are written in place.

    Args:
        code: the program's bytes (``isa.encode``).
        tensors: one C-contiguous array for each argument of the program, at least as large as the program's tensors
            state, for ``images`` images; a table's elements are its entries, (i32 position, f32 weight). A read-only
            array that is no output is handed over as a copy.
        images: how often the program's body runs.

    Raises:
        ValueError: an array has the wrong type, layout or size, or an output is read-only.
        EngineError: the engine refused the program or the call; the text is the engine's.
    """
    if images < 0:
        raise ValueError(f"images = {images}: must not be negative")
    arrays = _checked(code, list(tensors), images)
    pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    counters = _Counters()
    message = ctypes.create_string_buffer(MESSAGE_BYTES)
    status = _library().sramtile_run(
        code, len(code), pointers, len(arrays), images, ctypes.byref(counters), message, MESSAGE_BYTES
    )
    if status != 0:
        raise EngineError(f"engine error {status}: {message.value.decode(errors='replace')}")
    return Measured.of(list(counters.values))


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(engine_library()))
    library.sramtile_run.restype = ctypes.c_int32
    library.sramtile_run.argtypes = (
        ctypes.c_char_p,
        ctypes.c_uint64,
        ctypes.c_void_p,
        ctypes.c_int32,
        ctypes.c_int64,
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_int32,
    )
    return library


def _checked(code: bytes, arrays: list[NDArray[Any]], images: int) -> list[NDArray[Any]]:
    """The arrays to hand over. The engine knows pointers only, so what they point to is checked here."""
    for index, array in enumerate(arrays):
        if not array.flags.c_contiguous:
            raise ValueError(f"tensor {index}: the array of shape {array.shape} is not C-contiguous")
    checked = list(arrays)
    for record in _argument_records(code):
        index = record["offset"]
        if index >= len(arrays):
            continue  # the engine's own message says that the number of tensors is wrong
        array = arrays[index]
        _check_array(index, array, record, images)
        if not array.flags.writeable and record["traffic"] != Traffic.WEIGHTS:
            if record["traffic"] != Traffic.INPUTS:
                raise ValueError(f"tensor {index}: the program writes to it, but the array is read-only")
            checked[index] = array.copy()  # nothing forbids a program to store to its inputs
    return checked


def _check_array(index: int, array: NDArray[Any], record: dict[str, int], images: int) -> None:
    dtype = _TABLE_ENTRY if record["layout"] == Layout.TABLE else _ELEMENT_TYPES.get(record["dtype"])
    if dtype is not None and array.dtype != dtype:
        raise ValueError(f"tensor {index}: the array is {array.dtype}, the program needs {dtype}")
    dims = [record[f"dim{axis}"] for axis in range(TENSOR_AXES)]
    strides = [record[f"stride{axis}"] for axis in range(TENSOR_AXES)]
    needed = _elements(record["layout"], dims, strides)
    if record["image_stride"]:
        needed = needed + (images - 1) * record["image_stride"] if images else 0
    if array.size < needed:
        shape = "x".join(str(dim) for dim in dims)
        spaced = f" with strides {', '.join(str(stride) for stride in strides)}" if any(strides) else ""
        many = f" for each of {images} images" if record["image_stride"] else ""
        raise ValueError(
            f"tensor {index}: the array of shape {array.shape} has {array.size} elements, "
            f"the program needs {shape}{spaced}{many}, {needed}"
        )


def _elements(layout: int, dims: list[int], strides: list[int]) -> int:
    """From the first to the last element of a tensor's image; what else its dims may be, the engine says."""
    if layout in (Layout.PACKED, Layout.TABLE):
        return math.prod(dims[:2] if layout == Layout.TABLE else dims)
    return 1 + sum((dim - 1) * stride for dim, stride in zip(dims, strides, strict=True))


def _argument_records(code: bytes) -> list[dict[str, int]]:
    """The records of tensors that are arguments; of a damaged program, as many as there are."""
    head = record_struct(HEADER)
    if len(code) < head.size:
        return []
    header = dict(zip((field.name for field in HEADER), head.unpack_from(code), strict=True))
    if header["magic"] != MAGIC or header["version"] != VERSION:
        return []
    layout = record_struct(TENSOR)
    names = [field.name for field in TENSOR]
    count = min(header["tensor_count"], (len(code) - head.size) // layout.size)
    records = [
        dict(zip(names, layout.unpack_from(code, head.size + index * layout.size), strict=True))
        for index in range(count)
    ]
    return [record for record in records if record["place"] == Place.ARGUMENT]
