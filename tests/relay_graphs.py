"""Conformance cases as Relay modules, and how the tests build, join and compare modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from conformance.grammar import Case, Node, Source
from numpy.typing import NDArray
from tvm import relay

from tvm_sramtile.relay.graph import graph_of, rewrite

Array = NDArray[Any]


def tensor(name: str, *shape: Any, dtype: str = "float32") -> Any:
    return relay.var(name, shape=shape, dtype=dtype)


def random(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def constant(seed: int, *shape: int) -> Any:
    return relay.const(random(seed, *shape))


def module(params: Sequence[Any], body: Any, **functions: Any) -> tvm.IRModule:
    """A typed module: ``main``, and other functions by name."""
    others = {relay.GlobalVar(name): function for name, function in functions.items()}
    main = {relay.GlobalVar("main"): relay.Function(list(params), body)}
    return relay.transform.InferType()(tvm.IRModule({**others, **main}))


def case_module(case: Case) -> tvm.IRModule:
    """The graph of a conformance case."""
    values, functions = case.values(), {}

    def function(sources: Sequence[Source], nodes: Sequence[Node], outputs: Sequence[Any], result_type: Any) -> Any:
        params = [tensor(source.name, *source.shape) for source in sources if not source.constant]
        known: dict[str, Any] = {str(param.name_hint): param for param in params}
        known |= {source.name: relay.const(values[source.name]) for source in sources if source.constant}
        for node in nodes:
            known[node.name] = _operator(node, [known[name] for name in node.inputs], functions)

        def result(output: Any) -> Any:
            return known[output] if isinstance(output, str) else relay.Tuple([result(part) for part in output])

        return relay.Function(params, result(outputs[0] if len(outputs) == 1 else outputs), result_type)

    made = {}
    for one in case.functions:
        functions[one.name] = relay.GlobalVar(one.name)
        last = one.nodes[-1].name
        made[functions[one.name]] = function(one.sources, one.nodes, (last,), relay.TensorType(one.shape))
    made[relay.GlobalVar("main")] = function(case.sources, case.nodes, case.outputs, None)
    return relay.transform.InferType()(tvm.IRModule(made))


def _operator(node: Node, inputs: list[Any], functions: Mapping[str, Any]) -> Any:
    nn, attrs = relay.nn, dict(node.attrs)
    match node.op:
        case "conv2d" | "conv2d_transpose":
            return getattr(nn, node.op)(*inputs, **attrs, **_sizes(node, inputs[1]))
        case "max_pool2d" | "bias_add" | "relu":
            return getattr(nn, node.op)(*inputs, **attrs)
        case "avg_pool2d":
            return nn.avg_pool2d(*inputs, **attrs, count_include_pad=True)
        case "resize2d":
            return relay.image.resize2d(*inputs, **attrs, cubic_alpha=-0.5)
        case "pad":
            top, left, bottom, right = attrs["width"]
            return nn.pad(inputs[0], ((0, 0), (0, 0), (top, bottom), (left, right)), attrs["value"])
        case "clip":
            return relay.clip(inputs[0], attrs["low"], attrs["high"])
        case "tanh" | "add" | "multiply":
            return getattr(relay, node.op)(*inputs)
        case "concatenate":
            return relay.concatenate(inputs, axis=1)
        case "tuple":
            return relay.Tuple(inputs)
        case "item":
            return relay.TupleGetItem(inputs[0], attrs["index"])
        case "call":
            return relay.Call(functions[attrs["function"]], inputs)
        case _:
            raise ValueError(f"no operator {node.op!r}")


def _sizes(node: Node, weight: Any) -> dict[str, Any]:
    """What Relay wants to be told beside the weight."""
    layout = node.attrs.get("kernel_layout", "OIHW" if node.op == "conv2d" else "IOHW")
    shape = weight.data.shape if isinstance(weight, relay.Constant) else weight.type_annotation.shape
    extents = dict(zip(layout, map(int, shape), strict=True))
    groups = node.attrs.get("groups", 1) if node.op == "conv2d_transpose" else 1
    return {"channels": extents["O"] * groups, "kernel_size": (extents["H"], extents["W"])}


def inputs_of(case: Case) -> dict[str, Array]:
    values = case.values()
    return {source.name: values[source.name] for source in case.sources if not source.constant}


def joined(modules: Mapping[str, tvm.IRModule]) -> tvm.IRModule:
    """One module whose ``main`` computes those of all: one build for many cases.

    Parameters and results follow each other. Parameters are called ``<key>.<name>``, other functions ``<key>__<name>``.
    """
    params: list[Any] = []
    results: list[Any] = []
    functions: dict[Any, Any] = {}
    for key, mod in modules.items():
        main = mod["main"]
        own = [relay.var(f"{key}.{param.name_hint}", param.checked_type) for param in main.params]
        others = [var for var in mod.get_global_vars() if var.name_hint != "main"]
        new = {var: relay.GlobalVar(f"{key}__{var.name_hint}") for var in others}
        for var, name in new.items():
            functions[name] = _with_calls_in(new, mod[var]).with_attr("global_symbol", name.name_hint)
        body = relay.bind(_with_calls_of(new, main.body), dict(zip(main.params, own, strict=True)))
        results += list(body.fields) if isinstance(body, relay.Tuple) else [body]
        params += own
    main = relay.Function(params, relay.Tuple(results))
    return relay.transform.InferType()(tvm.IRModule({**functions, relay.GlobalVar("main"): main}))


def _with_calls_in(new: Mapping[Any, Any], function: Any) -> Any:
    body = _with_calls_of(new, function.body)
    return relay.Function(function.params, body, function.ret_type, function.type_params, function.attrs)


def _with_calls_of(new: Mapping[Any, Any], body: Any) -> Any:
    graph = graph_of(body)

    def call(node: Any) -> Callable[[Any], Any]:
        return lambda lookup: relay.Call(new[node.op], [lookup(argument) for argument in node.args])

    calls = {node: call(node) for node in graph.order if isinstance(node, relay.Call) and node.op in new}
    return rewrite(graph, calls, frozenset())


def equal(left: tvm.IRModule, right: tvm.IRModule) -> bool:
    """Structural equality, the values of constants included."""
    return bool(tvm.ir.structural_equal(left, right, map_free_vars=True))


def is_call(node: Any, name: str) -> bool:
    """Whether a node calls this operator."""
    return isinstance(node, relay.Call) and getattr(node.op, "name", "") == name


def ops_of(mod: tvm.IRModule, name: str = "main") -> list[str]:
    """The operators that a function calls, operands first; a call of another function by that function's name."""
    found: list[str] = []

    def visit(node: Any) -> None:
        if isinstance(node, relay.Call):
            found.append(node.op.name_hint if isinstance(node.op, relay.GlobalVar) else str(node.op.name))

    relay.analysis.post_order_visit(mod[name].body, visit)
    return found


def functions_with(mod: tvm.IRModule, attribute: str) -> dict[str, Any]:
    """The functions that have an attribute, by name."""
    return {
        var.name_hint: function
        for var, function in mod.functions.items()
        if function.attrs is not None and attribute in function.attrs.keys()  # noqa: SIM118 - no dict
    }


def assert_close(found: Sequence[Array], expected: Sequence[Array], tolerance: float) -> None:
    assert len(found) == len(expected)
    for left, right in zip(found, expected, strict=True):
        assert left.shape == right.shape
        assert left.dtype == right.dtype
        np.testing.assert_allclose(left, right, rtol=1e-6, atol=tolerance)
