"""The faults of deployed libraries, in Relay."""

from __future__ import annotations

from typing import Any

import pytest
import relay_graphs as graphs
import tvm
from conformance.deployed import Call, Generation
from conformance.deployed_tests import *  # noqa: F403 (the tests)
from conformance.grammar import Array
from tvm.contrib import graph_executor

from tvm_sramtile import relay as front

LOAD = """
from tvm.contrib import graph_executor
def load(path):
    executor = graph_executor.GraphModule(tvm.runtime.load_module(path)["default"](tvm.cpu()))
    def call(x):
        executor.run(x=x)
        return executor.get_output(0).numpy()
    return call
"""


def call_of(library: Any) -> Call:
    """An executor has one set of tensors: each call has an executor of its own."""
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))

    def call(x: Array) -> Array:
        executor.run(x=tvm.nd.array(x))
        return executor.get_output(0).numpy()

    return call


@pytest.fixture
def tvm_of() -> Generation:
    return Generation(front, graphs, lambda path: tvm.runtime.load_module(str(path)), call_of, LOAD, "conv2d_0")
