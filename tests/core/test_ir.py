"""Regions: JSON round trips, damage, and clips."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_sramtile.errors import CheckFailed
from tvm_sramtile.geometry import Conv2d, Conv2dTranspose, Elementwise, Pool2d, Resize2d
from tvm_sramtile.geometry.elementwise import Function
from tvm_sramtile.ir import Activation, Clip, Region, Step, Tensor, digest_of, dtype_bytes

X = Tensor("x", (2, 3, 8, 8), "float32")
W = Tensor("w", (4, 3, 3, 3), "float32", "0123abcd")
B = Tensor("b", (4,), "float32", "4567")
Y = Tensor("y", (2, 4, 6, 6), "float32")
Z = Tensor("z", (2, 4, 6, 6), "float32")
V = Tensor("v", (4, 1, 1, 1), "float32")
FIRST = Step("conv", Conv2d(3, 8, 8, 4, (3, 3)), X, W, Y, 2, B, Clip(0.0, None), origin=("lv0", "lv1"))
SECOND = Step("depthwise", Conv2d(4, 6, 6, 4, (1, 1), groups=4), Y, V, Z, 2, B)
REGION = Region("region_0", (X, V), (Z,), (FIRST, SECOND))


def test_sizes_and_views() -> None:
    assert (X.elems, X.size_bytes) == (384, 1536)
    assert Tensor("s", (), "float32").elems == 1
    assert dtype_bytes("float32") == 4
    assert FIRST.inputs == (X, W, B)
    assert Step("s", FIRST.op, X, W, Y).inputs == (X, W)
    add = Elementwise(3, 8, 8, "add", "map")
    chain = (Activation("prelu", B), Activation("exp"))
    assert Step("s", add, X, None, X, other=X, activations=chain).uses == ((X, "data"), (X, "data"), (B, "vector"))
    scale = Elementwise(4, 6, 6, "multiply", "vector")
    assert Step("s", scale, Y, None, Z, other=B).uses == ((Y, "data"), (B, "vector"))
    assert [each.partner for each in (*chain, Activation("add"))] == ["vector", "none", "value"]
    assert REGION.constants == (W, B)
    assert REGION.images == 2


def test_digests_tell_type_shape_and_bytes_apart() -> None:
    zeros = np.zeros((2, 3), np.float32)
    arrays = [zeros, zeros.reshape(3, 2), zeros.astype(np.int32), -zeros, zeros + 1]
    assert len({digest_of(array) for array in arrays}) == len(arrays)
    columns = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert digest_of(columns) == digest_of(np.asfortranarray(columns))
    assert digest_of(zeros) == "5694d990a98ea1057242dfb8a436cfc9"  # the same in every process and version


def test_round_trip() -> None:
    assert Region.from_json(REGION.to_json()) == REGION


@pytest.mark.parametrize("value", [np.inf, -np.inf, 0.1, 1e300])
def test_numbers_of_all_operators_are_kept(value: float) -> None:
    steps = (
        Step(
            "a",
            Elementwise(3, 8, 8, "maximum", "value", value),
            X,
            None,
            X,
            activations=(Activation("add", None, value),),
        ),
        Step("b", Resize2d(3, 8, 8, 4, 4, "cubic", cubic_alpha=value), X, None, X),
        replace(FIRST, clip=Clip(None, value)),
    )
    region = Region("r", (X,), (X,), steps)
    assert Region.from_json(region.to_json()) == region


COUNT = st.integers(1, 2**31)
PAIR = st.tuples(COUNT, COUNT)
NAME = st.text(min_size=1)
TENSORS = st.builds(
    Tensor,
    NAME,
    st.lists(st.integers(0, 2**40), max_size=5).map(tuple),
    st.sampled_from(["float32", "int8"]),
    st.none() | st.text("0123456789abcdef", min_size=1),
    st.sampled_from(["", "NHWC", "HWIO"]),
)
LIMIT = st.none() | st.floats(allow_nan=False)
CONVS = st.builds(Conv2d, COUNT, COUNT, COUNT, COUNT, PAIR, PAIR, st.tuples(*[st.integers(0, 2**31)] * 4), PAIR, COUNT)
FLOAT = st.floats(allow_nan=False)
POOLS = st.builds(
    Pool2d, *[COUNT] * 5, PAIR, PAIR, PAIR, PAIR, st.sampled_from(["max", "average_all", "average_valid"])
)
TRANSPOSED = st.builds(Conv2dTranspose, *[COUNT] * 4, PAIR, PAIR, st.tuples(*[COUNT] * 4), PAIR, PAIR, COUNT)
RESIZES = st.builds(
    Resize2d,
    *[COUNT] * 5,
    st.sampled_from(["nearest_neighbor", "linear", "cubic"]),
    st.sampled_from(["half_pixel", "align_corners", "asymmetric"]),
    st.sampled_from(["", "round", "ceil"]),
    FLOAT,
    st.booleans(),
)
FUNCTIONS = st.sampled_from(get_args(Function))
POINTWISE = st.builds(Elementwise, COUNT, COUNT, COUNT, FUNCTIONS, st.sampled_from(["none", "map", "value"]), FLOAT)
ACTIVATIONS = st.builds(Activation, FUNCTIONS, st.none() | TENSORS, FLOAT, FLOAT)
STEPS = st.builds(
    Step,
    NAME,
    CONVS | TRANSPOSED | POOLS | RESIZES | POINTWISE,
    TENSORS,
    st.none() | TENSORS,
    TENSORS,
    COUNT,
    st.none() | TENSORS,
    st.none() | st.builds(Clip, LIMIT, LIMIT),
    st.none() | TENSORS,
    st.lists(ACTIVATIONS, max_size=2).map(tuple),
    COUNT,
    st.lists(NAME, max_size=3).map(tuple),
)
MANY_TENSORS = st.lists(TENSORS, max_size=3).map(tuple)
REGIONS = st.builds(Region, NAME, MANY_TENSORS, MANY_TENSORS, st.lists(STEPS, min_size=1, max_size=3).map(tuple))


@given(REGIONS)
def test_round_trip_of_any_region(region: Region) -> None:
    text = region.to_json()
    json.loads(text, parse_constant=pytest.fail)  # JSON for other readers too: no bare Infinity
    assert Region.from_json(text) == region


def damaged(*path: Any, value: Any = None, drop: bool = False) -> str:
    """The region's JSON with one value replaced or dropped."""
    tree = json.loads(REGION.to_json())
    node = tree
    for key in path[:-1]:
        node = node[key]
    if drop:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return json.dumps(tree)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "its root: Invalid JSON: EOF while parsing a value at line 1 column 0"),
        (REGION.to_json()[:-1], None),
        ("[]", "its root: Input should be an object"),
        (damaged("name", drop=True), "name: Field required"),
        (damaged("inputs", 0, "dtype", value=3), "inputs.0.dtype: Input should be a valid string"),
        (damaged("outputs", 0, "shape", value=[1.5]), None),
        (damaged("steps", 1, "op", "kind", value="pool"), None),
        (damaged("steps", 0, "op", "strides", value=[1]), "steps.0.op.conv2d.strides.1: Field required"),
        (damaged("steps", 0, "weight", value=3), "steps.0.weight: Input should be an object"),
        (damaged("steps", 0, "data", value=None), "steps.0.data: Input should be an object"),
    ],
)
def test_damage_is_found(text: str, where: str | None) -> None:
    with pytest.raises(CheckFailed) as caught:
        Region.from_json(text)
    assert str(caught.value).startswith("region attribute is damaged at ")
    if where is not None:
        assert str(caught.value) == f"region attribute is damaged at {where}"


def clipped(clip: Clip, values: np.ndarray) -> np.ndarray:
    values = values if clip.low is None else np.maximum(values, clip.low)
    return values if clip.high is None else np.minimum(values, clip.high)


def test_one_clip_equals_two() -> None:
    limits = [None, -np.inf, -3.0, -1.0, 0.0, 1.0, 2.5, np.inf]
    values = np.array([-np.inf, *np.arange(-4, 4.5, 0.5), np.inf])
    clips = [Clip(low, high) for low, high in product(limits, limits)]
    for first, second in product(clips, clips):
        both = clipped(second, clipped(first, values))
        assert np.array_equal(clipped(first.then(second), values), both), (first, second)


def test_clips_in_order_stay_in_order() -> None:
    limits = [None, -3.0, 0.0, 2.5, 6.0]
    ordered = [Clip(a, b) for a, b in product(limits, limits) if a is None or b is None or a <= b]
    for first, second in product(ordered, ordered):
        assert first.then(second) in ordered
    assert Clip(0.0, None).then(Clip(None, 6.0)) == Clip(0.0, 6.0)
    assert Clip(3.0, None).then(Clip(None, 1.0)) == Clip(1.0, 1.0)
