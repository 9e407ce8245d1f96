"""Random regions on fresh seeds, until so many have run: ``python tests/fuzz.py SUITE [--seed SEED] [--count COUNT]``.

``core`` has no TVM: the numpy reference and the engine against the oracle. ``relax`` and ``relay`` run each region in
three ways: as it is, and as a user's module that is read, partitioned and verified. A case is what its seed says, the
same as in the tests, so that a failure is reproduced by the seed alone.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import count, islice
from typing import Any

from core.whole_chips import whole_case
from core.whole_method import check


@dataclass(frozen=True, slots=True)
class Suite:
    """What is run of a suite.

    Attributes:
        cases: how many, where nothing is said.
        together: how many are run at once.
        draw: the case of a seed; ``None`` where it is none for this suite.
        run: some cases; raises where something does not hold.
    """

    cases: int
    together: int
    draw: Callable[[int], Any]
    run: Callable[[Sequence[Any]], object]


def suite(name: str) -> Suite:
    if name == "core":
        return Suite(2000, 100, lambda seed: seed, lambda seeds: [check(*whole_case(seed)) for seed in seeds])
    front = import_module(f"{name}_three_ways")
    cases, together, most_pieces = {"relax": (120, 20, 24), "relay": (48, 8, 10)}[name]

    def run(regions: Sequence[Any]) -> None:
        front.check_all(regions)
        for region in regions:
            front.check_read(region)

    return Suite(cases, together, lambda seed: front.drawn(seed, most_pieces), run)


def drawn(chosen: Suite, first_seed: int) -> Iterator[tuple[int, Any]]:
    """Cases and their seeds, without end."""
    for seed in count(first_seed):
        try:
            case = chosen.draw(seed)
        except Exception as error:
            raise Failed(seed, 1) from error
        if case is not None:
            yield seed, case


class Failed(Exception):
    """The cases that fail: ``count`` from ``seed`` on."""

    def __init__(self, seed: int, count: int) -> None:
        super().__init__(seed, count)
        self.seed, self.count = seed, count


def run_group(chosen: Suite, group: Sequence[tuple[int, Any]]) -> None:
    """Run cases at once; where they fail, one by one, to see which."""
    try:
        chosen.run([case for _, case in group])
    except Exception as error:
        for seed, case in group if len(group) > 1 else ():
            try:
                chosen.run([case])
            except Exception as own:
                raise Failed(seed, 1) from own
        raise Failed(group[0][0], len(group)) from error


def command(suite: str, seed: int, count: int) -> str:
    return f"make fuzz SUITES={suite} SEED={seed} COUNT={count}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", choices=("core", "relax", "relay"))
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**9), help="the first; a new one each time")
    parser.add_argument("--count", type=int, help="how many cases are run")
    wanted = parser.parse_args()
    chosen = suite(wanted.suite)
    total, done, start = wanted.count or chosen.cases, 0, time.monotonic()
    print(f"fuzz {wanted.suite}: SEED={wanted.seed} COUNT={total}", flush=True)
    cases = islice(drawn(chosen, wanted.seed), total)
    try:
        while group := list(islice(cases, chosen.together)):
            again = command(wanted.suite, group[0][0], len(group))  # before, should native code crash
            print(f"  {done} run; next: {again}", flush=True)
            run_group(chosen, group)
            done += len(group)
    except Failed as failed:
        traceback.print_exception(failed.__cause__)
        sys.exit(f"to see it again: {command(wanted.suite, failed.seed, failed.count)}")
    how = "by the reference and the engine" if wanted.suite == "core" else "in three ways"
    print(f"fuzz {wanted.suite}: {done} cases run {how}, all right, in {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
