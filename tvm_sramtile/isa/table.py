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
byte that any operand reached. A map of ``b`` channel blocks takes ``b*block_bytes`` bytes where it is computed with;
where it is loaded, stored or copied, it ends with its last row. The operands of a CONV are the input map and the
weights (unless there are no input rows or columns, or no taps), the bias (with BIAS), the accumulators (always) and the
output (with LAST); the latter two count with all rows of the output map.

A feature map in SRAM is channel-blocked, ``[channel block][row][column][lane]``: element (c, r, w) lies at
``base + (c // lanes)*block_bytes + r*row_bytes + (w*lanes + c % lanes)*elem_bytes`` with ``lanes = channel_align``.
Loads write zeros to the lanes past the last channel; compute commands leave them undefined. A bias and accumulators
are maps of the accumulator's type: the bias has one row and column and no space between its blocks, the accumulators
have as many
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
TENSOR_AXES = 5
TABLE_ENTRY_BYTES = 8  # a position (i32; -1: no tap) and its weight (f32)
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
    """What a DRAM tensor is; its five dims have strides of their own, in elements: any order of axes can be read."""

    MAP = 0  # dims (channels, rows, cols, 1, 1); image i lies image_stride elements further on
    WEIGHTS = 1  # dims (groups, output channels of a group, input channels of a group, kernel rows, kernel cols)
    PACKED = 2  # dims as WEIGHTS, in the order that SRAM has them, without the lanes past the last channel; no strides
    TABLE = 3  # dims (outputs, taps, 1, 1, 1) of (i32 position or -1, f32 weight), output by output; no strides


class Pooling(IntEnum):
    """What POOL yields of the positions of its window that lie in the input map."""

    MAX = 0  # the greatest; the lowest finite number where there is none
    AVERAGE_ALL = 1  # their sum over the window's whole size
    AVERAGE_VALID = 2  # their sum over how many they are, 0 where there is none


class Function(IntEnum):
    """What ELTWISE computes of an element a of the first map and its partner b; v and w are value0 and value1."""

    COPY = 0  # a
    ADD = 1  # a + b
    SUBTRACT = 2  # a - b
    REVERSE_SUBTRACT = 3  # b - a
    MULTIPLY = 4  # a * b
    DIVIDE = 5  # a / b
    REVERSE_DIVIDE = 6  # b / a
    MAXIMUM = 7  # the greater of a and b
    MINIMUM = 8  # the lesser of a and b
    PRELU = 9  # a where a > 0, else a * b
    CLIP = 10  # a limited to [v, w]
    LEAKY_RELU = 11  # a where a > 0, else a * v
    SIGMOID = 12  # 1 / (1 + exp(-a))
    TANH = 13
    EXP = 14
    SQRT = 15
    ABS = 16
    NEGATIVE = 17
    SILU = 18  # a / (1 + exp(-a))
    HARD_SWISH = 19  # a * clip(a + 3, 0, 6) / 6


class Partner(IntEnum):
    """Where the second operand of ELTWISE comes from."""

    NONE = 0
    MAP = 1  # a map of the same extents
    VECTOR = 2  # a map of one row and column: one value a channel
    VALUE = 3  # value0


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
    *(_u32(f"dim{axis}", "see Layout") for axis in range(TENSOR_AXES)),
    *(_u32(f"stride{axis}", "elements from one position of that axis to the next") for axis in range(TENSOR_AXES)),
    _u32("image_stride", "elements from one image to the next; 0: all share one (weights and tables always)"),
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
    "the SRAM address and block_bytes are multiples of the element size; the map, up to its last row, lies within one "
    "memory",
    "in the prologue, image_stride is 0",
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
    (*_MAP_RULES, "the tensor's layout is MAP"),
    _DMA_CYCLES,
)

LOAD_WEIGHTS = Opcode(
    "LOAD_WEIGHTS",
    2,
    Queue.LOAD,
    "copy a box of a DRAM weight tensor into SRAM, packed; lanes past the last output channel become zeros",
    (
        _u32("tensor", "index of the DRAM tensor"),
        _u32("out_channel", "first output channel, counted through all groups"),
        _u32("out_channels", "output channels"),
        _u32("in_channel", "first input channel of a group"),
        _u32("in_channels", "input channels of a group"),
        _u32("kernel_row", "kernel row of the first row of taps"),
        _u32("kernel_rows", "rows of taps"),
        Field("kernel_row_step", "i32", "kernel rows from one row of taps to the next; negative: flipped"),
        _u32("kernel_col", "kernel column of the first column of taps"),
        _u32("kernel_cols", "columns of taps"),
        Field("kernel_col_step", "i32", "kernel columns from one column of taps to the next; negative: flipped"),
        _u32("sram", "SRAM address of the weights"),
    ),
    (
        "the box is not empty, and all of it is within the tensor",
        "layout WEIGHTS; or layout PACKED, out_channel and in_channel being multiples of lanes",
        "out_channels ends with a whole group, or the box is within one group",
        "the SRAM address is a multiple of the element size; the weights lie within one memory",
    ),
    _DMA_CYCLES,
)

LOAD_TABLE = Opcode(
    "LOAD_TABLE",
    5,
    Queue.LOAD,
    "copy the entries of some outputs from a DRAM table into SRAM, as they are",
    (
        _u32("tensor", "index of the DRAM tensor"),
        _u32("first", "first output"),
        _u32("count", "outputs"),
        _u32("sram", "SRAM address of the entries"),
    ),
    (
        "the outputs are at least one and within the tensor, whose layout is TABLE",
        "the SRAM address is a multiple of 4; the entries lie within one memory",
    ),
    _DMA_CYCLES,
)

STORE = Opcode(
    "STORE",
    3,
    Queue.STORE,
    "copy a map from SRAM into a box of a DRAM map",
    _MAP_BOX,
    (*_MAP_RULES, "the tensor's layout is MAP", "the tensor is no constant; its traffic is not weights"),
    _DMA_CYCLES,
)

COPY = Opcode(
    "COPY",
    9,
    Queue.LOAD,
    "copy rows of a map to another place in SRAM, block by block, each as if by way of another memory; no DRAM is used",
    (
        _u32("source", "SRAM address of the first row"),
        _u32("target", "SRAM address where it goes"),
        _u32("block_bytes", "bytes from one channel block to the next, in both places"),
        _u32("channels", "channels"),
        _u32("rows", "rows"),
        _u32("cols", "columns"),
    ),
    (
        "extents are positive; row bytes are round_up(cols, column_align)*lanes*elem_bytes, and block_bytes >= "
        "round_up(rows, lines)*row_bytes",
        "addresses and block_bytes are multiples of the element size; each operand lies within one memory",
    ),
    "dma_setup_cycles + rows*cols*ceil(channels / lanes)",
)

_WINDOW = (
    _u32("kernel_rows", "rows of taps"),
    _u32("kernel_cols", "columns of taps"),
    _u32("stride_rows", "input rows from one output row to the next"),
    _u32("stride_cols", "input columns from one output column to the next"),
    _u32("dilation_rows", "input rows from one tap to the next"),
    _u32("dilation_cols", "input columns from one tap to the next"),
    Field(
        "pad_top", "i32", "rows by which the first tap of the first output lies above the input map; may be negative"
    ),
    Field("pad_left", "i32", "columns by which it lies left of the input map; may be negative"),
)

CONV = Opcode(
    "CONV",
    4,
    Queue.COMPUTE,
    "convolve a map in SRAM with weights in SRAM. FIRST (1): the sums start at zero, else at the accumulators; LAST "
    "(2): the sums get the epilogue (BIAS (4): add a vector; CLIP (8): limit to [clip_low, clip_high]) and go to the "
    "output map, else to the accumulators, which are otherwise left undefined. Positions outside the input map are "
    "skipped, never multiplied. The outputs computed are every out_row_step-th row and out_col_step-th column of the "
    "output map, from out_row and out_col on: a phase of a transposed convolution",
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
        _u32("out_map_rows", "rows of the output map"),
        _u32("out_map_cols", "columns of the output map"),
        _u32("out_row", "first output row that is computed"),
        _u32("out_rows", "output rows that are computed"),
        _u32("out_row_step", "rows of the output map from one to the next"),
        _u32("out_col", "first output column that is computed"),
        _u32("out_cols", "output columns that are computed"),
        _u32("out_col_step", "columns of the output map from one to the next"),
        _u32("out_channels", "output channels, of all groups"),
        _u32("groups", "independent groups of channels"),
        _u32("unit_rows", "rows of the unit kernel that computes it"),
        _u32("unit_cols", "columns of the unit kernel that computes it"),
        *_WINDOW,
        Field("clip_low", "f32", "least value put out"),
        Field("clip_high", "f32", "greatest value put out"),
        Field("input_dtype", "u8", "see Dtype"),
        Field("weight_dtype", "u8", "see Dtype"),
        Field("accumulator_dtype", "u8", "see Dtype"),
        Field("output_dtype", "u8", "see Dtype"),
    ),
    (
        "extents, strides, dilations, steps, units and groups are positive, but in_rows and in_cols may be 0, and so "
        "may kernel_rows and kernel_cols; the kernel is not larger than the unit",
        "the outputs lie within the output map",
        "groups divides in_channels and out_channels",
        "row bytes of the maps are round_up(cols, column_align)*lanes*elem_bytes; "
        "a block holds its rows, rounded up to lines",
        "addresses and block bytes are multiples of the element size; each operand lies within one memory",
        "the output and the accumulators overlap no other operand, and each other only where they are the same",
        "BIAS and CLIP only with LAST; clip_low <= clip_high",
    ),
    "out_rows*out_cols*unit_rows*unit_cols * min(groups*ceil(ipg / mac_in)*ceil(opg / mac_out), "
    "ipg*ceil(out_channels / mac_out)), ipg = in_channels / groups, opg = out_channels / groups",
)

_MAPS_RULES = (
    "row bytes of the maps are round_up(cols, column_align)*lanes*elem_bytes; a block holds its rows, rounded up to "
    "lines",
    "addresses and block bytes are multiples of the element size; each operand lies within one memory",
)

POOL = Opcode(
    "POOL",
    6,
    Queue.COMPUTE,
    "slide a window over a map in SRAM and yield, channel by channel, what Pooling says",
    (
        _u32("input", "SRAM address of the input map"),
        _u32("in_block_bytes", "bytes from one channel block of the input map to the next"),
        _u32("in_rows", "rows of the input map; 0: the chunk lies wholly in padding"),
        _u32("in_cols", "columns of the input map"),
        _u32("channels", "channels"),
        _u32("output", "SRAM address of the output map"),
        _u32("out_block_bytes", "bytes from one channel block of the output map to the next"),
        _u32("out_rows", "rows of the output map"),
        _u32("out_cols", "columns of the output map"),
        *_WINDOW,
        _u32("pooling", "see Pooling"),
    ),
    (
        "extents, kernel, strides and dilations are positive, but in_rows and in_cols may be 0",
        *_MAPS_RULES,
        "the output overlaps no other operand",
    ),
    "out_rows*out_cols*kernel_rows*kernel_cols * ceil(channels / mac_out)",
)

RESIZE = Opcode(
    "RESIZE",
    7,
    Queue.COMPUTE,
    "each output is the sum over the taps of its row's and its column's table entries of input*row weight*column "
    "weight; a position that is outside the input map stops the run",
    (
        _u32("input", "SRAM address of the input map"),
        _u32("in_block_bytes", "bytes from one channel block of the input map to the next"),
        _u32("in_rows", "rows of the input map"),
        _u32("in_cols", "columns of the input map"),
        _u32("in_row", "position, in the tables, of the input map's first row"),
        _u32("in_col", "position, in the tables, of the input map's first column"),
        _u32("channels", "channels"),
        _u32("row_table", "SRAM address of the entries of the output rows"),
        _u32("row_taps", "taps of a row's entry"),
        _u32("col_table", "SRAM address of the entries of the output columns"),
        _u32("col_taps", "taps of a column's entry"),
        _u32("output", "SRAM address of the output map"),
        _u32("out_block_bytes", "bytes from one channel block of the output map to the next"),
        _u32("out_rows", "rows of the output map"),
        _u32("out_cols", "columns of the output map"),
    ),
    ("extents and taps are positive", *_MAPS_RULES, "the output overlaps no other operand"),
    "out_rows*out_cols*row_taps*col_taps * ceil(channels / mac_out)",
)

ELTWISE = Opcode(
    "ELTWISE",
    8,
    Queue.COMPUTE,
    "compute a Function of each element of a map and its partner",
    (
        _u32("input", "SRAM address of the first map"),
        _u32("in_block_bytes", "bytes from one of its channel blocks to the next"),
        _u32("partner", "SRAM address of the second map or the vector"),
        _u32("partner_block_bytes", "bytes from one of its channel blocks to the next"),
        _u32("partner_kind", "see Partner"),
        _u32("output", "SRAM address of the output map; may equal an input map's"),
        _u32("out_block_bytes", "bytes from one channel block of the output map to the next"),
        _u32("rows", "rows of the maps"),
        _u32("cols", "columns of the maps"),
        _u32("channels", "channels"),
        _u32("function", "see Function"),
        Field("value0", "f32", "see Function and Partner"),
        Field("value1", "f32", "see Function"),
    ),
    (
        "extents are positive; the function has a partner where it needs one, and none where it does not",
        *_MAPS_RULES,
        "the output overlaps the other operands only where it is the same map",
        "for CLIP, value0 <= value1",
    ),
    "rows*cols * ceil(channels / mac_out)",
)

_ALL = (LOAD, LOAD_WEIGHTS, STORE, CONV, LOAD_TABLE, POOL, RESIZE, ELTWISE, COPY)
OPCODES = {opcode.code: opcode for opcode in _ALL}

# What the engine measures in a call, in the order of its counter block; all add up over calls but the last, a maximum.
# The block goes on with COMMAND_COUNTERS for each step of the region and, within it, each code from 1 to OPCODE_COUNT.
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
COMMAND_COUNTERS = (
    "commands",
    "busy_cycles",
    "macs",
    "input_bytes",
    "weight_bytes",
    "output_bytes",
    "partial_sum_bytes",
)
OPCODE_COUNT = max(OPCODES)
MAX_STEPS = 2**16  # as many as a command's field `step` can name


class Mode(IntEnum):
    """What a call does, besides validating the program; a counter block holds the mode of its region's calls."""

    RUN = 0  # execute and count
    COUNT_ONLY = 1  # no arithmetic, no memory is touched; what depends on data is not checked
    CHECKED = 2  # refuse programs that read SRAM which nothing has written; then execute and count
