"""The only source of opcodes, fields, widths, preconditions and cycle costs.

A program is, little-endian and without gaps: the header record, ``tensor_count`` tensor records, ``prologue_commands``
and then ``body_commands`` commands, zeros up to a multiple of 64 bytes, and the constants. A command is the common
``COMMAND`` fields followed by the fields of its opcode. The prologue runs once a call, the body once an image; each
starts when everything before it has finished.

Each queue executes its commands in program order. A command starts when its queue is free and the first ``wait_load``,
``wait_compute`` and ``wait_store`` commands of those queues (counted from the start of the prologue or body that the
command is in) have finished.

SRAM addresses run through the memories, one after the other, each starting at the next multiple of
``MEMORY_ALIGN_BYTES``; an operand lies within one memory. The SRAM peak is the sum over the memories of the highest
byte that any operand reached. A map of ``b`` channel blocks takes
``(b - 1)*block_bytes + round_up(rows, lines)*row_bytes`` bytes. The operands of a CONV are the input map and the
weights (unless in_rows or in_cols is 0), the bias (with BIAS), the accumulators (always) and the output (with LAST).

A feature map in SRAM is channel-blocked, ``[channel block][row][column][lane]``: element (c, r, w) lies at
``base + (c // lanes)*block_bytes + r*row_bytes + (w*lanes + c % lanes)*elem_bytes`` with ``lanes = channel_align``.
Loads write zeros to the lanes past the last channel; a CONV leaves them undefined. A bias and accumulators are maps of
the accumulator's type: the bias has one row and column and no space between its blocks, the accumulators have as many
elements from block to block as the output map. Weights in SRAM are ``[output block][input block][kernel row]
[kernel col][input channel of the block][lane]``, where only the last input block may be short, and the lanes past the
last output channel are zeros; the input channels are those of one group.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

FieldType = Literal["u8", "u16", "u32", "u64", "i32", "f32"]

MAGIC = 0x4D545253  # "SRTM"
VERSION = 1
CONSTANTS_ALIGN_BYTES = 64
MEMORY_ALIGN_BYTES = 4  # no element is larger, so that a memory of any size can be followed by another
MEMORIES = 4  # SRAM memories at most: one pool or three buffers, and accumulators


class Queue(IntEnum):
    """The three queues that run side by side."""

    LOAD = 0
    COMPUTE = 1
    STORE = 2


class Place(IntEnum):
    """Where a DRAM tensor lies."""

    ARGUMENT = 0  # offset = index among the pointers of the call
    CONSTANT = 1  # offset = byte offset in the program's constants
    WORKSPACE = 2  # offset = byte offset in the workspace of the call


class Traffic(IntEnum):
    """What a DRAM tensor's bytes are counted as."""

    INPUTS = 0
    WEIGHTS = 1
    OUTPUTS = 2
    PARTIAL_SUMS = 3


class Dtype(IntEnum):
    """Element types."""

    FLOAT32 = 0


class Layout(IntEnum):
    """How a DRAM tensor's four dimensions lie."""

    NCHW = 0  # a map: dims (1, channels, rows, cols); with per_image, image i lies i maps further on
    OIHW = 1  # weights: dims (output channels, input channels of a group, kernel rows, kernel cols)
    PACKED = 2  # weights, dims as OIHW, in the order that SRAM has them, but without the lanes past the last channel


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a record: its name, type and meaning (with the unit)."""

    name: str
    type: FieldType
    meaning: str


@dataclass(frozen=True, slots=True)
class Opcode:
    """One command: what it does, what must hold, and what it costs.

    Attributes:
        reads, writes: SRAM operands by name, for the listing and the docs.
        cycles: the cost formula over the fields and the header's parameters.
    """

    name: str
    code: int
    queue: Queue
    meaning: str
    fields: tuple[Field, ...]
    preconditions: tuple[str, ...]
    cycles: str


def _u32(name: str, meaning: str) -> Field:
    return Field(name, "u32", meaning)


HEADER = (
    _u32("magic", f"0x{MAGIC:08X}"),
    _u32("version", f"{VERSION}"),
    *(_u32(f"memory{index}_bytes", "size of this SRAM memory, 0: none") for index in range(MEMORIES)),
    _u32("lanes", "channels of a block (channel_align)"),
    _u32("lines", "rows of a chunk are rounded up to it"),
    _u32("column_align", "columns of a chunk are rounded up to it"),
    _u32("mac_in", "input channels that the MAC array takes in a cycle"),
    _u32("mac_out", "output channels that the MAC array yields in a cycle"),
    _u32("dma_bytes_per_cycle", "DRAM bytes moved in a cycle"),
    _u32("dma_setup_cycles", "cycles before the first byte of a DMA command"),
    _u32("argument_count", "pointers that a call gives"),
    _u32("tensor_count", "tensor records"),
    _u32("step_count", "steps of the region; each command belongs to one"),
    _u32("prologue_commands", "commands run once a call"),
    _u32("body_commands", "commands run once an image"),
    Field("command_bytes", "u64", "bytes of all commands"),
    Field("constants_bytes", "u64", "bytes of the constants"),
    Field("workspace_bytes", "u64", "bytes of DRAM that a call needs besides its arguments"),
)

TENSOR = (
    Field("place", "u8", "see Place"),
    Field("traffic", "u8", "see Traffic"),
    Field("dtype", "u8", "see Dtype"),
    Field("layout", "u8", "see Layout"),
    _u32("per_image", "1: each image has its own, 0: all share one (weights always)"),
    _u32("dim0", "see Layout"),
    _u32("dim1", "see Layout"),
    _u32("dim2", "see Layout"),
    _u32("dim3", "see Layout"),
    Field("offset", "u64", "see Place"),
)

COMMAND = (
    Field("opcode", "u8", "which command"),
    Field("flags", "u8", "see the opcode"),
    Field("step", "u16", "index of the region's step, for counters"),
    _u32("wait_load", "load commands that must have finished"),
    _u32("wait_compute", "compute commands that must have finished"),
    _u32("wait_store", "store commands that must have finished"),
)

_MAP_BOX = (
    _u32("tensor", "index of the DRAM tensor"),
    _u32("channel", "first channel"),
    _u32("channels", "channels"),
    _u32("row", "first row"),
    _u32("rows", "rows"),
    _u32("col", "first column"),
    _u32("cols", "columns"),
    _u32("sram", "SRAM address of the map"),
    _u32("block_bytes", "bytes from one channel block to the next"),
    _u32("row_bytes", "bytes from one row to the next"),
)
_MAP_RULES = (
    "the box is not empty and within the tensor",
    "row_bytes = round_up(cols, column_align)*lanes*elem_bytes and block_bytes >= round_up(rows, lines)*row_bytes",
    "the SRAM address and block_bytes are multiples of the element size; the map lies within one memory",
    "in the prologue, the tensor is not per_image",
)
_DMA_CYCLES = "dma_setup_cycles + ceil(bytes / dma_bytes_per_cycle), bytes = elements of the box * elem_bytes"

CONV_FIRST = 1  # flags of CONV
CONV_LAST = 2
CONV_BIAS = 4
CONV_CLIP = 8

LOAD = Opcode(
    "LOAD",
    1,
    Queue.LOAD,
    "copy a box of a DRAM map into SRAM; lanes past the last channel become zeros",
    _MAP_BOX,
    (*_MAP_RULES, "the tensor's layout is NCHW"),
    _DMA_CYCLES,
)

LOAD_WEIGHTS = Opcode(
    "LOAD_WEIGHTS",
    2,
    Queue.LOAD,
    "copy a box of a DRAM weight tensor into SRAM, packed; lanes past the last output channel become zeros",
    (
        _u32("tensor", "index of the DRAM tensor"),
        _u32("out_channel", "first output channel"),
        _u32("out_channels", "output channels"),
        _u32("in_channel", "first input channel of a group"),
        _u32("in_channels", "input channels of a group"),
        _u32("kernel_row", "first kernel row"),
        _u32("kernel_rows", "kernel rows"),
        _u32("kernel_col", "first kernel column"),
        _u32("kernel_cols", "kernel columns"),
        _u32("sram", "SRAM address of the weights"),
    ),
    (
        "the box is not empty and within the tensor",
        "layout OIHW; or layout PACKED, the box being all taps and all input channels, out_channel a multiple of lanes",
        "the SRAM address is a multiple of the element size; the weights lie within one memory",
    ),
    _DMA_CYCLES,
)

STORE = Opcode(
    "STORE",
    3,
    Queue.STORE,
    "copy a map from SRAM into a box of a DRAM map",
    _MAP_BOX,
    (*_MAP_RULES, "the tensor's layout is NCHW", "the tensor is no constant; its traffic is not weights"),
    _DMA_CYCLES,
)

CONV = Opcode(
    "CONV",
    4,
    Queue.COMPUTE,
    "convolve a map in SRAM with weights in SRAM. FIRST (1): the sums start at zero, else at the accumulators; LAST "
    "(2): the sums get the epilogue (BIAS (4): add a vector; CLIP (8): limit to [clip_low, clip_high]) and go to the "
    "output map, else to the accumulators, which are otherwise left undefined. Positions outside the input map are "
    "skipped, never multiplied",
    (
        _u32("input", "SRAM address of the input map"),
        _u32("in_block_bytes", "bytes from one channel block of the input map to the next"),
        _u32("in_rows", "rows of the input map; 0: the chunk lies wholly in padding"),
        _u32("in_cols", "columns of the input map"),
        _u32("in_channels", "input channels, of all groups"),
        _u32("weights", "SRAM address of the weights"),
        _u32("bias", "SRAM address of the bias, a map of one row and column"),
        _u32("accumulators", "SRAM address of the accumulators, a map like the output in the accumulator's type"),
        _u32("output", "SRAM address of the output map; may equal the accumulators' when the types are of one size"),
        _u32("out_block_bytes", "bytes from one channel block of the output map to the next"),
        _u32("out_rows", "rows of the output map"),
        _u32("out_cols", "columns of the output map"),
        _u32("out_channels", "output channels, of all groups"),
        _u32("groups", "independent groups of channels"),
        _u32("kernel_rows", "rows of the kernel"),
        _u32("kernel_cols", "columns of the kernel"),
        _u32("stride_rows", "row stride"),
        _u32("stride_cols", "column stride"),
        _u32("dilation_rows", "row dilation"),
        _u32("dilation_cols", "column dilation"),
        Field("pad_top", "i32", "padding rows above the input map"),
        Field("pad_left", "i32", "padding columns left of the input map"),
        Field("clip_low", "f32", "least value put out"),
        Field("clip_high", "f32", "greatest value put out"),
        Field("input_dtype", "u8", "see Dtype"),
        Field("weight_dtype", "u8", "see Dtype"),
        Field("accumulator_dtype", "u8", "see Dtype"),
        Field("output_dtype", "u8", "see Dtype"),
    ),
    (
        "extents, kernel, strides, dilations and groups are positive, but in_rows and in_cols may both be 0",
        "groups divides in_channels and out_channels",
        "row bytes of the maps are round_up(cols, column_align)*lanes*elem_bytes; "
        "a block holds its rows, rounded up to lines",
        "addresses and block bytes are multiples of the element size; each operand lies within one memory",
        "the output and the accumulators overlap no other operand, and each other only where they are the same",
        "BIAS and CLIP only with LAST; clip_low <= clip_high",
    ),
    "out_rows*out_cols*kernel_rows*kernel_cols * min(groups*ceil(ipg / mac_in)*ceil(opg / mac_out), "
    "ipg*ceil(out_channels / mac_out)), ipg = in_channels / groups, opg = out_channels / groups",
)

OPCODES = {opcode.code: opcode for opcode in (LOAD, LOAD_WEIGHTS, STORE, CONV)}

# What the engine measures in a call, in the order of its counter block; all add up over calls but the last, a maximum.
COUNTERS = (
    "calls",
    "images",
    "cycles",
    "load_busy_cycles",
    "compute_busy_cycles",
    "store_busy_cycles",
    "load_commands",
    "compute_commands",
    "store_commands",
    "macs",
    "input_bytes",
    "weight_bytes",
    "output_bytes",
    "partial_sum_bytes",
    "sram_peak_bytes",
)
