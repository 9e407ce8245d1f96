"""Compile options: what is allowed, and the whole text of each error."""

from __future__ import annotations

from typing import Any

import pytest

from tvm_sramtile.errors import OptionError
from tvm_sramtile.options import Options


def test_defaults() -> None:
    assert Options() == Options("search", "dram_bytes", "best", True, "host", None)


def test_replace_leaves_the_rest() -> None:
    options = Options(on_refusal="error").replace(double_buffer=False, max_unrolled_chunks=3)
    assert options == Options(on_refusal="error", double_buffer=False, max_unrolled_chunks=3)


LIMIT = "must be a positive integer or None"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"strategy": "best"}, "option strategy = 'best': must be one of 'search', 'seed'"),
        ({"strategy": ["seed"]}, "option strategy = ['seed']: must be one of 'search', 'seed'"),
        ({"objective": "energy"}, "option objective = 'energy': must be one of 'dram_bytes', 'cycles'"),
        ({"kernel_split": "both"}, "option kernel_split = 'both': must be one of 'seed', 'best'"),
        ({"on_refusal": "raise"}, "option on_refusal = 'raise': must be one of 'host', 'error'"),
        ({"on_refusal": None}, "option on_refusal = None: must be one of 'host', 'error'"),
        ({"double_buffer": 1}, "option double_buffer = 1: must be one of True, False"),
        ({"double_buffer": "yes"}, "option double_buffer = 'yes': must be one of True, False"),
        ({"max_unrolled_chunks": 0}, f"option max_unrolled_chunks = 0: {LIMIT}"),
        ({"max_unrolled_chunks": True}, f"option max_unrolled_chunks = True: {LIMIT}"),
        ({"max_unrolled_chunks": 2.0}, f"option max_unrolled_chunks = 2.0: {LIMIT}"),
        (
            {"unrolled": 3},
            "option 'unrolled' is unknown: allowed are strategy, objective, kernel_split, double_buffer, on_refusal, "
            "max_unrolled_chunks",
        ),
    ],
)
def test_errors_by_their_whole_text(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError) as caught:
        Options().replace(**changes)
    assert str(caught.value) == text
