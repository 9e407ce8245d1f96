"""Random regions in Relay, and their three executions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import tvm
from three_ways import Drawn, check_network, check_three_ways, divides_by_zero, draw
from tvm import relay

from tvm_sramtile import relay as front
from tvm_sramtile.attributes import RegionAttributes
from tvm_sramtile.frontend import Array
from tvm_sramtile.geometry import Resize2d
from tvm_sramtile.ir import Step
from tvm_sramtile.relay.codegen import compiled
from tvm_sramtile.relay.emit import region_function
from tvm_sramtile.relay.functions import as_region, with_constants, with_text_attrs


def drawn(seed: int, most_pieces: int) -> Drawn | None:
    """The region of a seed; ``None`` where nothing is cut, or into too much."""
    return draw(seed, most_pieces, _functions, _of_relay)


def _of_relay(step: Step) -> Step | None:
    """Resizes as Relay's TVM computes them."""
    op = step.op
    if divides_by_zero(op):
        return None
    return replace(step, op=replace(op, ties="away", whole_scale_floors=True)) if isinstance(op, Resize2d) else step


def _functions(attributes: RegionAttributes, constants: Mapping[str, Array]) -> dict[bool, Any]:
    literals = {digest: relay.const(value) for digest, value in constants.items()}
    functions = {}
    for chunked in (False, True):
        function = with_text_attrs(region_function(attributes, literals, chunked=chunked), attributes.to_attrs())
        functions[chunked] = as_region(with_constants(function, literals.values()), attributes.region.name)
    return functions


def check_all(regions: Sequence[Drawn]) -> None:
    """Run regions in all three ways, each way compiled at once: so let them be few, Relay compiles slowly."""
    mod = _module(regions)
    inputs = {
        f"{one.name}.{tensor.name}": one.case.values[tensor.name]
        for one in regions
        for tensor in one.attributes.region.inputs
    }
    run = front.run_accelerator(mod, inputs)
    feeds = {name: one.inputs for name, one in run.regions.items()}
    bodies = [front.run_regions(mod, feeds, chunked=chunked) for chunked in (False, True)]
    for one in regions:
        made = [compiled(one.name, typed(function), one.attributes) for function in one.functions.values()]
        assert made[0].code == made[1].code
        check_three_ways(one, made[0], run.regions[one.name], [body[one.name] for body in bodies])


def check_read(one: Drawn) -> None:
    """The region as an ordinary module, from the reading of its operators on."""
    literals = {digest: relay.const(value) for digest, value in one.case.constants.items()}
    made = region_function(one.attributes, literals, chunked=False)
    main = relay.Function(made.params, made.body)
    check_network(front, relay.transform.InferType()(tvm.IRModule({relay.GlobalVar("main"): main})), one)


def _module(regions: Sequence[Drawn]) -> tvm.IRModule:
    """All regions, called one after the other."""
    params: list[Any] = []
    results: list[Any] = []
    functions: dict[Any, Any] = {}
    for one in regions:
        var = relay.GlobalVar(one.name)
        functions[var] = one.functions[True]
        own = [
            relay.var(f"{one.name}.{tensor.name}", shape=tensor.shape, dtype=tensor.dtype)
            for tensor in one.attributes.region.inputs
        ]
        call = var(*own)
        count = len(one.attributes.region.outputs)
        results += [call] if count == 1 else [relay.TupleGetItem(call, index) for index in range(count)]
        params += own
    main = relay.Function(params, relay.Tuple(results))
    return relay.transform.InferType()(tvm.IRModule({**functions, relay.GlobalVar("main"): main}))


def typed(function: Any) -> Any:
    """A function with the types of all that is in it."""
    return relay.transform.InferType()(tvm.IRModule({relay.GlobalVar("main"): function}))["main"]
