"""A stand-in for the engine, with its interface: products of its inputs; an error where the first starts with 77."""

from __future__ import annotations

import struct
from pathlib import Path

ELEMENTS = 10  # of each tensor
COUNTERS = 2
ERROR_TEXT = "command 12 (load): rows 8-12 lie outside the map's 10 rows"

HEADER = """\
#pragma once
#include <stdint.h>
struct sramtile_counters { int64_t calls; int64_t images; };
int32_t sramtile_run(const uint8_t* program, uint64_t bytes, void* const* tensors, int32_t count, int64_t images,
                     struct sramtile_counters* counters, char* message, int32_t message_bytes);
void sramtile_counters_read(struct sramtile_counters* counters, int64_t* out);
void sramtile_counters_reset(struct sramtile_counters* counters);
int32_t sramtile_counters_mode(struct sramtile_counters* counters, int64_t mode);
#define SRAMTILE_COUNTERS(name, steps) static struct sramtile_counters name
"""
COUNTING = """\
#include "engine.h"
void sramtile_counters_read(struct sramtile_counters* c, int64_t* out) { out[0] = c->calls; out[1] = c->images; }
void sramtile_counters_reset(struct sramtile_counters* c) { c->calls = c->images = 0; }
int32_t sramtile_counters_mode(struct sramtile_counters* c, int64_t mode) { return (int32_t)(c->calls = mode) * 0; }
"""
RUN = f"""\
#include <stdio.h>
#include <string.h>
#include "engine.h"
int32_t sramtile_run(const uint8_t* program, uint64_t bytes, void* const* tensors, int32_t count, int64_t images,
                     struct sramtile_counters* counters, char* message, int32_t message_bytes) {{
  float factor;
  int32_t inputs;
  memcpy(&factor, program, sizeof factor);
  memcpy(&inputs, program + sizeof factor, sizeof inputs);
  if (((float*)tensors[0])[0] == 77) {{
    snprintf(message, message_bytes, "{ERROR_TEXT}");
    return 3;
  }}
  for (int out = inputs; out < count; ++out)
    for (int i = 0; i < {ELEMENTS}; ++i) {{
      float product = factor * (out - inputs + 1);
      for (int in = 0; in < inputs; ++in) product *= ((float*)tensors[in])[i];
      ((float*)tensors[out])[i] = product;
    }}
  __atomic_fetch_add(&counters->calls, 1, __ATOMIC_RELAXED);
  __atomic_fetch_add(&counters->images, images, __ATOMIC_RELAXED);
  return 0;
}}
"""


def program(factor: float, inputs: int, payload: bytes = b"") -> bytes:
    """Output number n, from 1, is the product of the inputs times ``factor`` times n."""
    return struct.pack("<fi", factor, inputs) + payload


def write_sources(directory: Path) -> Path:
    """The engine's C sources."""
    for name, text in {"engine.h": HEADER, "run.c": RUN, "counting.c": COUNTING}.items():
        (directory / name).write_text(text, encoding="utf-8")
    return directory
