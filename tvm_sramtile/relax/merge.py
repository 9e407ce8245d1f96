"""``MergeRegions``: neighbouring regions as one, where a map between them stays in SRAM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

from tvm_sramtile.attributes import RegionAttributes
from tvm_sramtile.plan.merge import Call, Merge, Merged, merge_regions
from tvm_sramtile.relax.access import called_function
from tvm_sramtile.relax.decide import renamed
from tvm_sramtile.relax.emit import body_is_chunked, region_function
from tvm_sramtile.relax.regions import ModuleEdit, Names, attributes_in, is_region, literals_in, without_unused
from tvm_sramtile.relax.walk import Uses, blocks_of, identity, plain_functions, rebuild


@tvm.transform.module_pass(opt_level=0, name="MergeRegions")
class MergeRegions:
    """A pass that makes one region of neighbours, as often as less traffic comes of it: maps stay in SRAM between them.

    For a module that ``PartitionForSramtile`` has made regions in; each carries its spec and its options. Operators
    that the accelerator does not take stay where they are. Planned by the seed's strategy, nothing is merged.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM."""
        regions = {var.name_hint: (var, one) for var, one in mod.functions_items() if is_region(one)}
        if not regions:
            return mod
        merging = _Merging(ModuleEdit(mod), Names.of(mod), regions)
        for var, function in plain_functions(mod):
            merged = merging.function(function)
            if merged is not function:
                merging.edit.replace(var, merged)
        return without_unused(merging.edit.result(), merging.merged)


class _Merging:
    def __init__(self, edit: ModuleEdit, names: Names, regions: Mapping[str, tuple[Any, Any]]) -> None:
        self.edit, self.names = edit, names
        self.merged: set[str] = set()  # regions that became a part of another
        self.functions = {name: function for name, (_, function) in regions.items()}
        self.regions = {name: attributes_in(var, function) for name, (var, function) in regions.items()}

    def function(self, function: relax.Function) -> relax.Function:
        """The function, its regions merged within each dataflow block."""
        uses = Uses.of(function)
        dataflow = [block for block in blocks_of(function.body) if isinstance(block, relax.DataflowBlock)]
        made = {identity(block): self.block(block, uses) for block in dataflow}

        def rewrite(block: Any, position: int, _: bool) -> list[Any] | None:
            bindings = made.get(identity(block))
            return None if bindings is None else [] if position else bindings

        return rebuild(function, rewrite)

    def block(self, block: Any, uses: Uses) -> list[Any] | None:
        """The bindings of a block, regions merged; ``None`` where none are."""
        bindings = list(block.bindings)
        numbers = {identity(binding.var): -1 - index for index, binding in enumerate(bindings)}
        found = [self.attributes(binding) for binding in bindings]
        first = next((one for one in found if one is not None), None)
        if first is None:
            return None
        calls = [
            _call(binding, one if one is not None and _is_like(one, first) else None, numbers)
            for binding, one in zip(bindings, found, strict=True)
        ]
        results = [_value(one.var, numbers) for one in bindings if uses.consumers(one.var, block) in (None, ())]
        merge = merge_regions(calls, results, first.spec, first.options)
        return self.rewritten(bindings, numbers, merge, first) if merge.merged else None

    def attributes(self, binding: Any) -> RegionAttributes | None:
        """The region that a binding calls."""
        called = called_function(getattr(binding, "value", None))
        if called is None or not all(isinstance(argument, relax.Var) for argument in binding.value.args):
            return None
        return self.regions.get(called.name_hint)

    def rewritten(
        self, bindings: Sequence[Any], numbers: Mapping[int, int], merge: Merge, like: RegionAttributes
    ) -> list[Any]:
        """The bindings with merged calls in place of those that they were."""
        last = {one.calls[-1]: one for one in merge.merged}
        gone = {index for one in merge.merged for index in one.calls[:-1]}
        made: list[Any] = []
        for index in merge.order:
            if index in last:
                made += self.call(bindings, numbers, last[index], like)
            elif index not in gone:
                made.append(bindings[index])
        return made

    def call(
        self, bindings: Sequence[Any], numbers: Mapping[int, int], merged: Merged, like: RegionAttributes
    ) -> list[Any]:
        """The call of a merged region, its results bound to the variables that they had."""
        literals: dict[str, Any] = {}
        arguments: dict[int, Any] = {}
        for index in merged.calls:
            value = bindings[index].value
            literals |= literals_in(self.functions[value.op.name_hint])
            arguments |= {_value(argument, numbers): argument for argument in value.args}
            self.merged.add(value.op.name_hint)
        name = self.names.new("merged")
        attributes = renamed(RegionAttributes(merged.region, merged.plan, like.spec, like.options), name)
        function = region_function(attributes, literals, chunked=body_is_chunked(attributes), codegen=True)
        builder = relax.BlockBuilder()
        var = self.edit.add(name, function)
        operands = [arguments[value] for value in merged.reads]
        call = builder.normalize(relax.Call(var, operands))
        outputs = [bindings[-1 - value].var for value in merged.makes]
        if len(outputs) == 1:
            return [relax.VarBinding(outputs[0], call)]
        several = relax.DataflowVar(name, call.ty)
        fields = [builder.normalize(relax.TupleGetItem(several, at)) for at in range(len(outputs))]
        taken = [relax.VarBinding(output, one) for output, one in zip(outputs, fields, strict=True)]
        return [relax.VarBinding(several, call), *taken]


def _call(binding: Any, attributes: RegionAttributes | None, numbers: Mapping[int, int]) -> Call:
    """A binding as the core sees it."""
    makes = (_value(binding.var, numbers),)
    if attributes is None:
        return Call(tuple(_value(var, numbers) for var in relax.analysis.all_vars(binding.value)), makes)
    reads = tuple(_value(argument, numbers) for argument in binding.value.args)
    return Call(reads, makes, attributes.region, attributes.plan)


def _value(var: Any, numbers: Mapping[int, int]) -> int:
    """A variable's number: below 0 for those of the block."""
    return numbers.get(identity(var), abs(identity(var)))


def _is_like(one: RegionAttributes, other: RegionAttributes) -> bool:
    return (one.spec, one.options) == (other.spec, other.options)
