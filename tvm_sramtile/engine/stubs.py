"""The object that holds compiled regions: their programs, and the entry stubs that TVM calls.

What ends up in a deployed library is the engine's object plus one object holding the regions' programs and their
entry stubs. The stubs are plain C, so that both generations of TVM can call them: TVM itself makes the packed function
around them.

* ``int32_t <id>_run(int64_t images, void* t0, ...)`` runs the region's program; on failure it hands the engine's text
  to the TVM runtime and returns nonzero.
* ``int32_t <id>_raise(void)`` returns -1. Called by TVM as a packed function of C (whose arguments it ignores, so it
  suits every version of that convention), it makes TVM raise the text that ``run`` has handed over.
* ``int32_t <id>_counters(int64_t* out)`` copies the region's counters, ``int32_t <id>_reset(int32_t)`` zeroes them.
* ``int32_t <id>_mode(int64_t)`` sets the mode (``isa.table.Mode``) of the region's calls that start from now on.

Each region has a text in the section ``sramtile_texts``: JSON with its name and those of its steps. The linker joins
these texts, so a library knows its regions whoever linked it: ``int32_t sramtile_regions(int64_t bytes, uint8_t* out)``
copies as many bytes as asked for of their length (8 bytes) and the texts, each followed by a NUL.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tvm_sramtile.engine.native import ENGINE_SOURCES, find_compiler, scratch
from tvm_sramtile.isa.table import CONSTANTS_ALIGN_BYTES

STUB_FLAGS = ("-std=gnu11", "-O1", "-fPIC", "-fvisibility=hidden")
MESSAGE_BYTES = 1024
REGIONS_SYMBOL = "sramtile_regions"

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

/* The linker names the ends of a section. Weak: Relay brings this function once for each region. */
extern const char __start_sramtile_texts[] __attribute__((visibility("hidden")));
extern const char __stop_sramtile_texts[] __attribute__((visibility("hidden")));

__attribute__((weak)) int32_t sramtile_regions(int64_t bytes, uint8_t* out) {
  const int64_t length = __stop_sramtile_texts - __start_sramtile_texts;
  for (int64_t at = 0; at < bytes && at < 8 + length; at++) {
    out[at] = at < 8 ? (uint8_t)((uint64_t)length >> 8 * at) : (uint8_t)__start_sramtile_texts[at - 8];
  }
  return 0;
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
SRAMTILE_COUNTERS(%(id)s_block, %(step_count)d);
static const char %(id)s_text[] __attribute__((used, aligned(1), section("sramtile_texts"))) = %(text)s;

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

int32_t %(id)s_mode(int64_t mode) { return sramtile_counters_mode(&%(id)s_block, mode); }
"""


@dataclass(frozen=True, slots=True)
class RegionProgram:
    """What goes into an object.

    Attributes:
        name: the region's.
        program: its program.
        tensor_count: how many tensors a call hands over.
        steps: the names of its steps.
    """

    name: str
    program: bytes
    tensor_count: int
    steps: tuple[str, ...]

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
    symbol: str

    @property
    def run_symbol(self) -> str:
        """The C function that runs the program."""
        return f"{self.symbol}_run"

    @property
    def raise_symbol(self) -> str:
        """The C function that makes TVM raise an error's text."""
        return f"{self.symbol}_raise"

    @property
    def counters_symbol(self) -> str:
        """The C function that copies the counters."""
        return f"{self.symbol}_counters"

    @property
    def reset_symbol(self) -> str:
        """The C function that zeroes the counters."""
        return f"{self.symbol}_reset"

    @property
    def mode_symbol(self) -> str:
        """The C function that sets the mode."""
        return f"{self.symbol}_mode"


def region_object(region: RegionProgram, directory: Path, sources: Path = ENGINE_SOURCES) -> RegionObject:
    """An object file of one region; see ``region_objects``."""
    return region_objects([region], directory, sources)[0]


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
    with scratch(directory) as building:
        text = [_RUNTIME_HOOKS % {"message_bytes": MESSAGE_BYTES}]
        for index, region in enumerate(regions):
            # A name relative to the working directory: no path needs quoting in assembly.
            (building / f"program{index}.bin").write_bytes(region.program)
            text.append(_region_source(region, f"program{index}.bin"))
        (building / "regions.c").write_text("".join(text), encoding="ascii")
        compiler.run([*STUB_FLAGS, f"-I{sources.resolve()}", "-c", "regions.c", "-o", path.name], building)
        (building / path.name).replace(path)
    return tuple(RegionObject(region.name, path, region.tensor_count, region.symbol) for region in regions)


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
        "alignment": CONSTANTS_ALIGN_BYTES,
        "file": file,
        "parameters": "".join(f", void* {tensor}" for tensor in tensors),
        "arguments": ", ".join(tensors),
        "message_bytes": MESSAGE_BYTES,
        "program_bytes": len(region.program),
        "tensor_count": region.tensor_count,
        "quoted_name": _c_string(region.name),
        "step_count": len(region.steps),
        "text": _c_string(json.dumps({"name": region.name, "steps": region.steps})),
    }


def _c_string(text: str) -> str:
    """A C literal of UTF-8 bytes; octal escapes have a fixed length, so they never swallow what follows."""
    plain = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/ :"
    return '"' + "".join(chr(byte) if byte in plain else f"\\{byte:03o}" for byte in text.encode()) + '"'
