"""``SplitOversized``: operators that do not fit, as chunks that do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from tvm_sramtile.errors import DoesNotFit, OptionError, SramtileError, UnsupportedOp
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.options import Options
from tvm_sramtile.plan import DIRECTIONS, Capacity, Direction, SpecCapacity, cut_in_slices, judge, takes_several
from tvm_sramtile.relax.access import op_name
from tvm_sramtile.relax.decide import Decision, decide_all, load_spec
from tvm_sramtile.relax.emit import Emitter, body_is_chunked, chunked_step, region_function, sliceable
from tvm_sramtile.relax.read import Found, find_steps
from tvm_sramtile.relax.regions import ModuleEdit, Names, call_region
from tvm_sramtile.relax.walk import Place, blocks_of, identity, plain_functions, rebuild

DEFAULT_OPS = ("nn.conv2d", "nn.conv2d_transpose", "nn.max_pool2d", "nn.avg_pool2d", "image.resize2d")


@tvm.transform.module_pass(opt_level=0, name="SplitOversized")
class SplitOversized:
    """A pass that cuts each operator that overflows a small memory into chunks that fit.

    * Inline, the operator alone becomes slices, operators on these with their own pads, sums of sub-kernels, and
      concatenations of finished chunks: plain Relax for any target and any back end. What fits is left as it is, so
      the pass run twice is the pass run once.
    * With ``outline=True`` each operator that is cut becomes, with its epilogue, one function that takes the whole
      weight as a parameter and carries region and plan as attributes. ``PartitionForSramtile`` takes it over; every
      other target runs it as it is.

    Functions of back ends (``Codegen``) and functions outlined before are left alone.

    Args:
        capacity_or_spec: what fits: a rule of your own (see ``plan.Capacity``), or an accelerator of ours: a spec, a
            preset's name, or a file's path. ``None`` is ``edge-256k``.
        options: how to plan; ``max_unrolled_chunks`` limits outlined bodies only.
        outline: see above.
        ops: the operators to look at by TVM's names, as ``nn.conv2d``. By default convolutions, plain and transposed,
            ``nn.max_pool2d``, ``nn.avg_pool2d`` and ``image.resize2d``. Others that can be cut are ``matmul`` with a
            weight, and elementwise operators.
        axes: where operators may be cut: "rows", "columns", "channels" (of the output, and of the input in sums).

    Raises:
        OptionError: ``ops`` or ``axes`` name what there is not, or ``outline`` is asked for with something that only
            inline chunks can follow.
        UnsupportedOp, DoesNotFit: when it runs, with ``on_refusal="error"``, for the first operator that stays whole
            though it does not fit; the module is untouched.
    """

    def __init__(
        self,
        capacity_or_spec: Capacity | AcceleratorSpec | str | Path | None = None,
        options: Options | None = None,
        outline: bool = False,
        *,
        ops: Collection[str] | None = None,
        axes: Collection[Direction] = DIRECTIONS,
    ) -> None:
        self.spec: AcceleratorSpec | None = None
        if capacity_or_spec is None or isinstance(capacity_or_spec, AcceleratorSpec | str | Path):
            self.spec = load_spec(capacity_or_spec)
            self.capacity: Capacity = SpecCapacity(self.spec)
        else:
            self.capacity = capacity_or_spec
        self.options = options or Options()
        self.outline = outline
        self.ops = frozenset(map(_known_op, DEFAULT_OPS if ops is None else ops))
        self.axes = tuple(map(_known_axis, axes))
        if outline and (self.spec is None or set(self.axes) != set(DIRECTIONS)):
            what = "a capacity of your own" if self.spec is None else f"axes = {self.axes!r}"
            raise OptionError(f"option outline = True with {what}: outlined functions carry a plan of our accelerator")

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM."""
        edit, names = ModuleEdit(mod), Names.of(mod)
        decisions: Mapping[str, Sequence[Decision]] = {}
        if self.outline and self.spec is not None:
            decisions = decide_all(mod, self.spec, self.options, constants=False)
        for var, function in plain_functions(mod):
            if self.outline:
                split = self._outlined(function, decisions[var.name_hint], edit, names)
            else:
                split = self._inline(function)
            if split:
                edit.replace(var, replace_bindings(function, split))
        return edit.result()

    def _outlined(
        self, function: relax.Function, decisions: Sequence[Decision], edit: ModuleEdit, names: Names
    ) -> list[Replacement]:
        ops = _ops_by_place(function)

        def outliner(decision: Decision) -> Callable[[Emitter], Any]:
            def outline(_: Emitter) -> Any:
                attributes = decision.attributes(names.new(decision.found.kind))
                made = region_function(attributes, {}, chunked=body_is_chunked(attributes), codegen=False)
                return call_region(decision, edit.add(attributes.region.name, made), attributes)

            return outline

        return [
            Replacement(decision.places, outliner(decision))
            for decision in decisions
            if decision.is_split and ops[decision.places[0]] in self.ops
        ]

    def _inline(self, function: relax.Function) -> list[Replacement]:
        ops = _ops_by_place(function)
        split = []
        for found in find_steps(function, epilogue=False):
            if ops[found.places[0]] not in self.ops:
                continue
            made = self._split(found)
            if isinstance(made, Replacement):
                split.append(made)
            elif made is not None and self.options.on_refusal == "error":
                raise made
        return split

    def _split(self, found: Found) -> Replacement | SramtileError | None:
        """The chunks of an operator; ``None`` where it fits."""
        capacity, step, prefix = self.capacity, found.step, f"{found.kind} {found.name}: "
        if step is None:  # or it is a concatenation, which has a step for each part
            return UnsupportedOp(prefix + found.refusal) if found.refusal else None
        verdict = judge(step)
        if not verdict.ok:
            return UnsupportedOp(prefix + verdict.reason)
        try:
            cut = cut_in_slices(step, capacity, self.options, self.axes, sliceable)
        except DoesNotFit as error:
            return DoesNotFit(f"{found.kind} {found.name}{str(error).removeprefix(f'{step.op.kind} {step.name}')}")
        if not takes_several(step, cut, capacity.unit_kernels):
            return None

        def chunks(out: Emitter) -> Any:
            return chunked_step(
                out, step, cut, found.operands, capacity.unit_kernels, lambda tile: capacity.charge(step, tile).fits
            )

        return Replacement(found.places, chunks)


@dataclass(frozen=True, slots=True)
class Replacement:
    """Bindings that become one value.

    Attributes:
        places: the bindings, all of one block; the last one's variable gets the value.
        value: from an emitter to the value, unbound.
    """

    places: tuple[Place, ...]
    value: Callable[[Emitter], Any]


def replace_bindings(function: relax.Function, replacements: Sequence[Replacement]) -> relax.Function:
    """The function with each replacement at the place of its last binding."""
    last = {replacement.places[-1]: replacement for replacement in replacements}
    dropped = {place for replacement in replacements for place in replacement.places[:-1]}

    def rewrite(block: Any, position: int, dataflow: bool) -> list[Any] | None:
        place = (identity(block), position)
        if place in dropped:
            return []
        if place not in last:
            return None
        var = block.bindings[position].var
        out = Emitter(str(var.name), dataflow=dataflow)
        out.bind(var, last[place].value(out))
        return out.bindings

    return rebuild(function, rewrite)


def _ops_by_place(function: relax.Function) -> Mapping[Place, str]:
    return {
        (identity(block), position): op_name(getattr(binding, "value", None))
        for block in blocks_of(function.body)
        for position, binding in enumerate(block.bindings)
    }


def _known_op(name: str) -> str:
    """TVM's full name of an operator."""
    full = name if name.startswith("relax.") else f"relax.{name}"
    if full not in tvm.ir.Op.list_op_names():
        raise OptionError(f"option ops: {name!r} is no operator of Relax: they are named as nn.conv2d")
    return full


def _known_axis(axis: Direction) -> Direction:
    if axis not in DIRECTIONS:
        raise OptionError(f"option axes: {axis!r} is none of {', '.join(DIRECTIONS)}")
    return axis
