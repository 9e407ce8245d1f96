"""Importing, running and exporting: what the command line and ``verify`` ask of a front end."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor

from tvm_sramtile.attributes import RegionAttributes
from tvm_sramtile.counting import counters, reset_counters
from tvm_sramtile.errors import ModelError
from tvm_sramtile.frontend import Array, NetworkRun, RegionRun
from tvm_sramtile.relay.body import check_function
from tvm_sramtile.relay.codegen import constants_of
from tvm_sramtile.relay.emit import region_body
from tvm_sramtile.relay.functions import constant_nodes, exchange, is_region, read_attributes, typed_copy
from tvm_sramtile.relay.graph import graph_of
from tvm_sramtile.relay.host_ops import function_order
from tvm_sramtile.relay.inline import inlined
from tvm_sramtile.relay.module import host_target, load_exported
from tvm_sramtile.relay.onnx_names import provide_onnx_names


def import_onnx(proto: Any, shapes: Mapping[str, tuple[int, ...]]) -> tvm.IRModule:
    """An ONNX network with static input shapes as a module, its weights as constants.

    Raises:
        ModelError: TVM's importer does not take the network.
        MissingDependency: onnx is not installed.
    """
    provide_onnx_names()
    config = {_FILL_SPAN: True} if _FILL_SPAN in tvm.transform.PassContext.list_configs() else {}
    try:
        with tvm.transform.PassContext(opt_level=3, config=config):
            mod, params = relay.frontend.from_onnx(proto, shape=dict(shapes), freeze_params=True)
    except Exception as error:  # the importer and TVM raise errors of many types
        text = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelError(f"TVM's Relay importer does not take this network: {text[-1]}") from error
    if params:
        mod["main"] = relay.build_module.bind_params_by_name(mod["main"], params)
    return relay.transform.InferType()(mod)


_FILL_SPAN = "relay.frontend.fill_span"


def regions(mod: tvm.IRModule) -> tuple[RegionAttributes, ...]:
    """The regions of a partitioned module, in the order of execution."""
    return tuple(read_attributes(var.name_hint, mod[var]) for var in function_order(mod) if is_region(mod[var]))


def constants(mod: tvm.IRModule) -> Mapping[str, Array]:
    """The values of the constants in the regions of a partitioned module, by digest."""
    values: dict[str, Array] = {}
    for function in mod.functions.values():
        if is_region(function):
            values |= constants_of(function)
    return values


def run_host(mod: tvm.IRModule, inputs: Mapping[str, Array]) -> tuple[Array, ...]:
    """The outputs of a module that has no regions, under stock TVM."""
    return run_built(mod, build(mod), inputs)


def run_built(mod: tvm.IRModule, library: Any, inputs: Mapping[str, Array]) -> tuple[Array, ...]:
    """The outputs of a module without regions that ``build`` or ``build_quickly`` has compiled."""
    checked = _checked_inputs(typed_copy(mod)["main"], inputs)
    return _run(graph_executor.GraphModule(library["default"](tvm.cpu())), checked)


def run_accelerator(mod: tvm.IRModule, inputs: Mapping[str, Array]) -> NetworkRun:
    """Run a partitioned module with the accelerator inside the TVM executable.

    Of a region that is called several times (in a function that is), the first call is told of.

    Raises:
        ModelError: an input is missing, unknown, or of another type.
        TVMError: the engine stopped; the text is the engine's.
    """
    probe = _probe(mod)
    checked = _checked_inputs(probe.mod["main"], inputs)
    with tempfile.TemporaryDirectory(prefix="sramtile-") as directory:
        library = load_exported(build_partitioned(probe.mod), Path(directory))
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    if probe.calls:
        reset_counters(library)
    values = _run(executor, checked)
    measured = counters(library).regions if probe.calls else {}
    runs = {}
    at = probe.output_count
    for name, (input_count, output_count) in probe.calls.items():
        ins, outs = values[at : at + input_count], values[at + input_count : at + input_count + output_count]
        at += input_count + output_count
        runs[name] = RegionRun(ins, outs, measured[name].measured)
    return NetworkRun(values[: probe.output_count], runs)


def run_regions(
    mod: tvm.IRModule, inputs: Mapping[str, tuple[Array, ...]], *, chunked: bool
) -> Mapping[str, tuple[Array, ...]]:
    """Run regions' bodies under stock TVM, each on its own inputs: as the op itself, or as the chunked subgraph.

    Args:
        mod: a partitioned module.
        inputs: by region name; only these regions are run.
        chunked: the chunked subgraph in place of the op.
    """
    params: list[Any] = []
    results: list[Any] = []
    counts: dict[str, int] = {}
    values: dict[str, Array] = {}
    known = {var.name_hint: function for var, function in mod.functions.items() if is_region(function)}
    for name, arrays in inputs.items():
        if name not in known:
            raise ModelError(f"the module has no region {name!r}")
        function = known[name]
        attributes = read_attributes(name, function)
        own = [
            relay.var(f"{name}_{tensor.name}", shape=tensor.shape, dtype=tensor.dtype)
            for tensor in attributes.region.inputs
        ]
        params += own
        values.update({param.name_hint: array for param, array in zip(own, arrays, strict=True)})
        body = _plain_body(function, attributes, own, chunked=chunked)
        counts[name] = len(attributes.region.outputs)
        results += list(body.fields) if counts[name] > 1 else [body]
    if not results:
        return {}
    module = tvm.IRModule.from_expr(relay.Function(params, relay.Tuple(results)))
    found = iter(run_built(module, build_quickly(module), values))
    return {name: tuple(next(found) for _ in range(count)) for name, count in counts.items()}


def export_library(mod: tvm.IRModule, path: str) -> None:
    """Compile a partitioned module to one self-contained library file; it appears whole or not at all."""
    target = Path(path)
    with tempfile.TemporaryDirectory(prefix=".sramtile-", dir=target.absolute().parent) as directory:
        part = Path(directory) / f"library{target.suffix or '.so'}"
        build_partitioned(mod).export_library(str(part))
        part.replace(target)


def build(mod: tvm.IRModule) -> Any:
    """``relay.build`` for this machine, without TVM's advice to tune."""
    with _quiet(), tvm.transform.PassContext(opt_level=2):
        return relay.build(inlined(mod), target=host_target())


def build_partitioned(mod: tvm.IRModule) -> Any:
    """The same for a module with regions; their bodies are checked and written as operators first.

    The program does not depend on the body, but every pass of TVM would infer the types of all the chunks anew.
    """
    typed = typed_copy(mod)
    whole = {}
    for var, function in typed.functions.items():
        if is_region(function):
            attributes = read_attributes(var.name_hint, function)
            check_function(var.name_hint, function, attributes)
            body = _plain_body(function, attributes, list(function.params), chunked=False)
            whole[var] = relay.Function(function.params, body, function.ret_type, None, function.attrs)
    return build(exchange(typed, whole))


def build_quickly(mod: tvm.IRModule) -> Any:
    """The same where compiling counts more than the speed of what comes of it: for unrolled bodies as operators."""
    with _quiet(), tvm.transform.PassContext(opt_level=2, disabled_pass=_NEEDLESS_PASSES):
        return relay.build(inlined(mod), target=f"{host_target()} -opt-level=0")


_NEEDLESS_PASSES = [
    "CanonicalizeCast",
    "CombineParallelBatchMatmul",
    "CombineParallelConv2D",
    "CombineParallelDense",
    "EliminateCommonSubexpr",
    "FlattenAtrousConv",
    "FoldConstant",
    "FoldScaleAxis",
    "Legalize",
    "SimplifyExpr",
    "SimplifyExprPostAlterOp",
    "SimplifyInference",
    "SplitArgs",
    "qnn.Legalize",
]


@contextmanager
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("autotvm")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


@dataclass(frozen=True, slots=True)
class _Probe:
    """A module whose ``main`` also returns what goes into its regions and what comes out.

    Attributes:
        output_count: how many of the results are the module's own.
        calls: by region how many inputs and outputs of it follow.
    """

    mod: tvm.IRModule
    output_count: int
    calls: Mapping[str, tuple[int, int]]


def _probe(mod: tvm.IRModule) -> _Probe:
    typed = inlined(mod)
    main = typed["main"]
    results = _flat(main.body)
    count = len(results)
    known = {var.name_hint for var in mod.get_global_vars()}  # copies of regions have new names
    calls: dict[str, tuple[int, int]] = {}
    for node in graph_of(main.body).order:
        if not isinstance(node, relay.Call) or not isinstance(node.op, relay.GlobalVar):
            continue
        if is_region(typed[node.op]) and node.op.name_hint in known:
            outputs = _flat(node)
            results += [*node.args, *outputs]
            calls[node.op.name_hint] = (len(node.args), len(outputs))
    probed = relay.Function(main.params, relay.Tuple(results), None, main.type_params, main.attrs)
    return _Probe(exchange(typed, {typed.get_global_var("main"): probed}), count, calls)


def _flat(value: Any) -> list[Any]:
    """The tensors of a value, in the order in which the executor returns them."""
    if isinstance(value, relay.Tuple):
        return [part for field in value.fields for part in _flat(field)]
    return _projections(value, value.checked_type)


def _projections(value: Any, kind: Any) -> list[Any]:
    if not isinstance(kind, relay.TupleType):
        return [value]
    return [
        part
        for index, field in enumerate(kind.fields)
        for part in _projections(relay.TupleGetItem(value, index), field)
    ]


def _plain_body(function: Any, attributes: RegionAttributes, params: list[Any], *, chunked: bool) -> Any:
    region, literals = attributes.region, constant_nodes(function)
    values = {tensor.name: param for tensor, param in zip(region.inputs, params, strict=True)}
    values |= {tensor.name: literals[str(tensor.digest)] for tensor in region.constants}
    return region_body(attributes, values, chunked=chunked)


def _checked_inputs(main: Any, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs, when they are those that ``main`` takes."""
    wanted = {param.name_hint: param.checked_type for param in main.params}
    for name in inputs:
        if name not in wanted:
            raise ModelError(f"input {name!r} is unknown: the network's inputs are {', '.join(wanted)}")
    for name, kind in wanted.items():
        if name not in inputs:
            raise ModelError(f"input {name!r} is missing: the network's inputs are {', '.join(wanted)}")
        shape, dtype = tuple(map(int, kind.shape)), str(kind.dtype)
        given = np.asarray(inputs[name])
        if given.shape != shape or given.dtype.name != dtype:
            raise ModelError(f"input {name!r} is {given.dtype.name} {given.shape}, must be {dtype} {shape}")
    return dict(inputs)


def _run(executor: Any, inputs: Mapping[str, Array]) -> tuple[Array, ...]:
    executor.run(**{name: tvm.nd.array(value) for name, value in inputs.items()})
    return tuple(executor.get_output(index).numpy() for index in range(executor.get_num_outputs()))
