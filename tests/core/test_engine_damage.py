"""Programs with random damage, in a process of their own: they may end in an error, but not end the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

_DAMAGE = """
import sys
from core.engine_damage import run_damaged
print(*run_damaged(int(sys.argv[1]), int(sys.argv[2])))
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_damaged_programs_are_refused_or_run(seed: int) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    done = subprocess.run(
        [sys.executable, "-c", _DAMAGE, str(seed), "2000"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    refused, ran = (int(word) for word in done.stdout.split())
    assert refused + ran == 2000
    assert min(refused, ran) > 50, "damage that never, or always, shows tests little"
