from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tvm_sramtile import frontend
from tvm_sramtile.errors import MissingDependency
from tvm_sramtile.frontend import Generation, require_tvm

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts stand-ins of TVM distributions into an environment that has none."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "tvm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)

    def write(*distributions: str, modules: tuple[str, ...] = (), init: str = "__version__ = '9.9'") -> None:
        for distribution in distributions:
            folder = tmp_path / f"{distribution.replace('-', '_')}-9.9.dist-info"
            folder.mkdir()
            (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 9.9\n")
        for module in ("tvm", *modules):
            folder = tmp_path.joinpath(*module.split("."))
            folder.mkdir()
            (folder / "__init__.py").write_text(init if module == "tvm" else "")

    return write


@pytest.fixture(autouse=True)
def forget_stand_ins() -> Iterator[None]:
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "tvm"]:
        del sys.modules[name]


def message(generation: Generation) -> str:
    with pytest.raises(MissingDependency) as caught:
        require_tvm(generation)
    return str(caught.value)


def test_no_tvm() -> None:
    assert message("relax") == (
        "tvm is not installed: run pip install 'tvm_sramtile[relax]', which brings a TVM with today's Relax "
        "(apache-tvm 0.26 or newer)"
    )
    assert "run pip install 'tvm_sramtile[relay]'" in message("relay")


@pytest.mark.parametrize(
    ("generation", "modules"), [("relax", ("tvm.relax", "tvm.tirx")), ("relay", ("tvm.relay", "tvm.relax"))]
)
def test_the_right_tvm_is_returned(generation: Generation, modules: tuple[str, ...], install: Install) -> None:
    install(modules=modules)
    assert require_tvm(generation).__version__ == "9.9"


def test_relay_is_gone_from_new_tvm(install: Install) -> None:
    install("apache-tvm", modules=("tvm.relax", "tvm.tirx"))
    assert message("relay") == (
        "tvm 9.9 has no tvm.relay: the relay front end needs a TVM with Relay (0.11 to 0.19, or hhb-tvm 3.2.3 "
        "from PyPI under Python 3.10); in another virtual environment, run pip install 'tvm_sramtile[relay]', since "
        "two TVMs cannot share one"
    )


def test_relax_of_an_old_tvm_is_not_taken(install: Install) -> None:
    install("hhb-tvm", modules=("tvm.relay", "tvm.relax"))
    assert message("relax").startswith("tvm 9.9 has no tvm.tirx: the relax front end needs a TVM with today's Relax")


def test_both_distributions(install: Install) -> None:
    install("apache-tvm", "hhb-tvm", modules=("tvm.relax", "tvm.tirx", "tvm.relay"))
    for generation in frontend._MARKS:
        assert message(generation) == (
            "apache-tvm and hhb-tvm are both installed, but exclude each other: both install a package 'tvm', and each "
            "has written over files of the other; make a new virtual environment and run pip install "
            f"'tvm_sramtile[{generation}]' there, and nothing of the other extra"
        )


def test_a_tvm_that_does_not_import(install: Install) -> None:
    install(init="raise AttributeError('module tvm_ffi has no attribute x')")
    assert message("relax") == (
        "tvm is installed but cannot be imported (AttributeError: module tvm_ffi has no attribute x): make a new "
        "virtual environment and run pip install 'tvm_sramtile[relax]' there"
    )
