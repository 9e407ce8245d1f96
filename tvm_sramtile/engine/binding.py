"""The engine through ctypes: run a program on numpy arrays, and get what it measured."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_sramtile.engine.counters import Measured, value_count
from tvm_sramtile.engine.native import engine_library
from tvm_sramtile.errors import EngineError
from tvm_sramtile.isa.code import record_struct
from tvm_sramtile.isa.table import (
    HEADER,
    MAGIC,
    MAX_STEPS,
    TENSOR,
    TENSOR_AXES,
    VERSION,
    Dtype,
    Layout,
    Mode,
    Place,
    Traffic,
)

_ELEMENT_TYPES: dict[int, np.dtype[Any]] = {Dtype.FLOAT32: np.dtype(np.float32)}
_MESSAGE_BYTES = 1024
_TABLE_ENTRY: np.dtype[Any] = np.dtype([("position", "<i4"), ("weight", "<f4")])


class _Counters(ctypes.Structure):
    """``struct sramtile_counters``."""

    _fields_ = (
        ("lock", ctypes.c_uint32),
        ("mode", ctypes.c_uint32),
        ("step_count", ctypes.c_uint32),
        ("values", ctypes.POINTER(ctypes.c_int64)),
    )


def run(code: bytes, tensors: Sequence[NDArray[Any]], images: int = 1, *, checked: bool = False) -> Measured:
    """Run a program in the engine; outputs are written in place.

    Args:
        code: the program's bytes (``isa.encode``).
        tensors: one C-contiguous array for each argument of the program, at least as large as the program's tensors
            state, for ``images`` images; a table's elements are its entries, (i32 position, f32 weight). A read-only
            array that is no output is handed over as a copy.
        images: how often the program's body runs.
        checked: refuse the program if one of its commands reads SRAM that nothing has written.

    Raises:
        ValueError: an array has the wrong type, layout or size, or an output is read-only.
        EngineError: the engine refused the program or the call; the text is the engine's.
    """
    return prepare(code, tensors, images, checked=checked)()


def prepare(
    code: bytes, tensors: Sequence[NDArray[Any]], images: int = 1, *, checked: bool = False
) -> Callable[[], Measured]:
    """Everything of ``run`` but the call: what is returned runs the program, as often as it is called, one at a time.

    Raises:
        ValueError: as ``run``; an ``EngineError`` comes with the call.
    """
    if images < 0:
        raise ValueError(f"images = {images}: must not be negative")
    arrays = _checked(code, list(tensors), images)
    pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    mode = Mode.CHECKED if checked else Mode.RUN
    return lambda: _call(code, pointers, len(arrays), images, mode)


def count(code: bytes, images: int = 1) -> Measured:
    """What ``run`` would measure, without arithmetic and without tensors.

    What depends on data (the positions in a RESIZE's tables) is not looked at.

    Raises:
        ValueError: ``images`` is negative.
        EngineError: the engine refused the program; the text is the engine's.
    """
    if images < 0:
        raise ValueError(f"images = {images}: must not be negative")
    return _call(code, None, _header(code).get("argument_count", 0), images, Mode.COUNT_ONLY)


def _call(code: bytes, pointers: Any, tensor_count: int, images: int, mode: Mode) -> Measured:
    steps = min(_header(code).get("step_count", 0), MAX_STEPS)  # the engine refuses more
    values = (ctypes.c_int64 * value_count(steps))()
    counters = _Counters(mode=mode, step_count=steps, values=values)
    message = ctypes.create_string_buffer(_MESSAGE_BYTES)
    status = _library().sramtile_run(
        code, len(code), pointers, tensor_count, images, ctypes.byref(counters), message, _MESSAGE_BYTES
    )
    if status != 0:
        raise EngineError(f"engine error {status}: {message.value.decode(errors='replace')}")
    return Measured.of(list(values))


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


def _header(code: bytes) -> dict[str, int]:
    """The header's fields; nothing where the bytes are no program."""
    head = record_struct(HEADER)
    if len(code) < head.size:
        return {}
    header = dict(zip((field.name for field in HEADER), head.unpack_from(code), strict=True))
    return header if (header["magic"], header["version"]) == (MAGIC, VERSION) else {}


def _argument_records(code: bytes) -> list[dict[str, int]]:
    """The records of tensors that are arguments; of a damaged program, as many as there are."""
    start, layout = record_struct(HEADER).size, record_struct(TENSOR)
    names = [field.name for field in TENSOR]
    count = min(_header(code).get("tensor_count", 0), (len(code) - start) // layout.size)
    records = [
        dict(zip(names, layout.unpack_from(code, start + index * layout.size), strict=True)) for index in range(count)
    ]
    return [record for record in records if record["place"] == Place.ARGUMENT]
