"""Random regions in Relax, and their three executions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import relax_graphs as graphs
import tvm
from three_ways import Drawn, check_network, check_three_ways, divides_by_zero, draw
from tvm import relax

from tvm_sramtile import relax as front
from tvm_sramtile.attributes import RegionAttributes
from tvm_sramtile.frontend import Array, NetworkRun
from tvm_sramtile.geometry import Resize2d
from tvm_sramtile.ir import Step
from tvm_sramtile.relax.codegen import compile_function
from tvm_sramtile.relax.emit import region_function


def drawn(seed: int, most_pieces: int) -> Drawn | None:
    """The region of a seed; ``None`` where nothing is cut, or into too much."""
    return draw(seed, most_pieces, _functions, _of_relax)


def _of_relax(step: Step) -> Step | None:
    """The step, where Relax's TVM computes it: some small maps become NaN when cubic weights are left out."""
    op = step.op
    small = isinstance(op, Resize2d) and op.method == "cubic" and op.cubic_exclude and min(op.in_rows, op.in_cols) < 4
    return None if small or divides_by_zero(op) else step


def _functions(attributes: RegionAttributes, constants: Mapping[str, Array]) -> dict[bool, relax.Function]:
    literals = {digest: relax.const(value) for digest, value in constants.items()}
    return {chunked: region_function(attributes, literals, chunked=chunked, codegen=True) for chunked in (False, True)}


def check_all(regions: Sequence[Drawn]) -> None:
    """Run regions in all three ways, each way compiled at once."""
    run = _on_the_accelerator(regions)
    feeds = {name: one.inputs for name, one in run.regions.items()}
    mod = tvm.IRModule({one.name: one.functions[True] for one in regions})
    bodies = [front.run_regions(mod, feeds, chunked=chunked) for chunked in (False, True)]
    for one in regions:
        compiled = compile_function(one.functions[True])
        assert compile_function(one.functions[False]).code == compiled.code
        check_three_ways(one, compiled, run.regions[one.name], [body[one.name] for body in bodies])


def check_read(one: Drawn) -> None:
    """The region as an ordinary module, from the reading of its operators on."""
    literals = {digest: relax.const(value) for digest, value in one.case.constants.items()}
    made = region_function(one.attributes, literals, chunked=False, codegen=False)
    main = relax.Function(made.params, made.body, made.ret_ty, True).with_attr("global_symbol", "main")
    check_network(front, tvm.IRModule({"main": main}), one)


def _on_the_accelerator(regions: Sequence[Drawn]) -> NetworkRun:
    """All regions in one module, called one after the other."""
    builder = relax.BlockBuilder()
    params = {
        one.name: [graphs.tensor(f"{one.name}_{t.name}", *t.shape) for t in one.attributes.region.inputs]
        for one in regions
    }
    called = {one.name: builder.add_func(one.functions[True], one.name) for one in regions}
    with builder.function("main", [param for some in params.values() for param in some]):
        results = [builder.emit(relax.Call(called[one.name], params[one.name])) for one in regions]
        builder.emit_func_output(relax.Tuple(results))
    inputs = {
        f"{one.name}_{tensor.name}": one.case.values[tensor.name]
        for one in regions
        for tensor in one.attributes.region.inputs
    }
    return front.run_accelerator(builder.get(), inputs)
