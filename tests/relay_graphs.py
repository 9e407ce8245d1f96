"""Conformance cases as Relay modules, and how the tests build, join and compare modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from conformance.cases import Case, Node
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
    values = case.values()
    params = [tensor(source.name, *source.shape) for source in case.sources if not source.constant]
    known: dict[str, Any] = {str(param.name_hint): param for param in params}
    known |= {source.name: relay.const(values[source.name]) for source in case.sources if source.constant}
    for node in case.nodes:
        known[node.name] = _operator(node, [known[name] for name in node.inputs])
    results = [known[name] for name in case.outputs]
    return module(params, results[0] if len(results) == 1 else relay.Tuple(results))


def _operator(node: Node, inputs: list[Any]) -> Any:
    nn = relay.nn
    match node.op:
        case "conv2d":
            return nn.conv2d(*inputs, **node.attrs)
        case "bias_add":
            return nn.bias_add(*inputs)
        case "relu":
            return nn.relu(inputs[0])
        case "clip":
            return relay.clip(inputs[0], node.attrs["low"], node.attrs["high"])
        case "tanh":
            return relay.tanh(inputs[0])
        case "add":
            return relay.add(*inputs)
        case _:
            raise ValueError(f"no operator {node.op!r}")


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
        new: dict[Any, Any] = {}
        for var, function in mod.functions.items():
            if var.name_hint != "main":
                new[var] = relay.GlobalVar(f"{key}__{var.name_hint}")
                functions[new[var]] = function.with_attr("global_symbol", new[var].name_hint)
        body = relay.bind(_with_calls_of(new, main.body), dict(zip(main.params, own, strict=True)))
        results += list(body.fields) if isinstance(body, relay.Tuple) else [body]
        params += own
    main = relay.Function(params, relay.Tuple(results))
    return relay.transform.InferType()(tvm.IRModule({**functions, relay.GlobalVar("main"): main}))


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
