"""The command line: ``sramtile`` and ``python -m tvm_sramtile``.

Exit status: 0 ok; 1 a result differs or nothing could be done; 2 wrong use.
"""

from __future__ import annotations

import sys

from tvm_sramtile.errors import ModelError, OptionError, SpecError, SramtileError

OK, FAILED, WRONG_USE = 0, 1, 2


def main() -> None:
    """The entry point: every error of ours is one line on stderr."""
    try:
        from tvm_sramtile.cli.commands import app
    except ModuleNotFoundError as missing:  # the base install has no terminal libraries
        sys.exit(f"error: {missing.name} is not installed: run pip install 'tvm_sramtile[cli]'")
    try:
        app()
    except SramtileError as error:
        sys.stderr.write(f"error: {' '.join(str(error).split())}\n")
        sys.exit(WRONG_USE if isinstance(error, SpecError | OptionError | ModelError) else FAILED)
