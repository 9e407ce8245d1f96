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
    options = Options(strategy="seed", max_unrolled_chunks=1 if whole else None)
    return front.partition_for_sramtile(mod, SPEC, options)[NAME]


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


def conv_like(call: Any, weight: Any = None, **changes: Any) -> Any:
    attrs = {"padding": tuple(map(int, call.attrs.padding)), "channels": 4, "kernel_size": (3, 3)}
    operands = (call.args[0], call.args[1] if weight is None else weight)
    return nn.conv2d(*operands, **{**attrs, "out_dtype": "float32", **changes})


def conv_text(*padding: int, strides: tuple[int, int] = (1, 1), dilation: tuple[int, int] = (1, 1)) -> str:
    return (
        f"nn.conv2d(strides={list(strides)}, padding={list(padding)}, dilation={list(dilation)}, groups=1, channels=4,"
        " kernel_size=[3, 3], data_layout=NCHW, kernel_layout=OIHW, out_layout=, out_dtype=float32)"
    )


def slice_text(begin: int, end: int) -> str:
    return f"strided_slice(begin=[{begin}], end=[{end}], strides=[1], slice_mode=end, axes=[2])"


def other_slice(call: Any) -> Any:
    begin, end = int(call.attrs.begin[0]), int(call.attrs.end[0])
    return relay.strided_slice(call.args[0], [begin + 1], [end + 1], axes=[2])


FIRST, SECOND, WHOLE = conv_text(1, 1, 0, 1), conv_text(0, 1, 1, 1), conv_text(1, 1, 1, 1)
# Each: the operator; what is done to the first such call; where the body differs, what is there, what should be.
EDITS: list[tuple[str, Callable[[Any], Any], str, str, str]] = [
    ("strided_slice", other_slice, "operand 0 of nn.conv2d", slice_text(1, 10), slice_text(0, 9)),
    ("nn.conv2d", lambda call: conv_like(call, padding=(0, 1, 1, 1)), "operand 0 of nn.bias_add", SECOND, FIRST),
    (
        "nn.conv2d",
        lambda call: conv_like(call, padding=(1, 2, 0, 0)),
        "operand 0 of nn.bias_add",
        conv_text(1, 2, 0, 0),
        FIRST,
    ),
    (
        "nn.conv2d",
        lambda call: conv_like(call, constant(9, 4, 4, 3, 3)),
        "operand 1 of nn.conv2d",
        "a constant of shape (4, 4, 3, 3)",
        "a constant of shape (4, 4, 3, 3)",
    ),
    (
        "nn.conv2d",
        lambda call: relay.zeros((1, 4, 8, 12), "float32"),
        "operand 0 of nn.bias_add",
        "zeros(shape=[1, 4, 8, 12], dtype=float32)",
        FIRST,
    ),
    ("nn.conv2d", lambda call: relay.tanh(call), "operand 0 of nn.bias_add", "tanh()", FIRST),
    ("nn.bias_add", lambda call: call.args[0], "operand 0 of nn.relu", FIRST, "nn.bias_add(axis=1)"),
    (
        "nn.bias_add",
        lambda call: nn.bias_add(call.args[0], constant(9, 4)),
        "operand 1 of nn.bias_add",
        "a constant of shape (4,)",
        "a constant of shape (4,)",
    ),
    ("nn.relu", lambda call: call.args[0], "part 0", "nn.bias_add(axis=1)", "nn.relu()"),
    ("nn.relu", lambda call: relay.clip(call.args[0], 0.0, 6.0), "part 0", "clip(a_min=0.0, a_max=6.0)", "nn.relu()"),
    (
        "concatenate",
        lambda call: relay.concatenate(list(call.args[0].fields)[::-1], axis=2),
        "operand 0 of nn.bias_add",
        SECOND,
        FIRST,
    ),
    (
        "concatenate",
        lambda call: relay.concatenate(list(call.args[0].fields)[:1], axis=2),
        "operand 0 of concatenate",
        "a tuple of 1",
        "a tuple of 2",
    ),
    (
        "concatenate",
        lambda call: relay.concatenate(list(call.args[0].fields), axis=1),
        "its result",
        "concatenate(axis=1)",
        "concatenate(axis=2)",
    ),
]


def message_of(function: Any) -> str:
    with pytest.raises(CheckFailed) as caught:
        compile_function(function)
    return str(caught.value)


@pytest.mark.parametrize(("op", "edit", "where", "found", "wanted"), EDITS)
def test_a_chunk_that_differs_from_the_plan(
    op: str, edit: Callable[[Any], Any], where: str, found: str, wanted: str
) -> None:
    function = region()
    damaged = with_body(function, Editor(op, edit).visit(function.body))
    assert message_of(damaged) == f"function {NAME}: {where} is {found} in its body, {wanted} by its plan"


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"padding": (1, 1, 2, 0)}, conv_text(1, 1, 2, 0)),
        ({"dilation": (2, 1), "padding": (2, 1, 2, 1)}, conv_text(2, 1, 2, 1, dilation=(2, 1))),
        ({"padding": (2, 2, 2, 2), "strides": (2, 2)}, conv_text(2, 2, 2, 2, strides=(2, 2))),
    ],
)
def test_a_whole_operator_that_differs(changes: dict[str, Any], found: str) -> None:
    function = region(whole=True)
    damaged = with_body(function, Editor("nn.conv2d", lambda call: conv_like(call, **changes)).visit(function.body))
    wanted = f"operand 0 of nn.bias_add is {found} in its body, {WHOLE} by its plan"
    assert message_of(damaged) == f"function {NAME}: {wanted}"


@pytest.mark.parametrize(
    ("op", "edit", "text"),
    [
        (
            "nn.conv2d",
            lambda call: conv_like(call, constant(9, 4, 4, 3, 3)),
            "it does not carry its constant weight (4, 4, 3, 3)",
        ),
        ("nn.bias_add", lambda call: call.args[0], "it does not carry its constant bias (4,)"),
        (
            "nn.relu",
            lambda call: call.args[0],
            "its result is nn.bias_add(axis=1) in its body, nn.relu() by its plan",
        ),
    ],
)
def test_parts_of_a_whole_operator_that_differ(op: str, edit: Callable[[Any], Any], text: str) -> None:
    function = region(whole=True)
    damaged = with_body(function, Editor(op, edit).visit(function.body))
    assert message_of(damaged) == f"function {NAME}: {text}"


@pytest.mark.parametrize("whole", [False, True])
def test_a_body_that_was_made_again_is_right(whole: bool) -> None:
    function = region(whole=whole)
    again = with_body(function, Editor("nn.conv2d", conv_like).visit(function.body))
    assert not again.body.same_as(function.body)
    assert compile_function(again) == compile_function(function)


def test_the_program_is_the_same_with_either_body() -> None:
    chunked, whole = region(), region(whole=True)
    assert not tvm.ir.structural_equal(chunked.body, whole.body, map_free_vars=True)
    wanted = compile_function(chunked)
    assert compile_function(whole) == wanted
    assert compile_function(with_body(chunked, whole.body, whole.params)) == wanted
    assert compile_function(with_body(whole, chunked.body, chunked.params)) == wanted


@pytest.mark.parametrize("whole", [False, True])
def test_a_body_in_normal_form_is_still_read(whole: bool) -> None:
    function = region(whole=whole)
    normal = in_normal_form(function)
    assert isinstance(normal.body, relay.Let)
    assert compile_function(with_body(function, normal.body, normal.params)) == compile_function(function)


@pytest.mark.parametrize(("op", "edit", "where", "found", "wanted"), EDITS)
def test_a_chunk_that_differs_in_normal_form(
    op: str, edit: Callable[[Any], Any], where: str, found: str, wanted: str
) -> None:
    function = region()
    normal = in_normal_form(with_body(function, Editor(op, edit).visit(function.body)))
    damaged = with_body(function, normal.body, normal.params)
    assert message_of(damaged) == f"function {NAME}: {where} is {found} in its body, {wanted} by its plan"


def in_normal_form(function: Any) -> Any:
    mod = tvm.IRModule({relay.GlobalVar("main"): relay.Function(function.params, function.body)})
    return relay.transform.InferType()(relay.transform.ToANormalForm()(mod))["main"]


def test_parameters_that_differ() -> None:
    function = region()
    two = with_body(function, function.body, [*function.params, tensor("y", 1)])
    assert message_of(two) == f"function {NAME}: it has 2 parameters, its region 1"
    wide = tensor("data", 1, 4, 16, 13)
    other = with_body(function, nn.relu(wide), [wide])
    assert message_of(other) == f"function {NAME}: parameter data is not float32 (1, 4, 16, 12)"


@pytest.mark.parametrize("name", ["region", "plan", "spec", "options"])
def test_attributes_that_are_missing_or_damaged(name: str) -> None:
    function = region()
    with pytest.raises(CheckFailed, match=f"function {NAME} has no attribute 'sramtile.{name}'"):
        compile_function(function.without_attr(f"sramtile.{name}"))
    damaged = function.with_attr(f"sramtile.{name}", tvm.runtime.String("[]"))
    with pytest.raises(Exception, match=r"damaged|spec") as caught:
        compile_function(damaged)
    assert type(caught.value).__module__ == "tvm_sramtile.errors"


@pytest.mark.parametrize(
    ("whole", "text"),
    [
        (True, "plan of step conv2d_0: row chunk 1: output positions 8-16 do not start at 7, where those before end"),
        (False, f"function {NAME}: operand 0 of "),
    ],
)
def test_a_plan_for_other_rows(whole: bool, text: str) -> None:
    function = region(whole=whole)
    plan = json.loads(str(function.attrs["sramtile.plan"]))
    plan["steps"][0]["rows"][0]["out"]["stop"] -= 1
    damaged = function.with_attr("sramtile.plan", tvm.runtime.String(json.dumps(plan)))
    assert text in message_of(damaged)
