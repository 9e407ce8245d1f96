"""A region's body is compared with its plan before codegen."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import relay_graphs as graphs
import tvm
from relay_graphs import constant, tensor
from tvm import relay

from tvm_sramtile import relay as front
from tvm_sramtile.errors import CheckFailed
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.options import Options
from tvm_sramtile.relay.codegen import compile_function

nn = relay.nn
SPEC = AcceleratorSpec(name="small", sram_bytes=4096, channel_align=4, mac_array=(4, 4))
NAME = "sramtile_conv2d_0"


def region(*, whole: bool = False) -> Any:
    x = tensor("x", 1, 4, 16, 12)
    value = nn.conv2d(x, constant(1, 4, 4, 3, 3), padding=(1, 1))
    mod = graphs.module([x], nn.relu(nn.bias_add(value, constant(2, 4))))
    return front.partition_for_sramtile(mod, SPEC, Options(max_unrolled_chunks=1 if whole else None))[NAME]


def with_body(function: Any, body: Any, params: Any = None) -> Any:
    new = relay.Function(list(params or function.params), body, None, None, function.attrs)
    return relay.transform.InferType()(tvm.IRModule({relay.GlobalVar(NAME): new}))[NAME]


class Editor(relay.ExprMutator):
    """Replaces the first call of an operator."""

    def __init__(self, op: str, edit: Callable[..., Any]) -> None:
        super().__init__()
        self.op, self.edit, self.done = op, edit, False

    def visit_call(self, call: Any) -> Any:
        new = super().visit_call(call)
        if call.op.name == self.op and not self.done:
            self.done = True
            return self.edit(new)
        return new


def conv_like(call: Any, **changes: Any) -> Any:
    attrs = {"padding": tuple(map(int, call.attrs.padding)), "channels": 4, "kernel_size": (3, 3)}
    return nn.conv2d(*call.args, **{**attrs, **changes})


def other_slice(call: Any) -> Any:
    begin, end = int(call.attrs.begin[0]), int(call.attrs.end[0])
    return relay.strided_slice(call.args[0], [begin + 1], [end + 1], axes=[2])


EDITS: list[tuple[str, Callable[[Any], Any], str]] = [
    (
        "strided_slice",
        other_slice,
        "chunk 0 of its body is Chunk(out_rows=Range(start=0, stop=8), in_rows=Range(start=1",
    ),
    (
        "nn.conv2d",
        lambda call: conv_like(call, padding=(0, 1, 1, 1)),
        "chunk 0 of its body is Chunk(out_rows=Range(start=0, stop=8), in_rows=Range(start=0, stop=9), pad_top=0, pad",
    ),
    ("nn.conv2d", lambda call: conv_like(call, padding=(1, 2, 0, 0)), "chunk 0 has padding (1, 2, 0, 0), must have"),
    (
        "nn.conv2d",
        lambda call: nn.conv2d(call.args[0], constant(9, 4, 4, 3, 3), padding=tuple(call.attrs.padding)),
        "chunk 0 does not read the constant weight of its step",
    ),
    ("nn.conv2d", lambda call: relay.zeros((1, 4, 8, 12), "float32"), "chunk 0 is zeros, but reads input rows"),
    ("nn.conv2d", lambda call: relay.tanh(call), "chunk 0 is no nn.conv2d of the accelerator: tanh"),
    ("nn.bias_add", lambda call: call.args[0], "chunk 0 has no bias, unlike its step"),
    ("nn.bias_add", lambda call: nn.bias_add(call.args[0], constant(9, 4)), "chunk 0 does not read the constant bias"),
    ("nn.relu", lambda call: call.args[0], "chunk 0 is limited by None, its step by Clip(low=0.0, high=None)"),
    ("nn.relu", lambda call: relay.clip(call.args[0], 0.0, 6.0), "chunk 0 is limited by Clip(low=0.0, high=6.0)"),
    (
        "concatenate",
        lambda call: relay.concatenate(list(call.args[0].fields)[::-1], axis=2),
        "chunk 0 of its body is Chunk(out_rows=Range(start=0, stop=8), in_rows=Range(start=7",
    ),
    (
        "concatenate",
        lambda call: relay.concatenate(list(call.args[0].fields)[:1], axis=2),
        "its body has 1 chunks, its plan 2",
    ),
    (
        "concatenate",
        lambda call: relay.concatenate(list(call.args[0].fields), axis=1),
        "chunks are put together along axis 1, must be 2",
    ),
]


@pytest.mark.parametrize(("op", "edit", "text"), EDITS)
def test_a_chunk_that_differs_from_the_plan(op: str, edit: Callable[[Any], Any], text: str) -> None:
    function = region()
    damaged = with_body(function, Editor(op, edit).visit(function.body))
    with pytest.raises(CheckFailed) as caught:
        compile_function(damaged)
    assert str(caught.value).startswith(f"function {NAME}: {text}")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"padding": (1, 1, 2, 0)}, "its operator has padding (1, 1, 2, 0), must have (1, 1, 1, 1)"),
        (
            {"dilation": (2, 1), "padding": (2, 1, 2, 1)},
            "its operator has padding (2, 1, 2, 1), must have (1, 1, 1, 1)",
        ),
        ({"padding": (2, 2, 2, 2), "strides": (2, 2)}, "its operator has strides (2, 2), must have (1, 1)"),
    ],
)
def test_a_whole_operator_that_differs(changes: dict[str, Any], text: str) -> None:
    function = region(whole=True)
    damaged = with_body(function, Editor("nn.conv2d", lambda call: conv_like(call, **changes)).visit(function.body))
    with pytest.raises(CheckFailed) as caught:
        compile_function(damaged)
    assert str(caught.value) == f"function {NAME}: {text}"


def test_a_body_in_normal_form_is_still_read() -> None:
    function = region()
    mod = tvm.IRModule({relay.GlobalVar("main"): relay.Function(function.params, function.body)})
    normal = relay.transform.InferType()(relay.transform.ToANormalForm()(mod))["main"]
    assert isinstance(normal.body, relay.Let)
    assert compile_function(with_body(function, normal.body, normal.params)) == compile_function(function)


def test_parameters_that_differ() -> None:
    function = region()
    with pytest.raises(CheckFailed, match="it has 2 parameters, its region 1"):
        compile_function(with_body(function, function.body, [*function.params, tensor("y", 1)]))


@pytest.mark.parametrize("name", ["region", "plan", "spec", "options"])
def test_attributes_that_are_missing_or_damaged(name: str) -> None:
    function = region()
    with pytest.raises(CheckFailed, match=f"function {NAME} has no attribute 'sramtile.{name}'"):
        compile_function(function.without_attr(f"sramtile.{name}"))
    damaged = function.with_attr(f"sramtile.{name}", tvm.runtime.String("[]"))
    with pytest.raises(Exception, match=r"damaged|spec") as caught:
        compile_function(damaged)
    assert type(caught.value).__module__ == "tvm_sramtile.errors"


def test_a_plan_for_other_rows() -> None:
    function = region(whole=True)
    plan = json.loads(str(function.attrs["sramtile.plan"]))
    plan["steps"][0]["chunks"][0]["out_rows"]["stop"] -= 1
    damaged = function.with_attr("sramtile.plan", tvm.runtime.String(json.dumps(plan)))
    with pytest.raises(CheckFailed, match="plan of step conv2d_0: chunk 1: output rows 8-16 do not start at 7"):
        compile_function(damaged)
