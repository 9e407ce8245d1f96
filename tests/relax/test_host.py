"""What stays on the host: each operator once, with its reason and its multiply-accumulates."""

from __future__ import annotations

from typing import Any

import pytest
import relax_graphs as graphs
from tvm import relax
from tvm.relax import op

from tvm_sramtile import relax as front
from tvm_sramtile.errors import UnsupportedOp
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.options import Options

X = graphs.tensor("x", 1, 4, 6, 5)
W = graphs.literal(1, 4, 4, 3, 3)


def conv(builder: Any, x: Any) -> Any:
    return builder.emit(op.nn.conv2d(x, W, padding=1))


def test_macs_of_host_ops() -> None:
    x = graphs.tensor("x", 2, 4, 6, 5)

    def build(builder: Any, x: Any) -> Any:
        value = builder.emit(op.nn.conv2d(x, graphs.literal(1, 8, 2, 3, 2), groups=2))  # -> 2x8x4x4
        value = builder.emit(op.nn.conv2d_transpose(value, graphs.literal(2, 8, 3, 2, 2), groups=2))  # -> 2x6x5x5
        return op.matmul(builder.emit(op.reshape(value, (2, 150))), graphs.literal(3, 150, 7))

    mod = graphs.module([x], build)
    ops = front.host_ops(mod)
    assert [(o.op, o.macs) for o in ops] == [
        ("nn.conv2d", 2 * 8 * 4 * 4 * 2 * 3 * 2),
        ("nn.conv2d_transpose", 2 * 8 * 4 * 4 * 3 * 2 * 2),
        ("reshape", 0),
        ("matmul", 2 * 7 * 150),
    ]
    assert [o.op for o in front.host_ops(front.partition_for_sramtile(mod))] == ["reshape"]


NOT_PARTITIONED, NO_UNIT = "the module has not been partitioned", "no unit of the accelerator computes it"


def test_a_module_that_was_not_partitioned_says_so() -> None:
    mod = graphs.module([X], lambda b, x: op.erf(b.emit(op.nn.relu(conv(b, x)))))
    assert [o.reason for o in front.host_ops(mod)] == [NOT_PARTITIONED, NOT_PARTITIONED, NO_UNIT]


def test_what_follows_a_refused_operator_has_a_reason_of_its_own() -> None:
    x, w = (graphs.tensor(name, *shape, dtype="float16") for name, shape in (("x", (1, 4, 6, 5)), ("w", (4, 4, 3, 3))))
    mod = graphs.module([x, w], lambda b, x, w: op.nn.relu(b.emit(op.nn.conv2d(x, w))))
    reason = "dtype float16 of data: the accelerator takes float32"
    assert [(o.op, o.reason) for o in front.host_ops(front.partition_for_sramtile(mod))] == [
        ("nn.conv2d", reason),
        ("nn.relu", reason),
    ]


def crop(builder: Any, x: Any) -> Any:
    return builder.emit(op.image.resize2d(x, 9, coordinate_transformation_mode="tf_crop_and_resize"), "r")


def transposed(builder: Any, x: Any) -> Any:
    return builder.emit(op.nn.conv2d_transpose(x, graphs.literal(1, 4, 4, 3, 3), out_layout="NHWC"), "r")


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (crop, "resize2d r: coordinate_transformation_mode 'tf_crop_and_resize' is not supported"),
        (transposed, "conv2d_transpose r: out_layout = 'NHWC': the accelerator takes that of data, 'NCHW'"),
    ],
)
def test_refused_operators_that_users_expect_there_are_errors_on_request(build: Any, text: str) -> None:
    mod = graphs.module([X], build)
    partitioned = front.partition_for_sramtile(mod)
    (only,) = front.host_ops(partitioned)
    assert f"{only.op.rpartition('.')[2]} r: {only.reason}".startswith(text)
    for run in (front.partition_for_sramtile, lambda *args: front.PartitionForSramtile(*args[1:])(args[0])):
        with pytest.raises(UnsupportedOp) as caught:
            run(mod, None, Options(on_refusal="error"))
        assert str(caught.value).startswith(text)


def test_others_that_stay_are_no_errors() -> None:
    mod = graphs.module([X], lambda b, x: op.erf(b.emit(op.add(x, graphs.literal(1, 6, 1)))))
    partitioned = front.partition_for_sramtile(mod, None, Options(on_refusal="error"))
    assert [o.op for o in front.host_ops(partitioned)] == ["add", "erf"]


def test_names_that_occur_twice_have_their_own_reasons() -> None:
    def build(builder: Any, x: Any) -> Any:
        kept = builder.emit(op.add(x, graphs.literal(1, 6, 1)), "same")
        return builder.emit(op.mean(kept, [1], True), "same")

    builder = relax.BlockBuilder()
    graphs.add_function(builder, [X], build)
    first, second = front.host_ops(front.partition_for_sramtile(builder.get()))
    assert first.reason.startswith("shape of other = (6, 1) beside (1, 4, 6, 5)")
    assert second.reason.startswith("axis = (1,) of (1, 4, 6, 5)")


def test_a_planner_error_names_the_operator_as_tvm_does() -> None:
    spec = AcceleratorSpec(name="tiny", sram_bytes=100)
    mod = graphs.module([X], lambda b, x: b.emit(op.nn.max_pool2d(x, 2), "pool"))
    (only,) = front.host_ops(front.partition_for_sramtile(mod, spec))
    assert only.reason.startswith(
        "max_pool2d pool (1x4x6x5): not even 1 row, 1 column and 4 channels of output fit tiny"
    )
