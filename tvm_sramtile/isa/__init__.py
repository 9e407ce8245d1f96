"""The instruction set: one table, and what is made from it (encoder, decoder, listing, C header)."""

from tvm_sramtile.isa.code import Command, Program, TensorRecord, decode, encode, memory_starts
from tvm_sramtile.isa.table import OPCODES, Dtype, Function, Layout, Opcode, Partner, Place, Pooling, Queue, Traffic

__all__ = [
    "OPCODES",
    "Command",
    "Dtype",
    "Function",
    "Layout",
    "Opcode",
    "Partner",
    "Place",
    "Pooling",
    "Program",
    "Queue",
    "TensorRecord",
    "Traffic",
    "decode",
    "encode",
    "memory_starts",
]
