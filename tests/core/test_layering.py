"""Imports point one way, and only the front ends and what drives them need more than the base install."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from readme import ROOT

PACKAGE = "tvm_sramtile"

# Lowest first. Packages of one layer do not import each other.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("ints",),
    ("options",),
    ("hw",),
    ("geometry",),
    ("ir",),
    ("isa",),
    ("plan",),
    ("lower",),
    ("engine",),
    ("compile", "sweep"),
    ("attributes",),
    ("report",),
    ("frontend",),
    ("counting",),
    ("relax", "relay"),
    ("models",),
    ("verify",),
    ("cli",),
    ("__main__",),
    ("__init__",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
FIRST_WITH_TVM = RANK["frontend"]
# Renderers for the terminal, which only the command line imports.
WITH_TERMINAL = {"report": {"rich"}}
BASE_INSTALL = {"numpy", "pydantic", *sys.stdlib_module_names}


def find_violations(package: Path) -> list[str]:
    """What the sources of a package do against the layers, one line each: `file:line: what`."""
    return [
        f"{path.relative_to(package)}:{line}: {problem}"
        for path in sorted(package.rglob("*.py"))
        for line, target in _imports(ast.parse(path.read_text(encoding="utf-8")), _parent_of(path, package))
        if (problem := _problem(_layer_of(path, package), target, package)) is not None
    ]


def _layer_of(path: Path, package: Path) -> str:
    return path.relative_to(package).with_suffix("").parts[0]


def _parent_of(path: Path, package: Path) -> list[str]:
    """The package that a relative import of this file starts from."""
    return [package.name, *path.relative_to(package).parent.parts]


def _imports(tree: ast.Module, parent: list[str]) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of all that is imported, in functions and TYPE_CHECKING blocks too."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                start = parent[: len(parent) - level + 1] if level else []
                base = ".".join([*start, *([module] if module else [])])
                yield from ((node.lineno, f"{base}.{alias.name}") for alias in names)
            case ast.Call(
                func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


def _problem(layer: str, target: str, package: Path) -> str | None:
    if layer not in RANK:
        return f"{layer} has no layer: give it one in LAYERS"
    root, *rest = target.split(".")
    if root != package.name:
        return _foreign_problem(layer, root)
    imported = rest[0] if rest and _is_module(package, rest[0]) else "__init__"
    if imported == layer or RANK.get(imported, -1) < RANK[layer]:
        return None
    return f"{layer} imports {imported}, which is not below it"


def _foreign_problem(layer: str, root: str) -> str | None:
    if root in BASE_INSTALL | WITH_TERMINAL.get(layer, set()) or FIRST_WITH_TVM <= RANK[layer] < RANK["__init__"]:
        return None
    return f"{layer} imports {root}, which the base install does not bring"


def _is_module(package: Path, name: str) -> bool:
    return (package / name).is_dir() or (package / f"{name}.py").is_file()


def test_imports_point_one_way() -> None:
    assert find_violations(ROOT / PACKAGE) == []


def write_tree(root: Path, files: dict[str, str]) -> Path:
    package = root / PACKAGE
    for name in ("errors", "plan", "relax", "relay"):
        (package / name).mkdir(parents=True)
    for name, source in files.items():
        (package / name).write_text(source, encoding="utf-8")
    return package


def test_a_right_tree_is_accepted(tmp_path: Path) -> None:
    files = {
        "__init__.py": "from tvm_sramtile.plan import Plan",
        "cli.py": "import onnx\nfrom tvm_sramtile import relax, relay",
        "plan/search.py": "import numpy\nfrom tvm_sramtile.plan.check import check",
        "plan/bounds.py": "from . import check\nfrom ..errors import E",
        "relax/read.py": "import tvm\nfrom tvm_sramtile.plan import Plan",
    }
    assert find_violations(write_tree(tmp_path, files)) == []


@pytest.mark.parametrize(
    ("file", "source", "problem"),
    [
        ("errors.py", "import tvm_sramtile.plan", "errors imports plan, which is not below it"),
        ("errors.py", "from tvm_sramtile import plan", "errors imports plan, which is not below it"),
        ("errors.py", "from .plan import Plan", "errors imports plan, which is not below it"),
        ("plan/search.py", "from .. import relax", "plan imports relax, which is not below it"),
        ("plan/search.py", "from tvm_sramtile import Plan", "plan imports __init__, which is not below it"),
        ("relax/read.py", "from tvm_sramtile.relay import read", "relax imports relay, which is not below it"),
        ("relay/read.py", "from ..relax import read", "relay imports relax, which is not below it"),
        ("plan/search.py", "def f():\n    import tvm", "plan imports tvm, which the base install does not bring"),
        ("plan/search.py", "import importlib\nimportlib.import_module('tvm.ir')", "plan imports tvm, which the base"),
        ("__init__.py", "from onnx import load", "__init__ imports onnx, which the base install does not bring"),
        ("misc.py", "import os", "misc has no layer"),
    ],
)
def test_a_wrong_tree_is_found(file: str, source: str, problem: str, tmp_path: Path) -> None:
    violations = find_violations(write_tree(tmp_path, {file: source}))
    assert len(violations) == 1
    line = len(source.splitlines())
    assert violations[0].startswith(f"{file}:{line}: {problem}")


def test_importing_the_package_loads_neither_tvm_nor_onnx() -> None:
    code = f"import sys, {PACKAGE}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(result.stdout.split())
    assert PACKAGE in loaded
    assert not loaded & {"tvm", "tvm_ffi", "onnx", "onnxruntime", "onnxslim", "tflite"}
