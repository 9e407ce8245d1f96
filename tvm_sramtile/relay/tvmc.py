"""TVM's own driver ``tvmc`` with ``sramtile`` as a composite target.

``python -m tvm_sramtile.relay.tvmc compile MODEL --target "sramtile -spec=edge-256k, llvm" -o out.tar`` is ``tvmc
compile``, and every other command of ``tvmc`` is handed over as it stands. Options of the target: ``spec`` (a preset or
a file), any key of the accelerator spec, and any compile option: ``-sram_bytes=65536``, ``-strategy=seed``.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import json
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm.driver.tvmc import TVMCException, composite_target
from tvm.driver.tvmc import main as driver

from tvm_sramtile.errors import MissingDependency, OptionError, SramtileError
from tvm_sramtile.hw.spec import AcceleratorSpec
from tvm_sramtile.options import Options
from tvm_sramtile.relay.local_session import mend_local_session
from tvm_sramtile.relay.module import host_triple
from tvm_sramtile.relay.onnx_names import provide_onnx_names

TARGET = "sramtile"
DEFAULT_SPEC = "edge-256k"
USAGE_STATUS = 4
"""What ``tvmc`` itself exits with on wrong use."""


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """What the options of the target mean."""

    spec: AcceleratorSpec
    options: Options


def main(arguments: Sequence[str]) -> int:
    """Run ``tvmc`` with these arguments, the target's options checked beforehand; returns the exit status."""
    try:
        rewritten, texts = split_arguments(arguments)
        register(texts)
    except SramtileError as error:
        sys.stderr.write(f"Error: {error}\n")
        return USAGE_STATUS
    return _run_driver(rewritten)


def register(defaults: Mapping[str, str] | None = None) -> None:
    """Make ``tvmc`` know the target in this process, also for ``tvm.driver.tvmc.compile`` from Python.

    Args:
        defaults: options that hold where the target string does not give them.

    Raises:
        SramtileError: a default that is wrong.
    """
    read_settings(defaults or {})
    with contextlib.suppress(MissingDependency):  # other model formats work without onnx
        provide_onnx_names()
    pipeline = functools.partial(_partition, dict(defaults or {}))
    composite_target.REGISTERED_CODEGEN[TARGET] = {"config_key": None, "pass_pipeline": pipeline}


def read_settings(texts: Mapping[str, Any]) -> TargetSettings:
    """The spec and options that the target's options mean; values are JSON where they parse as that, else text.

    Raises:
        SramtileError: an unknown option, or a wrong value.
    """
    spec_keys = set(AcceleratorSpec.model_fields) - {"name"}
    option_keys = set(Options.__dataclass_fields__)
    allowed = ["spec", *sorted(spec_keys), *sorted(option_keys)]
    for key in texts:
        if key not in allowed:
            near = difflib.get_close_matches(key, allowed, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise OptionError(f"target {TARGET}: option {key!r} is unknown{hint}: options are {', '.join(allowed)}")
    values = {key: _value(text) for key, text in texts.items() if key != "spec"}
    spec = AcceleratorSpec.load(str(texts.get("spec", DEFAULT_SPEC)))
    return TargetSettings(
        spec.replace(**{key: value for key, value in values.items() if key in spec_keys}),
        Options().replace(**{key: value for key, value in values.items() if key in option_keys}),
    )


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Take the options of ``sramtile`` out of ``--target``: the arguments for ``tvmc``, and the options.

    ``tvmc`` would lose part of them without a word, for example the slashes of a path. An ``llvm`` without a triple is
    given this machine's, since the default of some TVMs is another machine's.
    """
    rewritten = list(arguments)
    options: dict[str, str] = {}
    has_triple = any(argument.startswith("--target-llvm-mtriple") for argument in arguments)
    for index, argument in enumerate(arguments):
        if index and arguments[index - 1] == "--target":
            rewritten[index] = _rewrite_target(argument, options, has_triple)
        elif argument.startswith("--target="):
            rewritten[index] = "--target=" + _rewrite_target(argument.removeprefix("--target="), options, has_triple)
    return rewritten, options


def _rewrite_target(target: str, options: dict[str, str], has_triple: bool) -> str:
    if target.lstrip().startswith("{") or os.path.isfile(target):  # noqa: PTH113 - a long target is no legal path
        return target  # tvmc takes JSON and files of it, for TVM's own targets only
    sections = _sections(target)
    for index, section in enumerate(sections):
        name = section.split(maxsplit=1)[0] if section.strip() else ""
        if name == TARGET:
            options.update(_read_section(section))
            sections[index] = TARGET
        elif name == "llvm" and "-mtriple" not in section and not has_triple:
            sys.stderr.write(f"{TARGET}: llvm without -mtriple: taking this machine's, {host_triple()}\n")
            sections[index] = section.replace("llvm", f"llvm -mtriple={host_triple()}", 1)
    return ",".join(sections)


def _sections(target: str) -> list[str]:
    """Split at the commas outside quotes and brackets."""
    return re.findall(r"""(?:"[^"]*"|'[^']*'|\[(?:[^\[\]]|\[[^\[\]]*\])*\]|[^,])+""", target) or [target]


def _read_section(section: str) -> dict[str, str]:
    try:
        words = shlex.split(section)[1:]
    except ValueError as error:
        raise OptionError(f"target {section.strip()!r}: {error}") from None
    options: dict[str, str] = {}
    for word in words:
        match = re.fullmatch(r"--?([A-Za-z]\w*)=(.+)", word, re.DOTALL)
        if match is None:
            raise OptionError(f"target {section.strip()!r}: {word!r} is not of the form -option=value")
        if match[1] in options:
            raise OptionError(f"target {section.strip()!r}: option {match[1]!r} is given twice")
        options[match[1]] = match[2]
    return options


def _value(text: Any) -> Any:
    try:
        return json.loads(text)
    except (ValueError, TypeError):
        return text


def _partition(
    defaults: Mapping[str, str], module: Any, params: Any = None, mod_name: str = "default", **options: Any
) -> Any:
    """What ``tvmc`` calls: partition a module as the target's options say."""
    # Here, because no other command of tvmc needs the compiler.
    from tvm_sramtile.relay.partition import partition_for_sramtile
    from tvm_sramtile.relay.prepare import parameter_names

    del mod_name  # names the library, not the regions
    try:
        settings = read_settings({**defaults, **options})
        # Importers hand over values of parameters that they have not used in the end.
        used = {name: value for name, value in (params or {}).items() if name in parameter_names(module)}
        return partition_for_sramtile(module, settings.spec, settings.options, params=used)
    except SramtileError as error:
        raise TVMCException(str(error)) from error


def _run_driver(arguments: Sequence[str]) -> int:
    mend_local_session()
    before = sys.argv
    sys.argv = ["tvmc", *arguments]
    try:
        driver.main()
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    finally:
        sys.argv = before
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
