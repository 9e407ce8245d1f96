"""Object files, made with the system's C compiler and cached: the engine for a deployed library, and for ctypes."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tvm_sramtile.errors import ToolchainError

ENGINE_SOURCES = Path(__file__).parent / "src"
"""The engine's C sources; its public header is ``engine.h``."""

ENGINE_FLAGS = (
    "-std=gnu11",
    "-O3",
    "-fPIC",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-semantic-interposition",
    "-pthread",
)
"""How the engine is compiled. No ``-march=native``: a library may be deployed on another machine."""

CACHE_VARIABLE = "SRAMTILE_CACHE_DIR"


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler: its command line, and what ``--version`` says of it."""

    command: tuple[str, ...]
    identity: str

    def run(self, arguments: Sequence[str], directory: Path) -> None:
        """Compile in a directory; a ``ToolchainError`` ends with the compiler's messages."""
        _execute([*self.command, *arguments], directory)

    def program(self, name: str) -> str:
        """Path of a binary utility of the compiler's own toolchain, as ``ld`` or ``objcopy``.

        Raises:
            ToolchainError: there is none.
        """
        answer = _execute([*self.command, f"-print-prog-name={name}"], Path.cwd()).strip()
        found = shutil.which(answer) or shutil.which(name) or shutil.which(f"llvm-{name}")
        if found is None:
            raise ToolchainError(
                f"{shlex.join(self.command)} has no {name}: install the binary utilities (package binutils)"
            )
        return found


def find_compiler() -> Compiler:
    """The system's C compiler: ``$CC``, else cc, gcc or clang on the PATH.

    Raises:
        ToolchainError: there is none, or what ``$CC`` names cannot be run.
    """
    chosen = os.environ.get("CC", "").strip()
    if chosen:
        command = tuple(shlex.split(chosen))
        if shutil.which(command[0]) is None:
            raise ToolchainError(f"CC={chosen}: no such program; set CC to a C compiler such as gcc or clang")
        return Compiler(command, _identity(command))
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name) is not None:
            return Compiler((name,), _identity((name,)))
    raise ToolchainError(
        "no C compiler found: looked for cc, gcc and clang on the PATH; install one "
        "(for example: apt install gcc) or set CC to its path"
    )


def engine_object(sources: Path = ENGINE_SOURCES) -> Path:
    """The engine as one position-independent object file, compiled once and cached.

    All its symbols are hidden, so that libraries with different engines can be loaded side by side, and weak, so that
    several copies can be linked into one library (Relay brings one for each region).

    Raises:
        ToolchainError: no compiler, or it failed, or the cache cannot be written.
    """
    flags = (*ENGINE_FLAGS, "-fvisibility=hidden")

    def build(compiler: Compiler, directory: Path, output: str) -> None:
        parts = _compile_all(compiler, sources, flags, directory)
        _execute([compiler.program("ld"), "-r", "-o", output, *parts], directory)
        # By name, not --weaken: that would also weaken what the engine takes from libc, and a missing function
        # would be a null pointer at run time instead of an error of the linker.
        _execute([compiler.program("objcopy"), "--wildcard", "--weaken-symbol=sramtile_*", output], directory)

    return _cached("engine", ".o", sources, flags, build)


def engine_library(sources: Path = ENGINE_SOURCES) -> Path:
    """The engine as a shared library, for use through ctypes; compiled once and cached.

    Raises:
        ToolchainError: as ``engine_object``.
    """

    def build(compiler: Compiler, directory: Path, output: str) -> None:
        parts = _compile_all(compiler, sources, ENGINE_FLAGS, directory)
        compiler.run(["-shared", "-pthread", "-o", output, *parts, "-lm"], directory)

    return _cached("libsramtile", ".so", sources, ENGINE_FLAGS, build)


def _compile_all(compiler: Compiler, sources: Path, flags: Sequence[str], directory: Path) -> list[str]:
    """Compile each source to an object of its name in a directory, as many at a time as there are processors."""

    def compile_one(file: Path) -> str:
        compiler.run([*flags, "-c", str(file.resolve()), "-o", f"{file.stem}.o"], directory)
        return f"{file.stem}.o"

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(compile_one, _c_files(sources)))


def _c_files(sources: Path) -> list[Path]:
    files = sorted(sources.glob("*.c"))
    if not files:
        raise ToolchainError(f"{sources}: no C sources of the engine here; the installation is incomplete")
    return files


def _identity(command: tuple[str, ...]) -> str:
    return _execute([*command, "--version"], Path.cwd())


def _execute(command: Sequence[str], directory: Path) -> str:
    # The compiler's messages are quoted in errors: keep them in one language.
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, errors="replace")
    except OSError as problem:
        raise ToolchainError(f"{command[0]} cannot be run: {problem}") from problem
    if done.returncode != 0:
        tail = "\n".join(done.stderr.strip().splitlines()[-20:])
        raise ToolchainError(f"{shlex.join(command)} failed with status {done.returncode}:\n{tail}")
    return done.stdout


def _cached(
    stem: str,
    suffix: str,
    sources: Path,
    flags: Sequence[str],
    build: Callable[[Compiler, Path, str], None],
) -> Path:
    """The file from the cache; made first where it is missing.

    Racing processes may both build it; each moves a complete file into place, so a reader never sees half of one.
    """
    compiler = find_compiler()
    directory = _cache_directory()
    path = directory / f"{stem}-{_key(compiler, sources, flags)}{suffix}"
    if not path.exists():
        with scratch(directory) as building:
            build(compiler, building, path.name)
            (building / path.name).replace(path)
    return path


def _key(compiler: Compiler, sources: Path, flags: Sequence[str]) -> str:
    """A hash of everything that decides what the compiler makes."""
    parts = [compiler.identity, *compiler.command, *flags, platform.machine()]
    digest = hashlib.sha256("\0".join(parts).encode())
    for file in sorted([*_c_files(sources), *sources.glob("*.h")]):
        content = file.read_bytes()
        digest.update(f"\0{file.name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:20]


def _cache_directory() -> Path:
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        named = Path(chosen).expanduser().absolute()
        if not _usable(named):
            raise ToolchainError(f"{CACHE_VARIABLE}={chosen}: cannot write there; name a directory that is writable")
        return named
    usual = _user_cache()
    if usual is not None and _usable(usual):
        return usual
    # Read-only homes are common in containers. The directory's name can be guessed by others, so it must be our own.
    fallback = Path(tempfile.gettempdir()) / f"tvm_sramtile-{os.getuid()}"
    if _usable(fallback) and fallback.lstat().st_uid == os.getuid() and not fallback.is_symlink():
        return fallback
    raise ToolchainError(f"neither {usual} nor {fallback} can be written: set {CACHE_VARIABLE} to a directory")


def _user_cache() -> Path | None:
    base = os.environ.get("XDG_CACHE_HOME", "")
    if Path(base).is_absolute():  # The XDG specification has relative paths ignored.
        return Path(base) / "tvm_sramtile"
    try:
        return Path.home() / ".cache" / "tvm_sramtile"
    except RuntimeError:  # A user without a home.
        return None


def _usable(directory: Path) -> bool:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return True
    except OSError:
        return False


@contextmanager
def scratch(directory: Path) -> Iterator[Path]:
    """A working directory on the same file system, so that what is made in it can be renamed into place."""
    try:
        made = tempfile.TemporaryDirectory(dir=directory, prefix=".building-")
    except OSError as problem:
        raise ToolchainError(f"{directory}: cannot write there: {problem.strerror}") from problem
    with made as name:
        yield Path(name)
