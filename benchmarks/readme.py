"""Writes the real output that the README shows: ``python benchmarks/readme.py`` in an environment with Relax.

The block then is a test: the README's suite runs the command again and compares. What differs from machine to machine,
the size of rounding differences, is left open as ``...``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMAND = "sramtile run networks/cache/mtcnn_pnet.onnx --spec tiny-64k --shape input_1=1,128,128,3"
BEGIN, END = "<!-- demo: made by benchmarks/readme.py -->\n", "<!-- end of demo -->"
_DIFFERENCE = re.compile(r"\d\.\d+e[-+]\d\d")


def main() -> None:
    """Run the command and put its output into the README."""
    subprocess.run([sys.executable, "networks/fetch.py", "mtcnn_pnet"], cwd=ROOT, check=True, capture_output=True)
    arguments = [sys.executable, "-m", "tvm_sramtile", *COMMAND.split()[1:]]
    text = subprocess.run(arguments, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    output = "\n".join(_DIFFERENCE.sub("...", line).rstrip() for line in text.strip().splitlines())
    fetched = "$ python networks/fetch.py mtcnn_pnet\n.../mtcnn_pnet.onnx"
    block = f"<!-- test: relax -->\n```console\n{fetched}\n$ {COMMAND}\n{output}\n```\n"
    readme = ROOT / "README.md"
    before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    readme.write_text(before + BEGIN + block + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
