"""``PartitionForSramtile``: what the accelerator computes, as regions; and the whole way there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tvm

from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.options import Options
from tvm_sramtile.relay.decide import decide_function, load_spec, raise_first, raise_refusals
from tvm_sramtile.relay.functions import Names, as_region, exchange, marks_of, plain_functions, typed_copy
from tvm_sramtile.relay.graph import Edits, graph_of
from tvm_sramtile.relay.outlined import take_over
from tvm_sramtile.relay.prepare import prepare_module
from tvm_sramtile.relay.split import SplitOversized, call_of_decision, outlined_function


@tvm.transform.module_pass(opt_level=0, name="PartitionForSramtile")
class PartitionForSramtile:
    """A pass that puts each operator the accelerator takes into a region: a function with ``Compiler = "sramtile"``.

    Outlined functions of ``SplitOversized`` become regions as they stand, their literal arguments bound. All other
    operators are planned here. A region's body is what TVM itself would run: the chunked subgraph, or the operator
    where it fits or where the chunks are more than ``max_unrolled_chunks`` (16). Regions and functions of other back
    ends are left alone.

    Args:
        spec: the accelerator: a spec, a preset's name, or a file's path; ``None`` is ``edge-256k``.
        options: how to plan.

    Raises:
        UnsupportedOp, DoesNotFit: when it runs, with ``on_refusal="error"``, for the first convolution, transposed
            convolution or resize that would stay on the host; the module is untouched.
    """

    def __init__(self, spec: AcceleratorSpec | str | Path | None = None, options: Options | None = None) -> None:
        self.spec, self.options = load_spec(spec), options or Options()

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM."""
        typed = take_over(typed_copy(mod))
        names = Names(typed)
        changed: dict[Any, Any] = {}
        for var, function in plain_functions(typed).items():
            graph = graph_of(function.body)
            decisions = decide_function(graph, self.spec, self.options)
            if self.options.on_refusal == "error":
                raise_first(graph, decisions)
            edits = Edits()
            for decision in decisions:
                if decision.plan is not None:
                    target, region = outlined_function(decision, names)
                    changed[target] = as_region(region, target.name_hint)
                    edits.take(decision.found.nodes, call_of_decision(target, decision))
            if edits.replace:
                changed[var] = edits.apply(function, graph)
        return exchange(typed, changed, attrs=marks_of(self.spec, self.options))


def partition_for_sramtile(
    mod: tvm.IRModule,
    spec: AcceleratorSpec | str | Path | None = None,
    options: Options | None = None,
    *,
    params: Mapping[str, Any] | None = None,
) -> tvm.IRModule:
    """Partition a module for the accelerator.

    Binds ``params``, folds constants and batch norm, splits what overflows, and makes regions of all that the
    accelerator takes. The module that is given stays as it is.

    Args:
        mod: a Relay module.
        spec: the accelerator: a spec, a preset's name, or a file's path; ``None`` is ``edge-256k``.
        options: how to plan.
        params: values of parameters of ``main`` by name, to become constants.

    Raises:
        UnsupportedOp, DoesNotFit: with ``on_refusal="error"``, for the first convolution, transposed convolution or
            resize that would stay on the host.
        SpecError: the spec is unknown or makes no sense.
        ModelError: ``params`` has a name that is no parameter's.
    """
    spec, options = load_spec(spec), options or Options()
    mod = prepare_module(mod, params or {})
    if options.on_refusal == "error":
        raise_refusals(mod, spec, options)  # before anything is split
    passes = [SplitOversized(spec, options, outline=True), PartitionForSramtile(spec, options)]
    return tvm.transform.Sequential(passes)(mod)
