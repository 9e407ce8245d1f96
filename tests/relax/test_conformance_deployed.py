"""The faults of deployed libraries, in Relax."""

from __future__ import annotations

from typing import Any

import pytest
import relax_graphs as graphs
import tvm
from conformance.deployed import Call, Generation
from conformance.deployed_tests import *  # noqa: F403 (the tests)
from tvm import relax

from tvm_sramtile import relax as front

LOAD = """
from tvm import relax
def load(path):
    machine = relax.VirtualMachine(tvm.runtime.load_module(path), tvm.cpu())
    return lambda x: machine["main"](tvm.runtime.tensor(x)).numpy()
"""


def call_of(library: Any) -> Call:
    """A machine has one stack: each call has a machine of its own."""
    machine = relax.VirtualMachine(library, tvm.cpu())
    return lambda x: machine["main"](tvm.runtime.tensor(x)).numpy()


@pytest.fixture
def tvm_of() -> Generation:
    return Generation(front, graphs, lambda path: tvm.runtime.load_module(str(path)), call_of, LOAD, "conv")
