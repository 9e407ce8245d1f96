from __future__ import annotations

from pathlib import Path

from readme import run_readme


def test_readme_blocks_run(tmp_path: Path) -> None:
    run_readme("relax", tmp_path)
