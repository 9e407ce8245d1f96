"""The wheel holds what the package needs at run time, whether built from the tree or from the source archive."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from readme import ROOT

SOURCES = ("setup.py", "pyproject.toml", "README.md", "LICENSE", "tvm_sramtile")
NOT_PACKAGED = {".pyc"}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy to build in: a build leaves files behind, and files left behind find their way into the next wheel."""
    tree = tmp_path_factory.mktemp("tree")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, tree / name)
    return tree


def build_wheel(source: Path, target: Path) -> Path:
    # No isolation: the tests need no network; setuptools comes with the extra `test`.
    options = ["--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--wheel-dir", str(target)]
    run([sys.executable, "-m", "pip", "wheel", *options, str(source)], target)
    (wheel,) = target.glob("*.whl")
    return wheel


def run(command: list[str], directory: Path) -> str:
    result = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if name.startswith("tvm_sramtile/")}


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tree, tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_every_file_of_the_package(tree: Path, wheel: Path) -> None:
    expected = {
        path.relative_to(tree).as_posix()
        for path in (tree / "tvm_sramtile").rglob("*")
        if path.is_file() and path.suffix not in NOT_PACKAGED
    }
    assert contents(wheel) == expected
    assert wheel.name == "tvm_sramtile-0.1.0-py3-none-any.whl"


@pytest.mark.parametrize(
    ("folder", "suffix"), [("engine/src", ".c"), ("engine/src", ".h"), ("hw/presets", ".json"), ("", "py.typed")]
)
def test_the_wheel_holds_data_of_each_kind(wheel: Path, folder: str, suffix: str) -> None:
    prefix = f"tvm_sramtile/{folder}"
    assert any(name.startswith(prefix) and name.endswith(suffix) for name in contents(wheel))


def test_the_source_archive_builds_the_same_wheel(tree: Path, wheel: Path, tmp_path: Path) -> None:
    run([sys.executable, "setup.py", "-q", "sdist", "--dist-dir", str(tmp_path)], tree)
    (archive,) = tmp_path.glob("*.tar.gz")
    assert contents(build_wheel(archive, tmp_path)) == contents(wheel)


def test_the_installed_wheel_reads_its_presets(wheel: Path, tmp_path: Path) -> None:
    options = ["--no-deps", "--no-index", "--quiet", "--disable-pip-version-check", "--target", str(tmp_path)]
    run([sys.executable, "-m", "pip", "install", *options, str(wheel)], tmp_path)
    script = tmp_path / "try.py"  # its own folder comes first on the path, before the editable install
    script.write_text(
        "from tvm_sramtile import hw\nprint(hw.__file__, hw.AcceleratorSpec.preset('edge-256k').sram_bytes)\n",
        encoding="utf-8",
    )
    place, sram_bytes = run([sys.executable, str(script)], tmp_path).split()
    assert Path(place).is_relative_to(tmp_path)
    assert sram_bytes == "262144"
