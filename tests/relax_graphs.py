"""Conformance cases as Relax modules, and how the tests build and compare modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from conformance.grammar import Case, Node, Source
from numpy.typing import NDArray
from tvm import relax
from tvm.script import relax as R  # noqa: N812 (what everyone calls it)

Array = NDArray[Any]


def tensor(name: str, *shape: int, dtype: str = "float32") -> relax.Var:
    return relax.Var(name, R.Tensor(shape, dtype))


def random(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def literal(seed: int, *shape: int) -> Any:
    return relax.const(random(seed, *shape), "float32")


def module(params: list[relax.Var], build: Callable[..., Any], *, dataflow: bool = True, name: str = "main") -> Any:
    """A module of one function: ``build`` is given the builder and the parameters, and returns what it returns."""
    builder = relax.BlockBuilder()
    add_function(builder, params, build, dataflow=dataflow, name=name)
    return builder.get()


def add_function(
    builder: relax.BlockBuilder,
    params: list[relax.Var],
    build: Callable[..., Any],
    *,
    dataflow: bool = True,
    name: str = "main",
) -> tvm.ir.GlobalVar:
    with builder.function(name, params):
        if dataflow:
            with builder.dataflow():
                result = builder.emit_output(build(builder, *params))
        else:
            result = builder.emit(build(builder, *params))
        return builder.emit_func_output(result)


def case_module(case: Case) -> tvm.IRModule:
    """The graph of a conformance case."""
    builder = relax.BlockBuilder()
    values, functions = case.values(), {}

    def add(name: str, sources: Sequence[Source], nodes: Sequence[Node], outputs: tuple[Any, ...]) -> tvm.ir.GlobalVar:
        params = [tensor(source.name, *source.shape) for source in sources if not source.constant]
        known: dict[str, Any] = {str(param.name): param for param in params}
        known |= {source.name: relax.const(values[source.name], "float32") for source in sources if source.constant}

        def result(output: Any) -> Any:
            return known[output] if isinstance(output, str) else relax.Tuple([result(part) for part in output])

        def build(builder: relax.BlockBuilder, *_: Any) -> Any:
            for node in nodes:
                inputs = [known[name] for name in node.inputs]
                known[node.name] = builder.emit(_operator(builder, node, inputs, functions), node.name)
            return result(outputs[0] if len(outputs) == 1 else outputs)

        return add_function(builder, params, build, name=name)

    for function in case.functions:
        functions[function.name] = add(function.name, function.sources, function.nodes, (function.nodes[-1].name,))
    add("main", case.sources, case.nodes, case.outputs)
    return builder.get()


def _operator(builder: relax.BlockBuilder, node: Node, inputs: list[Any], functions: Mapping[str, Any]) -> Any:
    op, attrs = relax.op, dict(node.attrs)
    match node.op:
        case "conv2d" | "conv2d_transpose" | "max_pool2d" | "relu":
            return getattr(op.nn, node.op)(*inputs, **attrs)
        case "avg_pool2d":
            return op.nn.avg_pool2d(*inputs, **attrs, count_include_pad=True)
        case "resize2d":
            return op.image.resize2d(*inputs, attrs.pop("size"), **attrs, cubic_alpha=-0.5)
        case "pad":
            top, left, bottom, right = attrs["width"]
            return op.nn.pad(inputs[0], (0, 0, 0, 0, top, bottom, left, right), "constant", attrs["value"])
        case "bias_add":
            shape = [-1 if axis == attrs.get("axis", 1) else 1 for axis in range(4)]
            return op.add(inputs[0], builder.emit(op.reshape(inputs[1], shape)))
        case "clip":
            low, high = (relax.prim_value(float(attrs[name])) for name in ("low", "high"))
            return op.clip(inputs[0], low, high)
        case "tanh" | "add" | "multiply":
            return getattr(op, node.op)(*inputs)
        case "concatenate":
            return op.concat(inputs, axis=1)
        case "tuple":
            return relax.Tuple(inputs)
        case "item":
            return relax.TupleGetItem(inputs[0], attrs["index"])
        case "call":
            return relax.Call(functions[attrs["function"]], inputs)
        case _:
            raise ValueError(f"no operator {node.op!r}")


def inputs_of(case: Case) -> dict[str, Array]:
    values = case.values()
    return {source.name: values[source.name] for source in case.sources if not source.constant}


def equal(left: Any, right: Any) -> bool:
    """Structural equality, the values of literals included."""
    return bool(tvm_ffi.structural_equal(left, right, map_free_vars=True))


def is_well_formed(mod: tvm.IRModule) -> bool:
    return bool(relax.analysis.check_well_formed(mod))


def ops_of(mod: tvm.IRModule, name: str = "main") -> list[str]:
    """The operators that a function calls, in order; a call of another function by that function's name."""
    found = []
    for block in mod[name].body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.Call):
                op = binding.value.op
                found.append(op.name.removeprefix("relax.") if isinstance(op, tvm.ir.Op) else op.name_hint)
    return found


def is_call(value: Any, name: str) -> bool:
    """Whether a value is a call of this operator, named as ``nn.conv2d``."""
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") == f"relax.{name}"


def run_plain(mod: tvm.IRModule, *arguments: Array, name: str = "main") -> tuple[Array, ...]:
    """Run one function under stock TVM."""
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    return flat(machine[name](*(tvm.runtime.tensor(argument) for argument in arguments)))


def flat(value: Any) -> tuple[Array, ...]:
    if isinstance(value, tvm.runtime.Tensor):
        return (value.numpy(),)
    return tuple(array for part in value for array in flat(part))


def assert_close(found: tuple[Array, ...], expected: tuple[Array, ...], tolerance: float) -> None:
    assert len(found) == len(expected)
    for left, right in zip(found, expected, strict=True):
        assert left.shape == right.shape
        assert left.dtype == right.dtype
        np.testing.assert_allclose(left, right, rtol=1e-6, atol=tolerance)


def functions_with(mod: tvm.IRModule, attribute: str) -> Mapping[str, Any]:
    return {
        var.name_hint: function
        for var, function in mod.functions_items()
        if function.attrs and function.attrs.get(attribute) is not None
    }
