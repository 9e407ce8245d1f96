from __future__ import annotations

import pytest

from tvm_sramtile.errors import MissingDependency
from tvm_sramtile.frontend import require_tvm


def test_this_environment_is_for_relax() -> None:
    assert hasattr(require_tvm("relax"), "IRModule")


def test_it_is_not_for_relay() -> None:
    with pytest.raises(
        MissingDependency, match=r"in another virtual environment, run pip install 'tvm_sramtile\[relay\]'"
    ):
        require_tvm("relay")
