"""``SplitOversized``: operators that do not fit, as chunks that do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm import relay

from tvm_sramtile.errors import DoesNotFit, OptionError, SramtileError, UnsupportedOp
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.options import Options
from tvm_sramtile.plan import DIRECTIONS, Capacity, Direction, SpecCapacity, cut_in_slices, judge, takes_several
from tvm_sramtile.relay.access import op_name
from tvm_sramtile.relay.decide import Decision, decide_function, load_spec, raise_refusals, with_kind
from tvm_sramtile.relay.emit import body_is_chunked, chunked_step, region_function, sliceable
from tvm_sramtile.relay.functions import Names, exchange, plain_functions, typed_copy, with_constants, with_text_attrs
from tvm_sramtile.relay.graph import Edits, Graph, Lookup, Node, graph_of, placed
from tvm_sramtile.relay.read import Found, find_steps

DEFAULT_OPS = (
    "nn.conv2d",
    "nn.conv2d_transpose",
    "nn.max_pool2d",
    "nn.avg_pool2d",
    "image.resize2d",
    "nn.upsampling",
)


@tvm.transform.module_pass(opt_level=0, name="SplitOversized")
class SplitOversized:
    """A pass that cuts each operator that overflows a small memory into chunks that fit.

    * Inline, the operator alone becomes slices, operators on these with their own pads, sums of sub-kernels, and
      concatenations of finished chunks: plain Relay for any target and any back end. What fits is left as it is, so
      the pass run twice is the pass run once.
    * With ``outline=True`` each operator that is cut becomes, with its epilogue, one function that takes the whole
      weight as a parameter and carries region and plan as attributes. ``PartitionForSramtile`` takes it over; Relay's
      virtual machine runs it as it is (its graph executor takes no calls of functions).

    Functions of back ends (``Compiler``) and functions outlined before are left alone.

    Args:
        capacity_or_spec: what fits: a rule of your own (see ``plan.Capacity``), or an accelerator of ours: a spec, a
            preset's name, or a file's path. ``None`` is ``edge-256k``.
        options: how to plan; ``max_unrolled_chunks`` limits outlined bodies only.
        outline: see above.
        ops: the operators to look at by TVM's names, as ``nn.conv2d``. By default convolutions, plain and transposed,
            ``nn.max_pool2d``, ``nn.avg_pool2d``, ``image.resize2d`` and ``nn.upsampling``. Others that can be cut are
            ``nn.dense`` and elementwise operators.
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
        typed = typed_copy(mod)
        if self.outline and self.spec is not None and self.options.on_refusal == "error":
            raise_refusals(typed, self.spec, self.options)
        names = Names(typed)
        changed: dict[Any, Any] = {}
        for var, function in plain_functions(typed).items():
            graph = graph_of(function.body)
            if self.outline and self.spec is not None:
                edits = self._outlined(graph, self.spec, names, changed)
            else:
                edits = self._inline(graph)
            if edits.replace:
                changed[var] = edits.apply(function, graph)
        return exchange(typed, changed) if changed else mod

    def _outlined(self, graph: Graph, spec: AcceleratorSpec, names: Names, changed: dict[Any, Any]) -> Edits:
        edits = Edits()
        for decision in decide_function(graph, spec, self.options, constants=False):
            if decision.is_split and op_name(decision.found.nodes[0]) in self.ops:
                target, function = outlined_function(decision, names)
                changed[target] = function
                edits.take(decision.found.nodes, call_of_decision(target, decision))
        return edits

    def _inline(self, graph: Graph) -> Edits:
        edits = Edits()
        for found in find_steps(graph, epilogue=False):
            if op_name(found.root) not in self.ops:
                continue
            made = self._split(found)
            if isinstance(made, SramtileError):
                if self.options.on_refusal == "error":
                    raise made
            elif made is not None:
                edits.take(found.nodes, made)
        return edits

    def _split(self, found: Found) -> Callable[[Lookup], Node] | SramtileError | None:
        """What makes the chunks of an operator; ``None`` where it fits."""
        capacity, prefix = self.capacity, f"{found.kind} {found.name}: "
        step = found.step
        if step is None:
            return UnsupportedOp(prefix + (found.refusal or "each of its parts is copied by itself"))
        verdict = judge(step)
        if not verdict.ok:
            return UnsupportedOp(prefix + verdict.reason)
        try:
            cut = cut_in_slices(step, capacity, self.options, self.axes, sliceable)
        except DoesNotFit as error:
            return DoesNotFit(with_kind(str(error), found))
        if not takes_several(step, cut, capacity.unit_kernels):
            return None

        def chunks(lookup: Lookup) -> Node:
            operands = {name: placed(node, lookup) for name, node in found.operands.items()}
            return chunked_step(
                step, cut, operands, capacity.unit_kernels, lambda tile: capacity.charge(step, tile).fits
            )

        return chunks


def outlined_function(decision: Decision, names: Names) -> tuple[Any, Any]:
    """A global variable and its function, which computes a region from its run-time operands."""
    attributes = decision.attributes(names.fresh(decision.found.kind))
    literals = {str(tensor.digest): decision.found.operands[tensor.name] for tensor in attributes.region.constants}
    function = region_function(attributes, literals, chunked=body_is_chunked(attributes))
    function = with_constants(with_text_attrs(function, attributes.to_attrs()), literals.values())
    return relay.GlobalVar(attributes.region.name), function


def call_of_decision(target: Any, decision: Decision) -> Callable[[Lookup], Node]:
    """Makes the call of a region on the operands of what it stands for."""
    region = decision.region
    if region is None:
        raise ValueError(f"{decision.found.kind} {decision.found.name} has no region")
    return call_of(target, [decision.found.operands[tensor.name] for tensor in region.inputs])


def call_of(target: Any, operands: Sequence[Node]) -> Callable[[Lookup], Node]:
    """Makes a call of a global function on what stands for some nodes."""
    return lambda lookup: relay.Call(target, [placed(node, lookup) for node in operands])


def _known_op(name: str) -> str:
    if name not in tvm.ir.Op.list_op_names():
        raise OptionError(f"option ops: {name!r} is no operator of Relay: they are named as nn.conv2d")
    return name


def _known_axis(axis: Direction) -> Direction:
    if axis not in DIRECTIONS:
        raise OptionError(f"option axes: {axis!r} is none of {', '.join(DIRECTIONS)}")
    return axis
