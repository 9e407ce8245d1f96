from __future__ import annotations

from pathlib import Path

import pytest
from readme import ROOT, Block, ReadmeError, read_blocks, run_readme


def test_readme_blocks_run(tmp_path: Path) -> None:
    run_readme("core", tmp_path)


def test_every_block_of_the_readme_is_marked() -> None:
    read_blocks((ROOT / "README.md").read_text(encoding="utf-8"))


def run(text: str, tmp_path: Path, environment: str = "core") -> None:
    readme = tmp_path / "README-under-test.md"
    readme.write_text(text, encoding="utf-8")
    directory = tmp_path / "work"
    directory.mkdir()
    run_readme(environment, directory, readme)


def block(language: str, source: str, mark: str = "core") -> str:
    return f"Text.\n\n<!-- test: {mark} -->\n```{language}\n{source}\n```\n"


def test_read_blocks() -> None:
    text = block("python", "a = 1") + block("text", "ignored") + block("sh", "true", "none, needs a board")
    assert read_blocks(text) == [
        Block("python", 5, "a = 1\n", ("core",), continued=False),
        Block("sh", 17, "true\n", (), continued=False),
    ]


def test_blocks_share_a_directory_and_continued_ones_a_program(tmp_path: Path) -> None:
    run(
        block("python", "import tvm_sramtile\nx = 1")
        + block("sh", "exit 1", "relax")
        + block("python", "open('made', 'w').write(str(x))", "core, continued")
        + block("console", "$ cat made\n1\n$ echo a \\\n> b; echo; echo 7.5 ms\na b\n\n... ms\n$ echo unseen")
        + block("sh", "ls README.md setup.py"),
        tmp_path,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```python\npass\n```\n", "line 2: the block has no mark"),
        (block("python", "pass", "relex"), "line 5: the mark 'relex' is none of"),
        (block("python", "pass", "none"), "line 5: the mark 'none' is none of"),
        (block("python", "pass", "core, continued"), "line 5: a continued block must follow"),
        (block("console", "ls"), ":5: a console block starts with"),
        (block("console", "$ echo two\none"), "shown:\none\n\nprinted:\ntwo"),
        (block("console", "$ false\n$ true"), ":5: false: exit status 1"),
        (block("sh", "false\ntrue"), ":5: exit status 1"),
        (block("python", "x = 1") + block("python", "x.y", "core, continued"), 'readme_block.py", line 11'),
    ],
)
def test_what_is_wrong_fails(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ReadmeError) as caught:
        run(text, tmp_path)
    assert message in str(caught.value)
