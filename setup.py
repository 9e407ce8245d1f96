"""How tvm_sramtile is built and what it needs. Tool settings are in pyproject.toml."""

from pathlib import Path

from setuptools import find_packages, setup

# Both generations of TVM install a package `tvm`, so their extras must never meet in one environment. Opposite bounds
# on numpy make pip itself refuse the pair, before it writes anything (hhb-tvm needs numpy<2; Relax runs with any).
RELAX = ["apache-tvm>=0.26", "numpy>=2"]  # older apache-tvm wheels do not import beside the current apache-tvm-ffi
RELAY = [
    "hhb-tvm==3.2.3",  # exact: the one release on PyPI with Relay and with wheels for CPython 3.10 that we have run
    "numpy<2",
    "tqdm",  # hhb-tvm imports these two, but does not declare them
    "tflite",
]

EXTRAS = {
    "relax": RELAX,
    "relay": RELAY,
    "cli": ["onnx>=1.15", "onnxruntime>=1.17", "onnxslim>=0.1.50", "rich>=13", "typer>=0.12"],
    "test": [
        "hypothesis>=6.100",
        "pip",  # the packaging tests build and install wheels
        "pytest>=8",
        "pytest-xdist>=3.5",
        "setuptools>=77",
    ],
    "dev": [
        "mypy>=1.13",
        "pre-commit>=3",
        "ruff>=0.17,<0.18",  # bounded above: a newer formatter may lay out the same code in another way
    ],
}

setup(
    name="tvm_sramtile",
    version="0.1.0",
    description="TVM passes that split oversized CNN operators to fit an accelerator's SRAM, and a simulated one",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license_expression="Apache-2.0",
    license_files=["LICENSE"],
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: C",
        "Programming Language :: Python :: 3",
        "Topic :: Software Development :: Compilers",
        "Typing :: Typed",
    ],
    python_requires=">=3.10",
    packages=find_packages(include=["tvm_sramtile", "tvm_sramtile.*"]),
    package_data={
        "tvm_sramtile": ["py.typed"],
        "tvm_sramtile.engine": ["src/*.c", "src/*.h"],
        "tvm_sramtile.hw": ["presets/*.json"],
    },
    # The engine is compiled from files beside the package, so it cannot run from a zip.
    zip_safe=False,
    install_requires=["numpy>=1.23", "pydantic>=2"],
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["sramtile = tvm_sramtile.cli:main"]},
)
