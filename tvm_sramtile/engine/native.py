"""Object files, made with the system's C compiler: the engine, and one object per compiled set of regions.

What ends up in a deployed library is the engine's object plus one object holding the regions' programs and their
entry stubs. The stubs are plain C, so that both generations of TVM can call them: TVM itself makes the packed function
around them.

* ``int32_t <id>_run(int64_t images, void* t0, ...)`` runs the region's program; on failure it hands the engine's text
  to the TVM runtime and returns nonzero.
* ``int32_t <id>_raise(void)`` returns -1. Called by TVM as a packed function of C (whose arguments it ignores, so it
  suits every version of that convention), it makes TVM raise the text that ``run`` has handed over.
* ``int32_t <id>_counters(int64_t* out)`` copies the region's counters, ``int32_t <id>_reset(int32_t)`` zeroes them.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
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

STUB_FLAGS = ("-std=gnu11", "-O1", "-fPIC", "-fvisibility=hidden")

PROGRAM_ALIGNMENT_BYTES = 64
MESSAGE_BYTES = 1024
CACHE_VARIABLE = "SRAMTILE_CACHE_DIR"

_RUNTIME_HOOKS = """\
#include <stdint.h>
#include <stdio.h>
#include "engine.h"

/* Whichever TVM runtime has loaded this library brings one of these: the first today, the second up to 0.19. */
extern void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message) __attribute__((weak));
extern void TVMAPISetLastError(const char* message) __attribute__((weak));

static void raise_error(const char* region, const char* text) {
  char message[%(message_bytes)d + 512];
  snprintf(message, sizeof message, "sramtile region %%s: %%s", region, text);
  if (TVMFFIErrorSetRaisedFromCStr) {
    TVMFFIErrorSetRaisedFromCStr("RuntimeError", message);
  } else if (TVMAPISetLastError) {
    TVMAPISetLastError(message);
  } else {
    fprintf(stderr, "%%s\\n", message);
  }
}
"""

_REGION = """
__asm__(
    ".pushsection .rodata.%(id)s, \\"a\\", %%progbits\\n"
    ".balign %(alignment)d\\n"
    ".globl %(id)s_program\\n"
    ".hidden %(id)s_program\\n"
    ".type %(id)s_program, %%object\\n"
    "%(id)s_program:\\n"
    ".incbin \\"%(file)s\\"\\n"
    ".size %(id)s_program, . - %(id)s_program\\n"
    ".popsection\\n");
extern const uint8_t %(id)s_program[];
static struct sramtile_counters %(id)s_block;

int32_t %(id)s_run(int64_t images%(parameters)s) {
  void* const tensors[] = {%(arguments)s};
  char message[%(message_bytes)d] = "";
  const int32_t code = sramtile_run(%(id)s_program, UINT64_C(%(program_bytes)d), tensors, %(tensor_count)d, images,
                                    &%(id)s_block, message, (int32_t)sizeof message);
  if (code != 0) raise_error(%(quoted_name)s, message);
  return code;
}

int32_t %(id)s_raise(void) { return -1; }

int32_t %(id)s_counters(int64_t* out) {
  sramtile_counters_read(&%(id)s_block, out);
  return 0;
}

int32_t %(id)s_reset(int32_t unused) {
  (void)unused;
  sramtile_counters_reset(&%(id)s_block);
  return 0;
}
"""


@dataclass(frozen=True, slots=True)
class RegionProgram:
    """What goes into an object: a region's name, its program, and how many tensors a call hands over."""

    name: str
    program: bytes
    tensor_count: int

    @property
    def symbol(self) -> str:
        """Prefix of the region's C symbols: its readable name, and a hash that keeps equal names apart."""
        content = hashlib.sha256(f"{self.name}\0{self.tensor_count}\0".encode() + self.program).hexdigest()
        readable = re.sub(r"[^A-Za-z0-9_]", "_", self.name)[:60]
        return f"sramtile_{readable}_{content[:16]}"


@dataclass(frozen=True, slots=True)
class RegionObject:
    """A region's program and stubs in an object file (which it may share with other regions)."""

    name: str
    path: Path
    tensor_count: int
    run_symbol: str
    raise_symbol: str
    counters_symbol: str
    reset_symbol: str


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
        files = [str(path.resolve()) for path in _c_files(sources)]
        compiler.run([*flags, "-c", *files], directory)
        parts = sorted(path.name for path in directory.glob("*.o"))
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
    flags = (*ENGINE_FLAGS, "-shared")

    def build(compiler: Compiler, directory: Path, output: str) -> None:
        files = [str(path.resolve()) for path in _c_files(sources)]
        compiler.run([*flags, "-o", output, *files, "-lm"], directory)

    return _cached("libsramtile", ".so", sources, flags, build)


def region_object(
    name: str, program: bytes, tensor_count: int, directory: Path, sources: Path = ENGINE_SOURCES
) -> RegionObject:
    """An object file of one region; see ``region_objects``."""
    return region_objects([RegionProgram(name, program, tensor_count)], directory, sources)[0]


def region_objects(
    regions: Sequence[RegionProgram], directory: Path, sources: Path = ENGINE_SOURCES
) -> tuple[RegionObject, ...]:
    """One object file, made by one call of the compiler, with the programs and stubs of all the regions.

    Everything in it is hidden. The object refers to the engine, which must be linked beside it.

    Args:
        regions: names must differ from each other.
        directory: where the object is put; nothing else stays there.
        sources: where ``engine.h`` is.

    Raises:
        ToolchainError: no compiler, or it failed, or the directory cannot be written.
        ValueError: two regions of one name, or a region without tensors.
    """
    _check_regions(regions)
    joined = hashlib.sha256(" ".join(region.symbol for region in regions).encode()).hexdigest()[:16]
    path = directory / f"sramtile_regions_{joined}.o"
    compiler = find_compiler()
    with _scratch(directory) as scratch:
        text = [_RUNTIME_HOOKS % {"message_bytes": MESSAGE_BYTES}]
        for index, region in enumerate(regions):
            # A name relative to the working directory: no path needs quoting in assembly.
            (scratch / f"program{index}.bin").write_bytes(region.program)
            text.append(_region_source(region, f"program{index}.bin"))
        (scratch / "regions.c").write_text("".join(text), encoding="ascii")
        compiler.run([*STUB_FLAGS, f"-I{sources.resolve()}", "-c", "regions.c", "-o", path.name], scratch)
        (scratch / path.name).replace(path)
    return tuple(_described(region, path) for region in regions)


def _check_regions(regions: Sequence[RegionProgram]) -> None:
    names = [region.name for region in regions]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"region name {repeated[0]!r} stands for two regions: names must differ")
    for region in regions:
        if region.tensor_count < 1:
            raise ValueError(f"region {region.name!r}: tensor_count = {region.tensor_count}, must be at least 1")


def _region_source(region: RegionProgram, file: str) -> str:
    tensors = [f"t{index}" for index in range(region.tensor_count)]
    return _REGION % {
        "id": region.symbol,
        "alignment": PROGRAM_ALIGNMENT_BYTES,
        "file": file,
        "parameters": "".join(f", void* {tensor}" for tensor in tensors),
        "arguments": ", ".join(tensors),
        "message_bytes": MESSAGE_BYTES,
        "program_bytes": len(region.program),
        "tensor_count": region.tensor_count,
        "quoted_name": _c_string(region.name),
    }


def _described(region: RegionProgram, path: Path) -> RegionObject:
    symbol = region.symbol
    return RegionObject(
        name=region.name,
        path=path,
        tensor_count=region.tensor_count,
        run_symbol=f"{symbol}_run",
        raise_symbol=f"{symbol}_raise",
        counters_symbol=f"{symbol}_counters",
        reset_symbol=f"{symbol}_reset",
    )


def _c_string(text: str) -> str:
    """A C literal of UTF-8 bytes; octal escapes have a fixed length, so they never swallow what follows."""
    plain = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/ :"
    return '"' + "".join(chr(byte) if byte in plain else f"\\{byte:03o}" for byte in text.encode()) + '"'


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
        with _scratch(directory) as scratch:
            build(compiler, scratch, path.name)
            (scratch / path.name).replace(path)
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
def _scratch(directory: Path) -> Iterator[Path]:
    """A working directory on the same file system, so that what is made in it can be renamed into place."""
    try:
        scratch = tempfile.TemporaryDirectory(dir=directory, prefix=".building-")
    except OSError as problem:
        raise ToolchainError(f"{directory}: cannot write there: {problem.strerror}") from problem
    with scratch as name:
        yield Path(name)
