"""How far correct executions may be apart: it follows from the operands, and from the lengths of the sums."""

from __future__ import annotations

import math

import numpy as np
import pytest
from core.regions import region_case
from core.whole_cases import whole_region

from tvm_sramtile.geometry import Conv2d
from tvm_sramtile.verify.tolerance import Bound, function_bound, max_abs_diff, region_tolerance, rounding

CASES = 300


def test_random_regions_of_every_operator_have_a_tolerance() -> None:
    """Finite, and mostly far below the outputs, so that a fault cannot hide in it."""
    loose = 0
    for seed in range(CASES):
        _, case = whole_region(seed)
        outputs = case.expected()
        inputs = [case.values[tensor.name] for tensor in case.region.inputs]
        tolerance = region_tolerance(case.region, inputs, outputs, case.constants)
        assert math.isfinite(tolerance), seed
        assert tolerance >= 0, seed
        size = max(float(np.abs(output[np.isfinite(output)]).max(initial=0.0)) for output in outputs)
        loose += tolerance > 1e-3 * size
    assert loose < CASES // 5


def test_the_tolerance_of_a_convolution_follows_from_its_operands() -> None:
    case = region_case(Conv2d(8, 6, 6, 4, (3, 3)), bias=True)
    x, w, b = (case.values[name] for name in ("x", "w0", "b0"))
    gain = float(np.abs(w.astype(np.float64)).reshape(4, -1).sum(axis=1).max())
    wanted = rounding(8 * 9 + 1) * (float(np.abs(x).max()) * gain + float(np.abs(b).max()))
    assert region_tolerance(case.region, [x, w, b], case.expected(), {}) == pytest.approx(wanted)
    doubled = region_tolerance(case.region, [2 * x, w, 2 * b], [2 * y for y in case.expected()], {})
    assert doubled == pytest.approx(2 * wanted)


def test_errors_grow_from_step_to_step() -> None:
    ops = [Conv2d(4, 6, 6, 4, (3, 3), padding=(1, 1, 1, 1))] * 3
    tolerances = []
    for count in (1, 2, 3):
        case = region_case(*ops[:count])
        inputs = [case.values[tensor.name] for tensor in case.region.inputs]
        tolerances.append(region_tolerance(case.region, inputs, [np.array([1e30], np.float32)], {}))
    assert 0 < tolerances[0] < tolerances[1] < tolerances[2]


@pytest.mark.parametrize(
    ("function", "params", "error"),
    [
        ("copy", (0, 0), 0.1),
        ("add", (5, 0), 0.1),
        ("multiply", (-3, 0), 0.3),
        ("divide", (0.5, 0), 0.2),
        ("maximum", (1, 0), 0.1),
        ("prelu", (2, 0), 0.2),
        ("prelu", (0.25, 0), 0.1),
        ("leaky_relu", (0.25, 0), 0.1),
        ("clip", (-1, 1), 0.1),
        ("sigmoid", (0, 0), 0.025),
        ("tanh", (0, 0), 0.1),
        ("sqrt", (0, 0), math.sqrt(0.1)),
        ("negative", (0, 0), 0.1),
        ("exp", (0, 0), 0.1 * math.exp(2)),
    ],
)
def test_how_functions_enlarge_errors(function: str, params: tuple[float, float], error: float) -> None:
    bound = function_bound(function, Bound(2.0, 0.1), None, params, math.inf)
    assert bound.error == pytest.approx(error)


def test_quotients_by_what_may_be_nought() -> None:
    exact, near = Bound(2.0), Bound(2.0, 0.1)
    assert function_bound("divide", exact, exact, (0, 0), math.inf).error == 0
    assert function_bound("divide", near, Bound(2.0, 0.0, 0.5), (0, 0), math.inf).error == pytest.approx(0.2)
    assert function_bound("reverse_divide", near, None, (3, 0), 10.0).error == math.inf


def test_differences() -> None:
    one = np.array([1, 2, np.nan, np.inf], np.float32)

    def changed(at: int, value: float) -> np.ndarray:
        other = one.copy()
        other[at] = value
        return other

    assert max_abs_diff(one, one) == 0
    assert max_abs_diff(one, changed(1, 2.5)) == 0.5
    for other in (changed(2, 3), changed(3, -np.inf), one[:3], one.astype(np.float64)):
        assert max_abs_diff(one, other) == math.inf
    assert max_abs_diff(one[:0], one[:0]) == 0
