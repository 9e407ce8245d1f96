"""The C header of the instruction set, made from the table.

``python -m tvm_sramtile.isa.header > tvm_sramtile/engine/src/isa.h``
"""

from __future__ import annotations

import sys
from enum import IntEnum

from tvm_sramtile.isa import table
from tvm_sramtile.isa.code import record_struct

_C_TYPES = {
    "u8": "uint8_t",
    "u16": "uint16_t",
    "u32": "uint32_t",
    "u64": "uint64_t",
    "i32": "int32_t",
    "f32": "float",
}


_ENUMS = (
    table.Queue,
    table.Place,
    table.Traffic,
    table.Dtype,
    table.Layout,
    table.Pooling,
    table.Function,
    table.Partner,
    table.Mode,
)


def c_header() -> str:
    """The whole header as text."""
    lines = [
        "/* Made by tvm_sramtile/isa/header.py from tvm_sramtile/isa/table.py; do not edit. */",
        "#ifndef SRAMTILE_ISA_H",
        "#define SRAMTILE_ISA_H",
        "#include <stdint.h>",
        "",
        f"#define SRAMTILE_MAGIC 0x{table.MAGIC:08X}u",
        f"#define SRAMTILE_VERSION {table.VERSION}u",
        f"#define SRAMTILE_MEMORIES {table.MEMORIES}u",
        f"#define SRAMTILE_MEMORY_ALIGN_BYTES {table.MEMORY_ALIGN_BYTES}u",
        f"#define SRAMTILE_TENSOR_AXES {table.TENSOR_AXES}u",
        f"#define SRAMTILE_CONSTANTS_ALIGN_BYTES {table.CONSTANTS_ALIGN_BYTES}u",
        f"#define SRAMTILE_OPCODE_COUNT {table.OPCODE_COUNT}u",
        f"#define SRAMTILE_MAX_STEPS {table.MAX_STEPS}u",
    ]
    for enum in _ENUMS:
        lines += _enum(enum)
    flags = sorted((name, value) for name, value in vars(table).items() if name.startswith("CONV_"))
    lines += ["", *(f"#define SRAMTILE_{name} {value}u" for name, value in flags)]
    lines += ["", "enum {"]
    lines += [f"  SRAMTILE_OP_{opcode.name} = {code}," for code, opcode in table.OPCODES.items()]
    lines += ["};", "", "/* Indices into a counter block, and into what it holds for each step and opcode. */"]
    lines += _indices("COUNT", "COUNTER", table.COUNTERS)
    lines += _indices("COMMAND_COUNT", "COMMAND_COUNTER", table.COMMAND_COUNTERS)
    records = [("header", table.HEADER), ("tensor", table.TENSOR), ("command", table.COMMAND)]
    records += [(opcode.name.lower(), table.COMMAND + opcode.fields) for opcode in table.OPCODES.values()]
    for name, fields in records:
        lines += _record(name, fields)
    lines += ["", "#endif", ""]
    return "\n".join(lines)


def _enum(enum: type[IntEnum]) -> list[str]:
    name = enum.__name__.upper()
    members = [f"  SRAMTILE_{name}_{member.name} = {member.value}," for member in enum]
    return ["", "enum {", *members, f"  SRAMTILE_{name}_COUNT = {len(enum)}", "};"]


def _indices(prefix: str, what: str, names: tuple[str, ...]) -> list[str]:
    members = [f"  SRAMTILE_{prefix}_{name.upper()} = {index}," for index, name in enumerate(names)]
    return ["enum {", *members, f"  SRAMTILE_{what}_COUNT = {len(names)}", "};"]


def _record(name: str, fields: tuple[table.Field, ...]) -> list[str]:
    members = [f"  {_C_TYPES[field.type]} {field.name}; /* {field.meaning} */" for field in fields]
    size = record_struct(fields).size
    check = f'_Static_assert(sizeof(struct sramtile_{name}) == {size}, "no gaps in sramtile_{name}");'
    return ["", f"struct sramtile_{name} {{", *members, "};", check]


if __name__ == "__main__":
    sys.stdout.write(c_header())
