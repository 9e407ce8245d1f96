"""Resize tables against TVM's own ``resize2d``, and chunks written in TVM's ops against the same rows of the whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import resize_cases
import tvm
from numpy.typing import NDArray
from tvm import relay
from tvm.contrib import graph_executor

from tvm_sramtile.geometry.resize2d import Resize2d
from tvm_sramtile.ints import Range

OPS = resize_cases.cases(ties="away", whole_scale_floors=True)
TARGET = "llvm -mtriple=x86_64-unknown-linux-gnu"  # the wheel's own default is RISC-V


def resize(op: Resize2d, data: Any, size: tuple[int, int]) -> Any:
    return relay.image.resize2d(
        data,
        size,
        method=op.method,
        coordinate_transformation_mode=op.coordinate_transformation_mode,
        rounding_method=op.rounding_method,
        cubic_alpha=op.cubic_alpha,
        cubic_exclude=int(op.cubic_exclude),
    )


def run(data: list[NDArray[Any]], build: Callable[[list[Any]], list[Any]]) -> list[NDArray[Any]]:
    """Compile one function of all inputs and run it: its results in order."""
    parameters = [relay.var(f"x{i}", shape=x.shape, dtype=str(x.dtype)) for i, x in enumerate(data)]
    module = tvm.IRModule.from_expr(relay.Function(parameters, relay.Tuple(build(parameters))))
    executor = graph_executor.GraphModule(relay.build(module, TARGET)["default"](tvm.cpu()))
    executor.run(**{f"x{i}": x for i, x in enumerate(data)})
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


def blend(data: Any, taps: Any, axis: int) -> Any:
    """The sum of rows or columns taken with weights, in the order of the taps."""
    total = None
    for tap in range(len(taps.indices)):
        indices, weights = resize_cases.of_tap(taps, tap, axis)
        term = relay.take(data, relay.const(indices), axis, mode="clip")
        if len(taps.indices) > 1:
            term = relay.multiply(term, relay.const(weights))
        total = term if total is None else relay.add(total, term)
    return total


def sliced_chunk(op: Resize2d, data: Any, out: Range) -> Any:
    """A chunk as a resize of a slice, cropped; ``None`` where there is no such slice."""
    piece = op.row_slice(out)
    if piece is None:
        return None
    rows = relay.strided_slice(data, [piece.read.start], [piece.read.stop], axes=[2])
    rows = resize(op, rows, (piece.out_size, op.out_cols))
    return relay.strided_slice(rows, [piece.crop.start], [piece.crop.stop], axes=[2])


def taken_chunk(op: Resize2d, data: Any, out: Range) -> Any:
    """A chunk as rows taken with weights, after the columns, which TVM resizes where that leaves the rows alone."""
    read = op.row_window(out).read
    rows = relay.strided_slice(data, [read.start], [read.stop], axes=[2])
    if op.leaves_rows(len(read)):
        rows = resize(op, rows, (len(read), op.out_cols))
    else:
        cols = Range(0, op.out_cols)
        read = op.col_window(cols).read
        rows = relay.strided_slice(rows, [read.start], [read.stop], axes=[3])
        rows = blend(rows, op.col_taps(cols), 3)
    return blend(rows, op.row_taps(out), 2)


@pytest.fixture(scope="module")
def data() -> list[NDArray[Any]]:
    return resize_cases.inputs(OPS)


@pytest.fixture(scope="module")
def wholes(data: list[NDArray[Any]]) -> list[NDArray[Any]]:
    def build(parameters: list[Any]) -> list[Any]:
        ops = zip(OPS.values(), parameters, strict=True)
        return [resize(op, x, (op.out_rows, op.out_cols)) for op, x in ops]

    return run(data, build)


@pytest.mark.parametrize("name", OPS)
def test_tvm_computes_what_the_tables_say(name: str, data: list[NDArray[Any]], wholes: list[NDArray[Any]]) -> None:
    number = [*OPS].index(name)
    resize_cases.check_whole(OPS[name], data[number], wholes[number])


@pytest.mark.parametrize("chunk", [sliced_chunk, taken_chunk])
def test_chunks_in_tvm_ops_equal_the_whole(chunk: Any, data: list[NDArray[Any]], wholes: list[NDArray[Any]]) -> None:
    asked: list[tuple[str, Range]] = []

    def build(parameters: list[Any]) -> list[Any]:
        results = []
        for (name, op), x in zip(OPS.items(), parameters, strict=True):
            for out in resize_cases.chunks(op) if name in resize_cases.FEW else ():
                result = chunk(op, x, out)
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
        assert covered == resize_cases.FEW
    else:
        assert covered >= resize_cases.SLICED
        assert not covered & resize_cases.NEVER_SLICED


def test_tvm_floors_whole_scales_whatever_the_rounding_method() -> None:
    """A defect of TVM 0.10 up to pull request 18838 (2026), so of every Relay: "ceil" should give 0 1 1 2 2 2."""
    op = Resize2d(1, 3, 3, 6, 6, "nearest_neighbor", "asymmetric", "ceil", whole_scale_floors=True)
    data = np.arange(9, dtype="float32").reshape(1, 1, 3, 3)
    (result,) = run([data], lambda x: [resize(op, x[0], (6, 6))])
    np.testing.assert_array_equal(result[0, 0, 0], [0, 0, 1, 1, 2, 2])
    assert op.cols.first == (0, 0, 1, 1, 2, 2)


def test_tvm_rounds_ties_away_from_zero() -> None:
    """As compiled code did up to pull request 19368 (2026); constants were folded to the even position even then."""
    op = Resize2d(1, 6, 3, 3, 3, "nearest_neighbor", "half_pixel", "round", ties="away")
    data = np.repeat(np.arange(6, dtype="float32"), 3).reshape(1, 1, 6, 3)
    (result,) = run([data], lambda x: [resize(op, x[0], (3, 3))])
    np.testing.assert_array_equal(result[0, 0, :, 0], [1, 3, 5])
    assert op.rows.first == (1, 3, 5)


@pytest.mark.parametrize("method", ["nearest_neighbor", "linear"])
def test_tvm_divides_by_zero_with_align_corners_and_one_output(method: Any) -> None:
    op = Resize2d(1, 5, 3, 1, 3, method, "align_corners")
    with pytest.raises(tvm.error.InternalError, match="Divide by zero"):
        run([np.zeros((1, 1, 5, 3), "float32")], lambda x: [resize(op, x[0], (1, 3))])


def test_tvm_takes_integers_through_float32() -> None:
    """Also with nearest: beyond 2**24 values change. The tables speak of positions, which are right."""
    op = Resize2d(1, 2, 2, 4, 4, "nearest_neighbor")
    data = np.full((1, 1, 2, 2), 2**24 + 1, "int32")
    (result,) = run([data], lambda x: [resize(op, x[0], (4, 4))])
    np.testing.assert_array_equal(result, 2**24)
