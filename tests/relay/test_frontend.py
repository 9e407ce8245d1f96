from __future__ import annotations

import pytest

from tvm_sramtile.errors import MissingDependency
from tvm_sramtile.frontend import require_tvm


def test_this_environment_is_for_relay() -> None:
    assert hasattr(require_tvm("relay"), "IRModule")


def test_it_is_not_for_relax() -> None:
    with pytest.raises(
        MissingDependency, match=r"in another virtual environment, run pip install 'tvm_sramtile\[relax\]'"
    ):
        require_tvm("relax")
