"""What compiled libraries must stand: first calls from many threads, and each other in one process."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
from conformance.cases import CASES
from conformance.grammar import Array, Case, conv

THREADS, LOADS = 8, 50

STRIDED = next(case for case in CASES if case.name == "a09_stride_2")
TWO = (replace(STRIDED, name="a18_first"), replace(STRIDED, name="a18_second"))
"""The same but for the weights."""
LARGE = conv("a18_large_weights", (1, 2048, 2, 2), (1024, 2048, 1, 1), 16 << 20, 1)
LARGE_BYTES = 8 << 20

X = TWO[0].values()["x"]

ONE_POSITION = (
    "(1x4x12x10): not even 1 row, 1 column and 4 channels of output fit test-256: weights 576 + input 144 + output 16 "
    "= 736 B in pool, 480 B more than its 256 B. What would help: sram_bytes of at least 736"
)
"""What is said of the case ``one_position_too_much``."""

Call = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class Generation:
    """What the tests of deployed libraries need of a TVM.

    Attributes:
        front: the front end.
        graphs: the suite's builder of graphs.
        load: a library from its file.
        call_of: a call of a loaded library. Calls share no state of TVM's, so that each thread can have one of its own.
        load_source: source of a function ``load(path)``, which returns a call.
        convolution: the name that a convolution called "conv" has in messages.
    """

    front: Any
    graphs: Any
    load: Callable[[Path], Any]
    call_of: Callable[[Any], Call]
    load_source: str
    convolution: str


def result_of(case: Case) -> Array:
    """What a case of ``TWO`` makes of ``X``."""
    found: Array = case.run({**case.values(), "x": X})["conv"]
    return found


def first_calls(library: Path, load: Callable[[Path], Sequence[Call]]) -> list[Array]:
    """The results of the very first calls, which the threads make together, of many fresh loads.

    Args:
        library: a file.
        load: a call for each thread, all of one loaded library.
    """
    results: list[Array] = []
    with ThreadPoolExecutor(THREADS) as threads:
        for number in range(LOADS):
            copy = library.with_name(f"{number}.so")  # the loader takes the same file for the same library
            shutil.copy(library, copy)
            together = Barrier(THREADS)

            def first(call: Call, together: Barrier = together) -> Array:
                together.wait()
                return call(X)

            results += threads.map(first, load(copy))
            copy.unlink()
    return results


_FRESH = """
import sys
sys.modules["tvm_sramtile"] = None  # as if it were not installed
import numpy as np
import tvm
{load}
x = np.load(sys.argv[1])
calls = [load(path) for path in sys.argv[3:]]
np.savez(sys.argv[2], *(call(x) for _ in range(2) for call in calls))
"""


def interleaved_in_a_new_process(load: str, libraries: Sequence[Path], directory: Path) -> list[Array]:
    """What two calls of each library yield, in turns.

    Args:
        load: source of a function ``load(path)``, which returns a call.
        libraries: files.
        directory: for the arrays.
    """
    given, found = directory / "x.npy", directory / "found.npz"
    np.save(given, X)
    command = [sys.executable, "-c", _FRESH.format(load=load), *map(str, (given, found, *libraries))]
    subprocess.run(command, check=True, cwd=directory)
    with np.load(found) as arrays:
        return [arrays[f"arr_{at}"] for at in range(2 * len(libraries))]
