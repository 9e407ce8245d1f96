"""Writes the corpus of `make sanitize`: small programs of every command, by hand, at random, and compiled.

python tests/sanitize/corpus.py FOLDER
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from core.engine_programs import Chip, Conv, conv_program
from core.engine_random import conv_case, copy_case, eltwise_case, map_case, pool_case, resize_case, weights_case
from core.whole_chips import whole_case

from tvm_sramtile.compile import compile_region
from tvm_sramtile.isa import encode

MAKERS = (map_case, copy_case, weights_case, conv_case, pool_case, resize_case, eltwise_case)
CONVOLUTIONS = (Conv(8, 5, 6, 8), Conv(12, 6, 15, 12, groups=12), Conv(6, 4, 4, 10, groups=2))
MOST_BYTES = 1 << 17


def programs() -> Iterator[bytes]:
    for lanes in (1, 4, 8, 16):
        for op in CONVOLUTIONS:
            yield encode(conv_program(Chip(lanes), op, bias=True, clip=(0.0, 6.0), passes=2))
    for make in MAKERS:
        for seed in range(20):
            yield encode(make(seed).program)
    for seed in range(40):
        case, spec, options = whole_case(seed)
        yield compile_region(case.region, spec, options, case.constants).code


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for index, code in enumerate(code for code in programs() if len(code) <= MOST_BYTES):
        (folder / f"{index:04d}.bin").write_bytes(code)


if __name__ == "__main__":
    main()
