"""``PartitionForSramtile``: what the accelerator computes, as regions; and the whole way there."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tvm

from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.options import Options
from tvm_sramtile.relax.access import attributes_of
from tvm_sramtile.relax.decide import Decision, decide_all, load_spec
from tvm_sramtile.relax.emit import Emitter, body_is_chunked, region_function
from tvm_sramtile.relax.outlined import take_over
from tvm_sramtile.relax.prepare import Params, prepare
from tvm_sramtile.relax.regions import ModuleEdit, Names, call_region, literals_of
from tvm_sramtile.relax.split import SplitOversized, replace_steps
from tvm_sramtile.relax.walk import plain_functions

_SPEC, _OPTIONS = "sramtile.spec", "sramtile.options"


@tvm.transform.module_pass(opt_level=0, name="PartitionForSramtile")
class PartitionForSramtile:
    """A pass that puts each operator the accelerator takes into a region: a function with ``Codegen = "sramtile"``.

    Outlined functions of ``SplitOversized`` become regions as they stand, their literal arguments bound. All other
    operators are planned here. A region's body is what TVM itself would run: the chunked subgraph, or the operator
    where it fits or where the chunks are more than ``max_unrolled_chunks`` (64).

    Args:
        spec: the accelerator: a spec, a preset's name, or a file's path; ``None`` is ``edge-256k``.
        options: how to plan.

    Raises:
        UnsupportedOp, DoesNotFit: when it runs, with ``on_refusal="error"``, for the first convolution, transposed
            convolution or resize that would stay on the host; the module is untouched.
    """

    def __init__(self, spec: AcceleratorSpec | str | Path | None = None, options: Options | None = None) -> None:
        self.spec = load_spec(spec)
        self.options = options or Options()

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM."""
        mod = take_over(mod)
        decisions = decide_all(mod, self.spec, self.options)
        edit, names = ModuleEdit(mod), Names.of(mod)
        make_region = _region_maker(edit, names)
        for var, function in plain_functions(mod):
            taken = [decision for decision in decisions[var.name_hint] if decision.plan is not None]
            if taken:
                edit.replace(var, replace_steps(function, taken, make_region))
        edit.attributes = {_SPEC: self.spec.to_json(), _OPTIONS: json.dumps(asdict(self.options))}
        return edit.result()


def _region_maker(edit: ModuleEdit, names: Names) -> Callable[[Decision, Any, bool], list[Any]]:
    def make_region(decision: Decision, last: Any, dataflow: bool) -> list[Any]:
        attributes = decision.attributes(names.new(decision.found.kind))
        literals = literals_of(decision, attributes)
        function = region_function(attributes, literals, chunked=body_is_chunked(attributes), codegen=True)
        called = edit.add(attributes.region.name, function)
        out = Emitter(str(last.name), dataflow=dataflow)
        out.bind(last, call_region(decision, called, attributes))
        return out.bindings

    return make_region


def partitioned_with(mod: tvm.IRModule) -> tuple[AcceleratorSpec, Options] | None:
    """What a module was partitioned with; ``None`` for a module that was not."""
    attributes = attributes_of(mod)
    if attributes.get(_SPEC) is None or attributes.get(_OPTIONS) is None:
        return None
    return AcceleratorSpec.from_json(str(attributes[_SPEC])), Options(**json.loads(str(attributes[_OPTIONS])))


def partition_for_sramtile(
    mod: tvm.IRModule,
    spec: AcceleratorSpec | str | Path | None = None,
    options: Options | None = None,
    *,
    params: Params | None = None,
) -> tvm.IRModule:
    """Partition a module for the accelerator.

    Binds ``params``, folds constants and batch norm, splits what overflows, and makes regions of all that the
    accelerator takes. The module that is given stays as it is.

    Args:
        mod: a Relax module.
        spec: the accelerator: a spec, a preset's name, or a file's path; ``None`` is ``edge-256k``.
        options: how to plan.
        params: values of parameters: arrays by parameter name, or lists by function name as
            ``relax.frontend.detach_params`` gives them.

    Raises:
        UnsupportedOp, DoesNotFit: with ``on_refusal="error"``, for the first operator that would stay on the host.
        ModelError: ``params`` has a name that is no parameter's.
    """
    spec, options = load_spec(spec), options or Options()
    mod = prepare(mod, params)
    if options.on_refusal == "error":
        decide_all(mod, spec, options)  # raises before anything is split
    passes = [SplitOversized(spec, options, outline=True), PartitionForSramtile(spec, options)]
    return tvm.transform.Sequential(passes)(mod)
