"""Regions that become one where a map between them can stay in SRAM."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Region, Step, Tensor
from tvm_sramtile.options import Options
from tvm_sramtile.plan.plan import Plan
from tvm_sramtile.plan.planner import plan_region


@dataclass(frozen=True, slots=True)
class Call:
    """One value of a front end's function, or several, made of others; all are numbered.

    Attributes:
        reads, makes: what it is made of, and what it makes.
        region, plan: if the accelerator makes it: ``reads`` are the region's inputs, ``makes`` its outputs.
    """

    reads: tuple[int, ...]
    makes: tuple[int, ...]
    region: Region | None = None
    plan: Plan | None = None


@dataclass(frozen=True, slots=True)
class Merged:
    """Several calls as one.

    Attributes:
        calls: which they were, in order.
        region, plan: what they are now; without a name yet.
        reads, makes: the values that the region's inputs and outputs are.
    """

    calls: tuple[int, ...]
    region: Region
    plan: Plan
    reads: tuple[int, ...]
    makes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Merge:
    """What became of a function's calls.

    Attributes:
        merged: calls that became one.
        order: all calls in an order in which those that are merged stand together, and operands before their users.
    """

    merged: tuple[Merged, ...]
    order: tuple[int, ...]


def merge_regions(calls: Sequence[Call], results: Collection[int], spec: AcceleratorSpec, options: Options) -> Merge:
    """Make one region of neighbours, as often as less traffic comes of it.

    A region and one that makes what it reads become one if what lies between them does not depend on the one and make
    for the other (the graph stays without circles), if they have the same batch and agree on the tensors between them,
    and if the plan of both together moves less, because maps stay in SRAM.

    Args:
        calls: the function's, operands before their users.
        results: the values that are wanted outside.
        spec: the accelerator.
        options: how the regions were planned, and are again.
    """
    graph = _Graph.of(calls, results)
    found: dict[int, Merged] = {}
    for index, call in enumerate(calls):
        if call.region is None or options.strategy == "seed":
            continue
        for before in graph.neighbours(index):
            members = tuple(sorted({*graph.groups[before], *graph.groups[index]}))
            merged = _merged(calls, graph, members) if graph.is_convex(members) else None
            if merged is None:
                continue
            region, reads, makes = merged
            plan = plan_region(region, spec, options)
            apart = sum(_moved(calls, found, graph.groups[one]) for one in (before, index))
            if plan.traffic.total_bytes < apart:
                graph.join(members)
                found[members[0]] = Merged(members, region, plan, reads, makes)
    kept = {first: one for first, one in found.items() if graph.groups[first] == one.calls}
    return Merge(tuple(kept.values()), graph.order())


def _moved(calls: Sequence[Call], found: Mapping[int, Merged], members: tuple[int, ...]) -> int:
    plan = calls[members[0]].plan if len(members) == 1 else found[members[0]].plan
    return 0 if plan is None else plan.traffic.total_bytes


@dataclass(slots=True)
class _Graph:
    """Who reads what, and which calls have become one."""

    calls: Sequence[Call]
    makers: Mapping[int, int]  # by value
    readers: Mapping[int, tuple[int, ...]]
    results: frozenset[int]
    groups: list[tuple[int, ...]] = field(default_factory=list)

    @staticmethod
    def of(calls: Sequence[Call], results: Collection[int]) -> _Graph:
        makers = {value: index for index, call in enumerate(calls) for value in call.makes}
        readers: dict[int, list[int]] = {}
        for index, call in enumerate(calls):
            for value in dict.fromkeys(call.reads):
                readers.setdefault(value, []).append(index)
        known = {value: tuple(found) for value, found in readers.items()}
        return _Graph(calls, makers, known, frozenset(results), [(index,) for index in range(len(calls))])

    def before(self, members: Iterable[int]) -> Iterator[int]:
        """The calls that make what these read."""
        for member in members:
            for value in self.calls[member].reads:
                if value in self.makers:
                    yield self.makers[value]

    def neighbours(self, index: int) -> Iterator[int]:
        """Regions of the same batch that make what a call reads, the last one first; of each group but one."""
        region = self.calls[index].region
        for before in sorted(set(self.before((index,))), reverse=True):
            other = self.calls[before].region
            alike = region is not None and other is not None and region.images == other.images
            if alike and before not in self.groups[index]:
                yield before

    def is_convex(self, members: tuple[int, ...]) -> bool:
        """Whether nothing that depends on one of these makes something for another."""
        inside, seen = set(members), set[int]()
        stack = [maker for maker in self.before(members) if maker not in inside]
        while stack:
            group = self.groups[stack.pop()]
            if group[0] in seen:
                continue
            seen.add(group[0])
            for maker in self.before(group):
                if maker in inside:
                    return False
                stack.append(maker)
        return True

    def join(self, members: tuple[int, ...]) -> None:
        """These are one from now on."""
        for member in members:
            self.groups[member] = members

    def escapes(self, value: int, members: Collection[int]) -> bool:
        """Whether somebody else wants a value that one of these makes."""
        return value in self.results or any(reader not in members for reader in self.readers.get(value, ()))

    def order(self) -> tuple[int, ...]:
        """See ``Merge.order``: each group where its last call stood, or as early as its results are needed."""
        done: dict[int, None] = {}
        for index in range(len(self.calls)):
            if index != self.groups[index][-1]:
                continue
            stack = [(self.groups[index], False)]
            while stack:
                group, is_ready = stack.pop()
                if group[0] in done:
                    continue
                if is_ready:
                    done.update(dict.fromkeys(group))
                    continue
                stack.append((group, True))
                needed = {self.groups[maker] for maker in self.before(group)} - {group}
                stack.extend((one, False) for one in sorted(needed, reverse=True))
        return tuple(done)


def _merged(
    calls: Sequence[Call], graph: _Graph, members: tuple[int, ...]
) -> tuple[Region, tuple[int, ...], tuple[int, ...]] | None:
    """The region of several calls, with the values of its inputs and outputs; ``None`` if they see one differently."""
    names, values = _Names(), dict[int, Tensor]()
    steps: list[Step] = []
    for member in members:
        call, region = calls[member], calls[member].region
        if region is None:
            return None
        known: dict[str, Tensor] = {}
        ends = (*zip(region.inputs, call.reads, strict=True), *zip(region.outputs, call.makes, strict=True))
        for tensor, value in ends:
            if value not in values:
                values[value] = replace(tensor, name=names.new(tensor.name))
            if replace(tensor, name="") != replace(values[value], name=""):
                return None
            known[tensor.name] = values[value]
        steps += [_renamed(step, known, names) for step in region.steps]
    made = [value for member in members for value in calls[member].makes]
    reads = tuple(dict.fromkeys(value for member in members for value in calls[member].reads if value not in made))
    makes = tuple(value for value in made if graph.escapes(value, members))
    inputs, outputs = (tuple(values[value] for value in ends) for ends in (reads, makes))
    return Region("", inputs, outputs, tuple(steps)), reads, makes


@dataclass(slots=True)
class _Names:
    """Names that differ."""

    taken: set[str] = field(default_factory=set)

    def new(self, name: str) -> str:
        """This name, or one like it."""
        found, number = name, 1
        while found in self.taken:
            found, number = f"{name}_{number}", number + 1
        self.taken.add(found)
        return found


def _renamed(step: Step, known: dict[str, Tensor], names: _Names) -> Step:
    """The step with the tensors that are ``known``, and new names for all others, which become known."""

    def tensor(one: Tensor) -> Tensor:
        if one.name not in known:
            known[one.name] = replace(one, name=names.new(one.name))
        return known[one.name]

    return replace(step.with_inputs(tensor), name=names.new(step.name), output=tensor(step.output))
