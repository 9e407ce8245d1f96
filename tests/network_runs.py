"""Real networks verified, for the suites that have a TVM: what must hold of each, and a table of what came of it."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

from readme import ROOT

from tvm_sramtile import models
from tvm_sramtile.frontend import Array
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.options import Options
from tvm_sramtile.report import HostGroup
from tvm_sramtile.verify import Verification, verify

SPECS = ("tiny-64k", "edge-256k")
CONVOLUTIONS = ("nn.conv2d", "nn.conv2d_transpose")
LEAST_SHARE = 0.95

#: Chunked subgraphs of more chunks than this are not built: TVM would compile some of them for many minutes.
MOST_CHUNKS_UNDER_TVM = 256


@dataclass(frozen=True, slots=True)
class Network:
    """A network ready to run; TVM's own outputs are computed once, for all specs.

    Attributes:
        front: the front end, its ``run_host`` giving these outputs.
    """

    id: str
    front: Any
    mod: Any
    inputs: Mapping[str, Array]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A network on an accelerator."""

    network: str
    spec: str
    found: Verification
    chunked: bool
    seconds: float

    @property
    def share(self) -> float:
        """The part of all multiply-accumulates that the accelerator does."""
        report = self.found.report
        return report.accelerator_macs / max(1, report.accelerator_macs + report.host_macs)

    @property
    def problems(self) -> list[str]:
        """What does not hold, one line each."""
        found, report = self.found, self.found.report
        lines = [f"output {o.name}: {o.max_abs_diff:.2e} > {o.tolerance:.2e}" for o in found.outputs if not o.ok]
        lines += [f"region {region}" for region in found.regions if not region.ok]
        lines += [f"on the host: {_group(group)}" for group in report.host_ops if group.op in CONVOLUTIONS]
        lines += [f"no reason: {_group(group)}" for group in report.host_ops if not group.reason]
        if not found.outputs or not found.regions:
            lines.append("nothing was compared")
        if self.share < LEAST_SHARE:
            lines.append(f"{self.share:.1%} of the MACs on the accelerator")
        return [f"{self.network} on {self.spec}: {line}" for line in lines]


@cache
def fetch_module() -> ModuleType:
    """``networks/fetch.py``."""
    spec = importlib.util.spec_from_file_location("networks_fetch", ROOT / "networks" / "fetch.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


def float_networks() -> tuple[str, ...]:
    """All networks of networks.json that compute in float32."""
    return tuple(name for name, network in fetch_module().registry().items() if network.kind == "float32")


def load_network(front: Any, id: str) -> Network:
    """Fetch, prepare and import a network, and run it under TVM; inputs are random, the same every time."""
    fetch = fetch_module()
    shapes = {name: shape for name, (shape, _) in fetch.registry()[id].inputs.items()}
    model = models.prepare(fetch.path_of(id), shapes)
    inputs = models.random_inputs(model, 0)
    mod = front.import_onnx(model.proto, model.input_shapes)
    return Network(id, with_known_outputs(front, front.run_host(mod, inputs)), mod, inputs, tuple(model.outputs))


def with_known_outputs(front: Any, outputs: tuple[Array, ...]) -> Any:
    """The front end, for which TVM has already run the network."""
    known = ModuleType(front.__name__)
    known.__dict__.update({name: getattr(front, name) for name in front.__all__})
    known.__dict__["run_host"] = lambda mod, inputs: outputs
    return known


def run_network(network: Network, spec: str, *, chunked: bool | None = None) -> Row:
    """Verify a network; the chunked subgraphs too where they are asked for, or are few."""
    chip, start = AcceleratorSpec.preset(spec), time.monotonic()
    if chunked is None:
        attributes = network.front.regions(network.front.partition_for_sramtile(network.mod, chip))
        chunked = sum(region.plan.chunk_count for region in attributes) <= MOST_CHUNKS_UNDER_TVM
    found = verify(network.front, network.mod, network.inputs, network.outputs, chip, Options(), chunked=chunked)
    return Row(network.id, spec, found, chunked, time.monotonic() - start)


def table(rows: Iterable[Row]) -> list[str]:
    """One line for each row, and below it what stays on the host."""
    head = f"{'network':19}{'spec':10}{'steps':>6}{'chunks':>7}{'three ways':>11}{'MACs':>7}{'cycles':>14}"
    lines = [f"{head}{'DRAM bytes':>15}{'seconds':>8}"]
    for row in rows:
        report = row.found.report
        chunks = sum(len(step.chunks) for step in report.steps)
        lines.append(
            f"{row.network:19}{row.spec:10}{len(report.steps):>6}{chunks:>7}{'yes' if row.chunked else 'no':>11}"
            f"{row.share:>7.1%}{report.cycles:>14,}{report.dram_bytes:>15,}{row.seconds:>8.1f}"
        )
        lines += [f"    on the host: {_group(group)}" for group in report.host_ops]
    return lines


def _group(group: HostGroup) -> str:
    macs = f" ({group.macs:,} MACs)" if group.macs else ""
    return f"{group.count} x {group.op}{macs}: {group.reason}"
