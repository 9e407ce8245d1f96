"""Which generation of TVM is installed, found without importing it until it is needed."""

from __future__ import annotations

import importlib
from importlib import metadata, util
from typing import Any, Literal

from tvm_sramtile.errors import MissingDependency

Generation = Literal["relax", "relay"]

# What only that generation has. TVM 0.15 to 0.19 has a `tvm.relax` too, but not the one served here, whose TIR lives in
# `tvm.tirx`.
_MARKS: dict[Generation, tuple[str, ...]] = {"relax": ("tvm.relax", "tvm.tirx"), "relay": ("tvm.relay",)}
_WANTED: dict[Generation, str] = {
    "relax": "a TVM with today's Relax (apache-tvm 0.26 or newer)",
    "relay": "a TVM with Relay (0.11 to 0.19, or hhb-tvm 3.2.3 from PyPI under Python 3.10)",
}
# Distributions that install a package `tvm`, and the extra that brings them.
_DISTRIBUTIONS: dict[str, Generation] = {"apache-tvm": "relax", "hhb-tvm": "relay"}


def require_tvm(generation: Generation) -> Any:
    """Imports and returns `tvm`, after making sure that it is of the given generation.

    Raises `MissingDependency` where there is no TVM, where it is of the other generation, where two distributions have
    written over each other, and where it does not import.
    """
    installed = [name for name in _DISTRIBUTIONS if _is_installed(name)]
    if len(installed) > 1:
        raise MissingDependency(
            f"{' and '.join(installed)} are both installed, but exclude each other: both install a package 'tvm', and "
            f"each has written over files of the other; make a new virtual environment and {_install(generation)} "
            "there, and nothing of the other extra"
        )
    if util.find_spec("tvm") is None:
        raise MissingDependency(f"tvm is not installed: {_install(generation)}, which brings {_WANTED[generation]}")
    tvm = _import_tvm(generation)
    missing = [name for name in _MARKS[generation] if util.find_spec(name) is None]
    if missing:
        raise MissingDependency(
            f"tvm {getattr(tvm, '__version__', 'of unknown version')} has no {missing[0]}: the {generation} front end "
            f"needs {_WANTED[generation]}; in another virtual environment, {_install(generation)}, since two TVMs "
            "cannot share one"
        )
    return tvm


def _is_installed(distribution: str) -> bool:
    try:
        metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


def _import_tvm(generation: Generation) -> Any:
    try:
        return importlib.import_module("tvm")
    except Exception as error:  # a TVM beside unfitting packages fails in many ways
        raise MissingDependency(
            f"tvm is installed but cannot be imported ({type(error).__name__}: {error}): make a new virtual "
            f"environment and {_install(generation)} there"
        ) from error


def _install(generation: Generation) -> str:
    return f"run pip install 'tvm_sramtile[{generation}]'"
