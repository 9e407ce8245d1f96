from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from standin_engine import COUNTING, HEADER

from tvm_sramtile.engine import native, stubs
from tvm_sramtile.errors import ToolchainError

# Writes the sum of the program's bytes into the last tensor; a program that starts with 'E' fails.
RUN = """\
#include <stdio.h>
#include "engine.h"
int64_t sramtile_sum(const uint8_t* bytes, uint64_t count);
int32_t sramtile_run(const uint8_t* program, uint64_t bytes, void* const* tensors, int32_t count, int64_t images,
                     struct sramtile_counters* counters, char* message, int32_t message_bytes) {
  if (bytes && program[0] == 'E') {
    snprintf(message, message_bytes, "command 3: opcode %d is unknown", program[1]);
    return 7;
  }
  *(int64_t*)tensors[count - 1] = sramtile_sum(program, bytes);
  counters->calls += images;
  counters->images = (int64_t)((uintptr_t)program % 64);
  return 0;
}
"""

# A file of its own, and several versions of one function: symbols of both kinds must survive being weakened.
SUM = """\
#include "engine.h"
#if defined(__x86_64__) && defined(__linux__)
__attribute__((target_clones("avx2", "default")))
#endif
static int64_t add_up(const uint8_t* bytes, uint64_t count) {
  int64_t sum = 0;
  for (uint64_t i = 0; i < count; ++i) sum += bytes[i];
  return sum;
}
int64_t sramtile_sum(const uint8_t* bytes, uint64_t count) { return add_up(bytes, count); }
"""

# Stands for the library that TVM links: makes the hidden functions of a region visible.
CALLER = """\
#include <stdint.h>
int32_t {run}(int64_t images, void* a, void* b);
int32_t {fail}(void);
int32_t {counters}(int64_t* out);
int32_t {reset}(int32_t);
int32_t {mode}(int64_t);
int32_t run{index}(int64_t images, void* a, void* b) {{ return {run}(images, a, b); }}
int32_t fail{index}(void) {{ return {fail}(); }}
int32_t counters{index}(int64_t* out) {{ return {counters}(out); }}
int32_t reset{index}(void) {{ return {reset}(0); }}
int32_t mode{index}(int64_t mode) {{ return {mode}(mode); }}
"""

# Stands for the TVM runtime.
RUNTIME = """\
#include <stdio.h>
char raised[2048];
"""
TODAY = 'void TVMFFIErrorSetRaisedFromCStr(const char* k, const char* m) { sprintf(raised, "%s|%s", k, m); }\n'
UP_TO_0_19 = 'void TVMAPISetLastError(const char* m) { sprintf(raised, "old|%s", m); }\n'


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "cache"
    monkeypatch.setenv(native.CACHE_VARIABLE, str(directory))
    return directory


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    directory = tmp_path / "engine sources"
    directory.mkdir()
    for name, text in {"engine.h": HEADER, "run.c": RUN, "sum.c": SUM, "counting.c": COUNTING}.items():
        (directory / name).write_text(text, encoding="utf-8")
    return directory


def link(tmp_path: Path, objects: list[stubs.RegionObject], engines: list[Path], runtime: str = "") -> ctypes.CDLL:
    text = RUNTIME + runtime
    for index, region in enumerate(objects):
        text += CALLER.format(
            run=region.run_symbol,
            fail=region.raise_symbol,
            counters=region.counters_symbol,
            reset=region.reset_symbol,
            mode=region.mode_symbol,
            index=index,
        )
    source, library = tmp_path / "caller.c", tmp_path / f"linked{len(list(tmp_path.iterdir()))}.so"
    source.write_text(text, encoding="utf-8")
    files = dict.fromkeys([*(str(region.path) for region in objects)])
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, *files, *engines], check=True, text=True)
    return ctypes.CDLL(str(library))


def call(library: ctypes.CDLL, index: int, images: int = 1) -> tuple[int, int]:
    first, last = ctypes.c_int64(0), ctypes.c_int64(-1)
    code = library[f"run{index}"](ctypes.c_int64(images), ctypes.byref(first), ctypes.byref(last))
    return code, last.value


def read(library: ctypes.CDLL, index: int) -> list[int]:
    out = (ctypes.c_int64 * 2)(-1, -1)
    assert library[f"counters{index}"](out) == 0
    return list(out)


def symbols(path: Path) -> list[list[str]]:
    text = subprocess.run(["readelf", "-sW", path], check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in text.splitlines()]
    # Columns: number, value, size, type, binding, visibility, section, name.
    return [row[3:8] for row in rows if len(row) >= 8 and row[0].rstrip(":").isdigit()]


def test_regions_run_their_own_programs_and_count_on_their_own(sources: Path, tmp_path: Path) -> None:
    programs = [bytes([1, 2, 3]), bytes(range(256)) * 8]
    regions = [
        stubs.RegionProgram(f"region_{i}", program, 2, ("first", "second")) for i, program in enumerate(programs)
    ]
    objects = stubs.region_objects(regions, tmp_path, sources)
    library = link(tmp_path, list(objects), [native.engine_object(sources)])
    assert call(library, 0, images=5) == (0, 6)
    assert call(library, 1) == (0, sum(range(256)) * 8)
    assert read(library, 0) == [5, 0]  # The second: the program's address modulo 64.
    assert read(library, 1) == [1, 0]
    library.reset0()
    assert read(library, 0) == [0, 0]
    assert read(library, 1) == [1, 0]


# In a process of its own: these tests may share theirs with a TVM, whose functions would be found first.
FAIL = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
print(library.run0(ctypes.c_int64(1), None, None), library.fail0())
print(ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, "raised"))).decode())
"""


@pytest.mark.parametrize(
    ("runtime", "raised"),
    [(TODAY, "RuntimeError|"), (UP_TO_0_19, "old|"), ("", None)],
    ids=["today", "up to 0.19", "none"],
)
def test_a_failure_hands_the_engines_text_to_the_runtime(
    sources: Path, tmp_path: Path, runtime: str, raised: str | None
) -> None:
    region = stubs.region_object(stubs.RegionProgram("main/fuß%s\\1", b"E\x05", 2, ()), tmp_path, sources)
    library = link(tmp_path, [region], [native.engine_object(sources)], runtime)
    command = [sys.executable, "-X", "utf8", "-c", FAIL, library._name]
    result = subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8")
    text = "sramtile region main/fuß%s\\1: command 3: opcode 5 is unknown"
    assert result.stdout.splitlines() == ["7 -1", "" if raised is None else raised + text]
    # Without a runtime the text is not lost.
    assert result.stderr == (text + "\n" if raised is None else "")


def test_copies_of_the_engine_link_together(sources: Path, tmp_path: Path) -> None:
    engine = native.engine_object(sources)
    copy = tmp_path / "copy.o"
    copy.write_bytes(engine.read_bytes())
    regions = [
        stubs.region_object(stubs.RegionProgram(name, b"\x09", 2, ()), tmp_path, sources) for name in ("one", "other")
    ]
    library = link(tmp_path, regions, [engine, copy])
    assert [call(library, index) for index in range(2)] == [(0, 9), (0, 9)]


def check_symbols(engine: Path) -> None:
    rows = [row for row in symbols(engine) if row[1] != "LOCAL"]
    defined = {row[4]: tuple(row[1:3]) for row in rows if row[3] != "UND"}
    # A failure here may be a function whose name does not begin with sramtile_ (so it is not made weak), or one with
    # target_clones that is not static (gcc ignores its visibility).
    assert {name: kind for name, kind in defined.items() if kind != ("WEAK", "HIDDEN")} == {}
    assert {"sramtile_run", "sramtile_counters_read", "sramtile_counters_reset"} <= set(defined)
    assert {row[1] for row in rows if row[3] == "UND"} == {"GLOBAL"}


def test_what_the_engine_defines_is_hidden_and_weak_and_what_it_needs_is_not(sources: Path) -> None:
    check_symbols(native.engine_object(sources))


def test_our_engines_symbols() -> None:
    check_symbols(native.engine_object())


def test_what_a_region_defines_is_hidden(sources: Path, tmp_path: Path) -> None:
    region = stubs.region_object(stubs.RegionProgram("region", b"\x01", 2, ()), tmp_path, sources)
    rows = [row for row in symbols(region.path) if row[1] != "LOCAL" and row[3] != "UND"]
    assert {row[2] for row in rows} == {"HIDDEN"}
    assert len(rows) == 7


def test_symbols_depend_on_name_program_and_tensors() -> None:
    regions = [("a", b"1", 2), ("b", b"1", 2), ("a", b"2", 2), ("a", b"1", 3), ("a.", b"1", 2), ("a-", b"1", 2)]
    names = {stubs.RegionProgram(*region, ()).symbol for region in regions}
    assert len(names) == len(regions)
    assert all(name.isidentifier() and name.isascii() for name in names)


def test_an_empty_program_and_a_single_tensor(sources: Path, tmp_path: Path) -> None:
    region = stubs.region_object(stubs.RegionProgram("", b"", 1, ()), tmp_path, sources)
    assert region.path.exists()
    assert region.tensor_count == 1


def test_sixty_large_regions_take_seconds(sources: Path, tmp_path: Path) -> None:
    regions = [stubs.RegionProgram(f"region_{i}", os.urandom(100_000), 3, ()) for i in range(60)]
    objects = stubs.region_objects(regions, tmp_path / ".", sources)
    assert len({region.path for region in objects}) == 1
    assert [path.name for path in tmp_path.glob("*.o")] == [objects[0].path.name]
    assert not list(tmp_path.glob(".building-*"))


def test_the_library_is_for_ctypes(sources: Path) -> None:
    library = ctypes.CDLL(str(native.engine_library(sources)))
    library.sramtile_sum.restype = ctypes.c_int64
    assert library.sramtile_sum(b"\x01\x02", ctypes.c_uint64(2)) == 3


@pytest.mark.parametrize("make", [native.engine_object, native.engine_library])
def test_the_engine_is_built_once_and_again_when_it_changes(sources: Path, cache: Path, make: object) -> None:
    assert callable(make)
    first = make(sources)
    stamp = first.stat().st_mtime_ns
    assert make(sources) == first
    assert first.stat().st_mtime_ns == stamp
    assert first.parent == cache
    with (sources / "engine.h").open("a", encoding="utf-8") as header:
        header.write("/* changed */\n")
    assert make(sources) != first
    assert not list(cache.glob(".building-*"))


def test_another_compiler_has_another_entry(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = native.engine_object(sources)
    monkeypatch.setenv("CC", "cc -DOTHER")
    assert native.engine_object(sources) != first


def test_racing_builds_end_with_one_good_file(sources: Path, cache: Path) -> None:
    program = "import sys, pathlib; from tvm_sramtile.engine import native; "
    program += "print(native.engine_library(pathlib.Path(sys.argv[1])))"

    def build(_: int) -> str:
        command = [sys.executable, "-c", program, str(sources)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    with ThreadPoolExecutor(4) as threads:
        paths = set(threads.map(build, range(4)))
    assert len(paths) == 1
    assert len(list(cache.iterdir())) == 1
    ctypes.CDLL(paths.pop().strip())


def test_no_compiler(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError) as caught:
        native.engine_object(sources)
    assert str(caught.value) == (
        "no C compiler found: looked for cc, gcc and clang on the PATH; install one "
        "(for example: apt install gcc) or set CC to its path"
    )


def test_a_wrong_cc(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -m64")
    with pytest.raises(ToolchainError) as caught:
        native.engine_object(sources)
    assert str(caught.value) == "CC=no-such-compiler -m64: no such program; set CC to a C compiler such as gcc or clang"


def test_a_compiler_that_fails_is_quoted(sources: Path, cache: Path) -> None:
    (sources / "sum.c").write_text("int broken(void) { return missing; }\n", encoding="utf-8")
    with pytest.raises(
        ToolchainError, match=r"(?s)failed with status \d+:.*'?missing'? undeclared|undeclared.*missing"
    ):
        native.engine_object(sources)
    assert not list(cache.iterdir())


def test_sources_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="no C sources of the engine here; the installation is incomplete"):
        native.engine_object(tmp_path)


def test_a_cache_that_cannot_be_written(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv(native.CACHE_VARIABLE, str(blocked / "cache"))
    with pytest.raises(ToolchainError) as caught:
        native.engine_object(sources)
    expected = f"SRAMTILE_CACHE_DIR={blocked / 'cache'}: cannot write there; name a directory that is writable"
    assert str(caught.value) == expected


def test_where_the_cache_is_without_a_variable(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(native.CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert native.engine_object(sources).parent == tmp_path / "xdg" / "tvm_sramtile"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert native.engine_object(sources).parent == tmp_path / "home" / ".cache" / "tvm_sramtile"
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("HOME", str(blocked))
    monkeypatch.setattr(native.tempfile, "tempdir", str(tmp_path))
    assert native.engine_object(sources).parent == tmp_path / f"tvm_sramtile-{os.getuid()}"


def test_regions_that_make_no_sense(sources: Path, tmp_path: Path) -> None:
    twice = [stubs.RegionProgram("region", program, 2, ()) for program in (b"1", b"2")]
    with pytest.raises(ValueError, match="region name 'region' stands for two regions: names must differ"):
        stubs.region_objects(twice, tmp_path, sources)
    with pytest.raises(ValueError, match="region 'region': tensor_count = 0, must be at least 1"):
        stubs.region_object(stubs.RegionProgram("region", b"1", 0, ()), tmp_path, sources)
    with pytest.raises(ToolchainError, match="missing: cannot write there: No such file or directory"):
        stubs.region_object(stubs.RegionProgram("region", b"1", 1, ()), tmp_path / "missing", sources)
