from __future__ import annotations

import pytest

from tvm_sramtile.relay import codegen


@pytest.fixture(autouse=True)
def real_back_end() -> None:
    """Some tests register a stand-in."""
    codegen.register()
