/* Made by tvm_sramtile/isa/header.py from tvm_sramtile/isa/table.py; do not edit. */
#ifndef SRAMTILE_ISA_H
#define SRAMTILE_ISA_H
#include <stdint.h>

#define SRAMTILE_MAGIC 0x4D545253u
#define SRAMTILE_VERSION 1u
#define SRAMTILE_MEMORIES 4u
#define SRAMTILE_MEMORY_ALIGN_BYTES 4u
#define SRAMTILE_CONSTANTS_ALIGN_BYTES 64u

enum {
  SRAMTILE_QUEUE_LOAD = 0,
  SRAMTILE_QUEUE_COMPUTE = 1,
  SRAMTILE_QUEUE_STORE = 2,
  SRAMTILE_QUEUE_COUNT = 3
};

enum {
  SRAMTILE_PLACE_ARGUMENT = 0,
  SRAMTILE_PLACE_CONSTANT = 1,
  SRAMTILE_PLACE_WORKSPACE = 2,
  SRAMTILE_PLACE_COUNT = 3
};

enum {
  SRAMTILE_TRAFFIC_INPUTS = 0,
  SRAMTILE_TRAFFIC_WEIGHTS = 1,
  SRAMTILE_TRAFFIC_OUTPUTS = 2,
  SRAMTILE_TRAFFIC_PARTIAL_SUMS = 3,
  SRAMTILE_TRAFFIC_COUNT = 4
};

enum {
  SRAMTILE_DTYPE_FLOAT32 = 0,
  SRAMTILE_DTYPE_COUNT = 1
};

enum {
  SRAMTILE_LAYOUT_NCHW = 0,
  SRAMTILE_LAYOUT_OIHW = 1,
  SRAMTILE_LAYOUT_PACKED = 2,
  SRAMTILE_LAYOUT_COUNT = 3
};

#define SRAMTILE_CONV_BIAS 4u
#define SRAMTILE_CONV_CLIP 8u
#define SRAMTILE_CONV_FIRST 1u
#define SRAMTILE_CONV_LAST 2u

enum {
  SRAMTILE_OP_LOAD = 1,
  SRAMTILE_OP_LOAD_WEIGHTS = 2,
  SRAMTILE_OP_STORE = 3,
  SRAMTILE_OP_CONV = 4,
};

/* Indices into a counter block. */
enum {
  SRAMTILE_COUNT_CALLS = 0,
  SRAMTILE_COUNT_IMAGES = 1,
  SRAMTILE_COUNT_CYCLES = 2,
  SRAMTILE_COUNT_LOAD_BUSY_CYCLES = 3,
  SRAMTILE_COUNT_COMPUTE_BUSY_CYCLES = 4,
  SRAMTILE_COUNT_STORE_BUSY_CYCLES = 5,
  SRAMTILE_COUNT_LOAD_COMMANDS = 6,
  SRAMTILE_COUNT_COMPUTE_COMMANDS = 7,
  SRAMTILE_COUNT_STORE_COMMANDS = 8,
  SRAMTILE_COUNT_MACS = 9,
  SRAMTILE_COUNT_INPUT_BYTES = 10,
  SRAMTILE_COUNT_WEIGHT_BYTES = 11,
  SRAMTILE_COUNT_OUTPUT_BYTES = 12,
  SRAMTILE_COUNT_PARTIAL_SUM_BYTES = 13,
  SRAMTILE_COUNT_SRAM_PEAK_BYTES = 14,
  SRAMTILE_COUNTER_COUNT = 15
};

struct sramtile_header {
  uint32_t magic; /* 0x4D545253 */
  uint32_t version; /* 1 */
  uint32_t memory0_bytes; /* size of this SRAM memory, 0: none */
  uint32_t memory1_bytes; /* size of this SRAM memory, 0: none */
  uint32_t memory2_bytes; /* size of this SRAM memory, 0: none */
  uint32_t memory3_bytes; /* size of this SRAM memory, 0: none */
  uint32_t lanes; /* channels of a block (channel_align) */
  uint32_t lines; /* rows of a chunk are rounded up to it */
  uint32_t column_align; /* columns of a chunk are rounded up to it */
  uint32_t mac_in; /* input channels that the MAC array takes in a cycle */
  uint32_t mac_out; /* output channels that the MAC array yields in a cycle */
  uint32_t dma_bytes_per_cycle; /* DRAM bytes moved in a cycle */
  uint32_t dma_setup_cycles; /* cycles before the first byte of a DMA command */
  uint32_t argument_count; /* pointers that a call gives */
  uint32_t tensor_count; /* tensor records */
  uint32_t step_count; /* steps of the region; each command belongs to one */
  uint32_t prologue_commands; /* commands run once a call */
  uint32_t body_commands; /* commands run once an image */
  uint64_t command_bytes; /* bytes of all commands */
  uint64_t constants_bytes; /* bytes of the constants */
  uint64_t workspace_bytes; /* bytes of DRAM that a call needs besides its arguments */
};
_Static_assert(sizeof(struct sramtile_header) == 96, "no gaps in sramtile_header");

struct sramtile_tensor {
  uint8_t place; /* see Place */
  uint8_t traffic; /* see Traffic */
  uint8_t dtype; /* see Dtype */
  uint8_t layout; /* see Layout */
  uint32_t per_image; /* 1: each image has its own, 0: all share one (weights always) */
  uint32_t dim0; /* see Layout */
  uint32_t dim1; /* see Layout */
  uint32_t dim2; /* see Layout */
  uint32_t dim3; /* see Layout */
  uint64_t offset; /* see Place */
};
_Static_assert(sizeof(struct sramtile_tensor) == 32, "no gaps in sramtile_tensor");

struct sramtile_command {
  uint8_t opcode; /* which command */
  uint8_t flags; /* see the opcode */
  uint16_t step; /* index of the region's step, for counters */
  uint32_t wait_load; /* load commands that must have finished */
  uint32_t wait_compute; /* compute commands that must have finished */
  uint32_t wait_store; /* store commands that must have finished */
};
_Static_assert(sizeof(struct sramtile_command) == 16, "no gaps in sramtile_command");

struct sramtile_load {
  uint8_t opcode; /* which command */
  uint8_t flags; /* see the opcode */
  uint16_t step; /* index of the region's step, for counters */
  uint32_t wait_load; /* load commands that must have finished */
  uint32_t wait_compute; /* compute commands that must have finished */
  uint32_t wait_store; /* store commands that must have finished */
  uint32_t tensor; /* index of the DRAM tensor */
  uint32_t channel; /* first channel */
  uint32_t channels; /* channels */
  uint32_t row; /* first row */
  uint32_t rows; /* rows */
  uint32_t col; /* first column */
  uint32_t cols; /* columns */
  uint32_t sram; /* SRAM address of the map */
  uint32_t block_bytes; /* bytes from one channel block to the next */
  uint32_t row_bytes; /* bytes from one row to the next */
};
_Static_assert(sizeof(struct sramtile_load) == 56, "no gaps in sramtile_load");

struct sramtile_load_weights {
  uint8_t opcode; /* which command */
  uint8_t flags; /* see the opcode */
  uint16_t step; /* index of the region's step, for counters */
  uint32_t wait_load; /* load commands that must have finished */
  uint32_t wait_compute; /* compute commands that must have finished */
  uint32_t wait_store; /* store commands that must have finished */
  uint32_t tensor; /* index of the DRAM tensor */
  uint32_t out_channel; /* first output channel */
  uint32_t out_channels; /* output channels */
  uint32_t in_channel; /* first input channel of a group */
  uint32_t in_channels; /* input channels of a group */
  uint32_t kernel_row; /* first kernel row */
  uint32_t kernel_rows; /* kernel rows */
  uint32_t kernel_col; /* first kernel column */
  uint32_t kernel_cols; /* kernel columns */
  uint32_t sram; /* SRAM address of the weights */
};
_Static_assert(sizeof(struct sramtile_load_weights) == 56, "no gaps in sramtile_load_weights");

struct sramtile_store {
  uint8_t opcode; /* which command */
  uint8_t flags; /* see the opcode */
  uint16_t step; /* index of the region's step, for counters */
  uint32_t wait_load; /* load commands that must have finished */
  uint32_t wait_compute; /* compute commands that must have finished */
  uint32_t wait_store; /* store commands that must have finished */
  uint32_t tensor; /* index of the DRAM tensor */
  uint32_t channel; /* first channel */
  uint32_t channels; /* channels */
  uint32_t row; /* first row */
  uint32_t rows; /* rows */
  uint32_t col; /* first column */
  uint32_t cols; /* columns */
  uint32_t sram; /* SRAM address of the map */
  uint32_t block_bytes; /* bytes from one channel block to the next */
  uint32_t row_bytes; /* bytes from one row to the next */
};
_Static_assert(sizeof(struct sramtile_store) == 56, "no gaps in sramtile_store");

struct sramtile_conv {
  uint8_t opcode; /* which command */
  uint8_t flags; /* see the opcode */
  uint16_t step; /* index of the region's step, for counters */
  uint32_t wait_load; /* load commands that must have finished */
  uint32_t wait_compute; /* compute commands that must have finished */
  uint32_t wait_store; /* store commands that must have finished */
  uint32_t input; /* SRAM address of the input map */
  uint32_t in_block_bytes; /* bytes from one channel block of the input map to the next */
  uint32_t in_rows; /* rows of the input map; 0: the chunk lies wholly in padding */
  uint32_t in_cols; /* columns of the input map */
  uint32_t in_channels; /* input channels, of all groups */
  uint32_t weights; /* SRAM address of the weights */
  uint32_t bias; /* SRAM address of the bias, a map of one row and column */
  uint32_t accumulators; /* SRAM address of the accumulators, a map like the output in the accumulator's type */
  uint32_t output; /* SRAM address of the output map; may equal the accumulators' when the types are of one size */
  uint32_t out_block_bytes; /* bytes from one channel block of the output map to the next */
  uint32_t out_rows; /* rows of the output map */
  uint32_t out_cols; /* columns of the output map */
  uint32_t out_channels; /* output channels, of all groups */
  uint32_t groups; /* independent groups of channels */
  uint32_t kernel_rows; /* rows of the kernel */
  uint32_t kernel_cols; /* columns of the kernel */
  uint32_t stride_rows; /* row stride */
  uint32_t stride_cols; /* column stride */
  uint32_t dilation_rows; /* row dilation */
  uint32_t dilation_cols; /* column dilation */
  int32_t pad_top; /* padding rows above the input map */
  int32_t pad_left; /* padding columns left of the input map */
  float clip_low; /* least value put out */
  float clip_high; /* greatest value put out */
  uint8_t input_dtype; /* see Dtype */
  uint8_t weight_dtype; /* see Dtype */
  uint8_t accumulator_dtype; /* see Dtype */
  uint8_t output_dtype; /* see Dtype */
};
_Static_assert(sizeof(struct sramtile_conv) == 116, "no gaps in sramtile_conv");

#endif
