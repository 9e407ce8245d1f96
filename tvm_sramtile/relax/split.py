"""``SplitOversized``: operators that do not fit, as row chunks that do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.options import Options
from tvm_sramtile.relax.decide import Decision, decide_all, load_spec
from tvm_sramtile.relax.emit import Emitter, body_is_chunked, chunked_step, region_function
from tvm_sramtile.relax.regions import ModuleEdit, Names, call_region
from tvm_sramtile.relax.walk import Place, plain_functions, rebuild


@tvm.transform.module_pass(opt_level=0, name="SplitOversized")
class SplitOversized:
    """A pass that cuts each ``conv2d`` whose whole maps overflow the SRAM.

    * Inline, the operator alone becomes slices, convolutions of chunks with their own pads, and a concatenation: plain
      Relax for any target. What fits is left as it is, so the pass run twice is the pass run once.
    * With ``outline=True`` each operator that is cut becomes, with its bias and limits, one function that takes the
      whole weight as a parameter and carries region and plan as attributes. ``PartitionForSramtile`` takes it over;
      every other target runs it as it is.

    Functions of back ends (``Codegen``) and functions outlined before are left alone.

    Args:
        spec: the accelerator: a spec, a preset's name, or a file's path; ``None`` is ``edge-256k``.
        options: how to plan; ``max_unrolled_chunks`` limits outlined bodies only.
        outline: see above.

    Raises:
        UnsupportedOp, DoesNotFit: when it runs, with ``on_refusal="error"``, for the first operator that stays whole
            though it does not fit; the module is untouched.
    """

    def __init__(
        self,
        spec: AcceleratorSpec | str | Path | None = None,
        options: Options | None = None,
        outline: bool = False,
    ) -> None:
        self.spec = load_spec(spec)
        self.options = options or Options()
        self.outline = outline

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM."""
        decisions = decide_all(mod, self.spec, self.options, epilogue=self.outline, constants=False)
        edit, names = ModuleEdit(mod), Names.of(mod)
        replace = self._outliner(edit, names) if self.outline else _inline
        for var, function in plain_functions(mod):
            split = [decision for decision in decisions[var.name_hint] if decision.is_split]
            if split:
                edit.replace(var, replace_steps(function, split, replace))
        return edit.result()

    def _outliner(self, edit: ModuleEdit, names: Names) -> Replace:
        def outline(decision: Decision, var: Any, dataflow: bool) -> list[Any]:
            attributes = decision.attributes(names.new(decision.found.kind))
            function = region_function(attributes, {}, chunked=body_is_chunked(attributes), codegen=False)
            called = edit.add(attributes.region.name, function)
            out = Emitter(str(var.name), dataflow=dataflow)
            out.bind(var, call_region(decision, called, attributes))
            return out.bindings

        return outline


Replace = Callable[[Decision, Any, bool], "list[Any]"]
"""From a decision, the variable of its last binding, and whether it stands in a dataflow block, to new bindings."""


def replace_steps(function: relax.Function, decisions: list[Decision], replace: Replace) -> relax.Function:
    """The function with each decision's bindings replaced, at the place of the last one."""
    last: dict[Place, Decision] = {}
    dropped: set[Place] = set()
    for decision in decisions:
        places = decision.places
        last[places[-1]] = decision
        dropped |= set(places[:-1])

    def rewrite(block: Any, position: int, dataflow: bool) -> list[Any] | None:
        place = (hash(block), position)
        if place in dropped:
            return []
        if place in last:
            return replace(last[place], block.bindings[position].var, dataflow)
        return None

    return rebuild(function, rewrite)


def _inline(decision: Decision, var: Any, dataflow: bool) -> list[Any]:
    if decision.region is None or decision.plan is None:
        raise ValueError(f"{decision.found.name} has no plan")
    out = Emitter(str(var.name), dataflow=dataflow)
    step, plan = decision.region.steps[0], decision.plan.steps[0]
    out.bind(var, chunked_step(out, step, plan, decision.found.operands))
    return out.bindings
