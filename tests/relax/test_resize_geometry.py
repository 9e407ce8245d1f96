"""Resize tables against TVM's own ``resize2d``, and chunks written in TVM's ops against the same rows of the whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import resize_cases
import tvm
from numpy.typing import NDArray
from tvm import relax

from tvm_sramtile.geometry.resize2d import Resize2d
from tvm_sramtile.ints import Range

OPS = resize_cases.cases(ties="even", whole_scale_floors=False)
Emit = Callable[[Any], Any]


def resize(op: Resize2d, data: Any, size: tuple[int, int]) -> Any:
    return relax.op.image.resize2d(
        data,
        size,
        method=op.method,
        coordinate_transformation_mode=op.coordinate_transformation_mode,
        rounding_method=op.rounding_method,
        cubic_alpha=op.cubic_alpha,
        cubic_exclude=int(op.cubic_exclude),
    )


def run(data: list[NDArray[Any]], build: Callable[[Emit, list[Any]], list[Any]]) -> list[NDArray[Any]]:
    """Compile one function of all inputs and run it: its results in order."""
    builder = relax.BlockBuilder()
    parameters = [relax.Var(f"x{i}", relax.TensorType(x.shape, str(x.dtype))) for i, x in enumerate(data)]
    with builder.function("main", parameters):
        with builder.dataflow():
            results = builder.emit_output(relax.Tuple(build(builder.emit, parameters)))
        builder.emit_func_output(results)
    machine = relax.VirtualMachine(tvm.compile(builder.get(), "llvm"), tvm.cpu())
    return [result.numpy() for result in machine["main"](*map(tvm.runtime.tensor, data))]


def blend(emit: Emit, data: Any, taps: Any, axis: int) -> Any:
    """The sum of rows or columns taken with weights, in the order of the taps."""
    total = None
    for tap in range(len(taps.indices)):
        indices, weights = resize_cases.of_tap(taps, tap, axis)
        term = emit(relax.op.take(data, relax.const(indices), axis, mode="clip"))
        if len(taps.indices) > 1:
            term = emit(relax.op.multiply(term, relax.const(weights)))
        total = term if total is None else emit(relax.op.add(total, term))
    return total


def sliced_chunk(emit: Emit, op: Resize2d, data: Any, out: Range) -> Any:
    """A chunk as a resize of a slice, cropped; ``None`` where there is no such slice."""
    piece = op.row_slice(out)
    if piece is None:
        return None
    rows = emit(relax.op.strided_slice(data, [2], [piece.read.start], [piece.read.stop]))
    rows = emit(resize(op, rows, (piece.out_size, op.out_cols)))
    return emit(relax.op.strided_slice(rows, [2], [piece.crop.start], [piece.crop.stop]))


def taken_chunk(emit: Emit, op: Resize2d, data: Any, out: Range) -> Any:
    """A chunk as rows taken with weights, after the columns, which TVM resizes where that leaves the rows alone."""
    read = op.row_window(out).read
    rows = emit(relax.op.strided_slice(data, [2], [read.start], [read.stop]))
    if op.leaves_rows(len(read)):
        rows = emit(resize(op, rows, (len(read), op.out_cols)))
    else:
        cols = Range(0, op.out_cols)
        read = op.col_window(cols).read
        rows = emit(relax.op.strided_slice(rows, [3], [read.start], [read.stop]))
        rows = blend(emit, rows, op.col_taps(cols), 3)
    return blend(emit, rows, op.row_taps(out), 2)


@pytest.fixture(scope="module")
def data() -> list[NDArray[Any]]:
    return resize_cases.inputs(OPS)


@pytest.fixture(scope="module")
def wholes(data: list[NDArray[Any]]) -> list[NDArray[Any]]:
    def build(emit: Emit, parameters: list[Any]) -> list[Any]:
        ops = zip(OPS.values(), parameters, strict=True)
        return [emit(resize(op, x, (op.out_rows, op.out_cols))) for op, x in ops]

    return run(data, build)


@pytest.mark.parametrize("name", OPS)
def test_tvm_computes_what_the_tables_say(name: str, data: list[NDArray[Any]], wholes: list[NDArray[Any]]) -> None:
    number = [*OPS].index(name)
    resize_cases.check_whole(OPS[name], data[number], wholes[number])


@pytest.mark.parametrize("chunk", [sliced_chunk, taken_chunk])
def test_chunks_in_tvm_ops_equal_the_whole(chunk: Any, data: list[NDArray[Any]], wholes: list[NDArray[Any]]) -> None:
    asked: list[tuple[str, Range]] = []

    def build(emit: Emit, parameters: list[Any]) -> list[Any]:
        results = []
        for (name, op), x in zip(OPS.items(), parameters, strict=True):
            for out in resize_cases.chunks(op):
                result = chunk(emit, op, x, out)
                if result is not None:
                    results.append(result)
                    asked.append((name, out))
        return results

    results = run(data, build)
    whole_of = dict(zip(OPS, wholes, strict=True))
    for (name, out), result in zip(asked, results, strict=True):
        op = OPS[name]
        # Where all taps of a cubic read one position, TVM's own sum of the same products differs by an ulp.
        exact = chunk is sliced_chunk or op.method != "cubic" or op.in_rows > 1
        resize_cases.check_chunk(op, out, result, whole_of[name], exact)
    covered = {name for name, _ in asked}
    if chunk is taken_chunk:
        assert covered == set(OPS)
    else:
        assert covered >= resize_cases.SLICED
        assert not covered & resize_cases.NEVER_SLICED


@pytest.mark.parametrize("method", ["nearest_neighbor", "linear"])
def test_tvm_divides_by_zero_with_align_corners_and_one_output(method: Any) -> None:
    op = Resize2d(1, 5, 3, 1, 3, method, "align_corners")
    with pytest.raises(tvm.error.InternalError, match="Divide by zero"):
        run([np.zeros((1, 1, 5, 3), "float32")], lambda emit, x: [emit(resize(op, x[0], (1, 3)))])


def test_tvm_takes_integers_through_float32() -> None:
    """Also with nearest: beyond 2**24 values change. The tables speak of positions, which are right."""
    op = Resize2d(1, 2, 2, 4, 4, "nearest_neighbor")
    data = np.full((1, 1, 2, 2), 2**24 + 1, "int32")
    (result,) = run([data], lambda emit, x: [emit(resize(op, x[0], (4, 4)))])
    np.testing.assert_array_equal(result, 2**24)
