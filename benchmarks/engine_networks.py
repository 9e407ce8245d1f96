"""Whole networks, for ``benchmarks/engine.py``."""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import tvm
from engine_layers import one_thread
from tvm import relax

from tvm_sramtile import models
from tvm_sramtile import relax as front
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.relax.runner import compile_partitioned

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "networks"))

import fetch

WARM_UP = 2


@dataclass(frozen=True, slots=True)
class NetworkTime:
    """Medians in milliseconds of one network.

    Attributes:
        stock_ms: TVM's default build of the same module; ``None`` where it does not compile.
        host: the part of our time that each function on the host takes, the largest first.
    """

    name: str
    ours_ms: float
    onnxruntime_ms: float
    stock_ms: float | None
    host: tuple[tuple[str, float], ...]

    @property
    def ratio(self) -> float:
        """Our time over onnxruntime's."""
        return self.ours_ms / self.onnxruntime_ms

    @property
    def speedup(self) -> float | None:
        """The stock build's time over ours."""
        return None if self.stock_ms is None else self.stock_ms / self.ours_ms


def float_networks() -> list[str]:
    """The ids of all float32 networks of networks.json."""
    return [name for name, network in fetch.registry().items() if network.kind == "float32"]


def measure_networks(names: Iterable[str], spec: AcceleratorSpec, rounds: int, *, stock: bool) -> Iterator[NetworkTime]:
    """Each network, ours and onnxruntime's in turns; TVM's default build, which is much slower, by itself."""
    for name in names:
        shapes = {key: shape for key, (shape, _) in fetch.registry()[name].inputs.items()}
        model = models.prepare(fetch.path_of(name), shapes)
        inputs = models.random_inputs(model, 0)
        mod = front.import_onnx(model.proto, model.input_shapes)
        partitioned = front.partition_for_sramtile(mod, spec)
        machine = relax.VirtualMachine(compile_partitioned(partitioned), tvm.cpu())
        arguments = [tvm.runtime.tensor(np.ascontiguousarray(inputs[str(p.name)])) for p in partitioned["main"].params]
        session = onnxruntime.InferenceSession(model.proto.SerializeToString(), one_thread())

        def ours(machine: Any = machine, arguments: list[Any] = arguments) -> None:
            machine["main"](*arguments)

        def theirs(session: Any = session, inputs: Any = inputs) -> None:
            session.run(None, inputs)

        mine, other = _in_turns(rounds, ours, theirs)
        regions = {attributes.region.name for attributes in front.regions(partitioned)}
        host = _host_shares(machine, ours, regions)
        stock_ms = _stock_ms(mod, arguments) if stock else None
        yield NetworkTime(name, mine, other, stock_ms, host)


def _in_turns(rounds: int, *functions: Callable[[], None]) -> list[float]:
    """The median of each function in milliseconds."""
    seconds: list[list[float]] = [[] for _ in functions]
    for turn in range(-WARM_UP, rounds):
        for index, function in enumerate(functions):
            start = time.perf_counter()
            function()
            if turn >= 0:
                seconds[index].append(time.perf_counter() - start)
    return [1e3 * statistics.median(each) for each in seconds]


def _host_shares(machine: Any, run: Callable[[], None], regions: set[str]) -> tuple[tuple[str, float], ...]:
    """The part of the time of each function that is no region, as the virtual machine's instrument sees it."""
    spent: Counter[str] = Counter()
    started: list[float] = []

    def instrument(function: Any, name: str, before: bool, result: Any, *arguments: Any) -> int:
        del function, result, arguments
        if before:
            started.append(time.perf_counter())
        else:
            spent[name] += time.perf_counter() - started.pop()
        return 0  # go on

    machine.set_instrument(instrument)
    for _ in range(5):
        run()
    total = sum(spent.values())
    return tuple((name, seconds / total) for name, seconds in spent.most_common() if name not in regions)


def _stock_ms(mod: Any, arguments: list[Any]) -> float | None:
    try:
        machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    except Exception as error:  # TVM raises errors of many types
        sys.stderr.write(f"TVM's default build does not compile it: {str(error).splitlines()[-1]}\n")
        return None
    return _in_turns(1, lambda: machine["main"](*arguments))[0]
