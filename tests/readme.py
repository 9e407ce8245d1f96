r"""Runs the README's code blocks, so that what it shows is true.

A comment before a fence says in which environments the block runs::

    <!-- test: relax -->
    ```console
    $ sramtile specs
    edge-256k  ...
    ```

* The environments are `core`, `relax` and `relay` (several: `<!-- test: relax relay -->`). A block that cannot be run
  has `<!-- test: none, REASON -->`. Every `python`, `console` and `sh` block needs a mark: none is skipped in silence.
* A `console` block has commands after `$ ` (go on after `\` with `> `) and below each its output, in which `...` stands
  for anything. No output written: only the exit status counts. A `sh` block is a script. Both fail with the first
  command that does.
* A `python` block is a program of its own, or with `<!-- test: relax, continued -->` a part of the one before it.
* The blocks of one environment run in order in one directory, which sees all that the checkout has at its top.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ("core", "relax", "relay")
RUNNABLE = ("python", "console", "sh")
TIMEOUT_SECONDS = 900

_FENCE = re.compile(
    r"(?:^<!-- test: (?P<mark>.*?) -->\n)?^```(?P<language>\w+)[^\n]*\n(?P<source>.*?)^```$", re.MULTILINE | re.DOTALL
)


class ReadmeError(AssertionError):
    """A block that is not marked as it must be, fails, or prints something else than it shows."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its first line in the file, and where it runs."""

    language: str
    line: int
    source: str
    environments: tuple[str, ...]
    continued: bool


def read_blocks(text: str) -> list[Block]:
    """All runnable blocks of a Markdown text; a block without a right mark is an error."""
    blocks = []
    for match in _FENCE.finditer(text):
        if match["language"] in RUNNABLE:
            line = text.count("\n", 0, match.start("source")) + 1
            environments, continued = _read_mark(match["mark"], line)
            blocks.append(Block(match["language"], line, match["source"], environments, continued))
    return blocks


def _read_mark(mark: str | None, line: int) -> tuple[tuple[str, ...], bool]:
    if mark is None:
        raise ReadmeError(f"line {line}: the block has no mark <!-- test: ... --> on the line before its fence")
    names, _, rest = (part.strip() for part in mark.partition(","))
    if names == "none" and rest:
        return (), False
    environments = tuple(names.split())
    if not environments or not set(environments) <= set(ENVIRONMENTS) or rest not in ("", "continued"):
        raise ReadmeError(
            f"line {line}: the mark '{mark}' is none of 'none, REASON', or one or more of {', '.join(ENVIRONMENTS)} "
            "and perhaps ', continued'"
        )
    return environments, rest == "continued"


def run_readme(environment: str, directory: Path, readme: Path = ROOT / "README.md") -> None:
    """Runs the blocks of one environment with the Python that runs now, in a new directory."""
    for entry in ROOT.iterdir():
        if not entry.name.startswith("."):
            (directory / entry.name).symlink_to(entry)
    blocks = [block for block in read_blocks(readme.read_text(encoding="utf-8")) if environment in block.environments]
    for block in _joined(blocks):
        _run_block(block, directory, f"{readme.name}:{block.line}")


def _joined(blocks: list[Block]) -> Iterator[Block]:
    """Makes continued Python blocks one program, every statement on the line that it has in the file."""
    program: Block | None = None
    for block in blocks:
        if block.language == "python" and block.continued and program is not None:
            gap = block.line - program.line - program.source.count("\n")
            program = replace(program, source=program.source + "\n" * gap + block.source)
            continue
        if program is not None:
            yield program
            program = None
        if block.continued:
            raise ReadmeError(f"line {block.line}: a continued block must follow a python block of its environment")
        if block.language == "python":
            program = block
        else:
            yield block
    if program is not None:
        yield program


def _run_block(block: Block, directory: Path, place: str) -> None:
    if block.language == "python":
        script = directory / "readme_block.py"
        script.write_text("\n" * (block.line - 1) + block.source, encoding="utf-8")
        _execute([sys.executable, str(script)], directory, place)
    elif block.language == "sh":
        _execute(["bash", "-euo", "pipefail", "-c", block.source], directory, place)
    else:
        for command, expected in _console_commands(block.source, place):
            output = _execute(["bash", "-euo", "pipefail", "-c", command], directory, f"{place}: {command}")
            if expected.strip() and not _matches(expected, output):
                raise ReadmeError(f"{place}: {command}\nshown:\n{expected}\nprinted:\n{output}")


def _console_commands(source: str, place: str) -> Iterator[tuple[str, str]]:
    # The text before the first "$ " must be empty; after it, each part is a command, its continuations, and its output.
    first, *parts = re.split(r"^\$ ", source, flags=re.MULTILINE)
    if first.strip() or not parts:
        raise ReadmeError(f"{place}: a console block starts with '$ ' and a command")
    for part in parts:
        command, newline, output = part.partition("\n")
        while command.endswith("\\") and output.startswith("> "):
            line, newline, output = output.removeprefix("> ").partition("\n")
            command += newline + line
        yield command, output


def _execute(command: list[str], directory: Path, place: str) -> str:
    # The programs of the environment that runs the test come first; a wide terminal, so that no table is broken.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    environment = {**os.environ, "PATH": path, "COLUMNS": "160", "NO_COLOR": "1"}
    result = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    if result.returncode != 0:
        raise ReadmeError(f"{place}: exit status {result.returncode}\n{result.stdout}\n{result.stderr}")
    return result.stdout


def _matches(shown: str, printed: str) -> bool:
    pattern = ".*?".join(re.escape(part) for part in _tidy(shown).split("..."))
    return re.fullmatch(pattern, _tidy(printed), flags=re.DOTALL) is not None


def _tidy(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
