/* Made by tvm_sramtile/isa/header.py from tvm_sramtile/isa/table.py; do not edit. */
#ifndef SRAMTILE_ISA_H
#define SRAMTILE_ISA_H
#include <stdint.h>

#define SRAMTILE_MAGIC 0x4D545253u
#define SRAMTILE_VERSION 1u
#define SRAMTILE_MEMORIES 4u
#define SRAMTILE_MEMORY_ALIGN_BYTES 4u
#define SRAMTILE_TENSOR_AXES 5u
#define SRAMTILE_CONSTANTS_ALIGN_BYTES 64u
#define SRAMTILE_OPCODE_COUNT 9u
#define SRAMTILE_MAX_STEPS 65536u

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
  SRAMTILE_LAYOUT_MAP = 0,
  SRAMTILE_LAYOUT_WEIGHTS = 1,
  SRAMTILE_LAYOUT_PACKED = 2,
  SRAMTILE_LAYOUT_TABLE = 3,
  SRAMTILE_LAYOUT_COUNT = 4
};

enum {
  SRAMTILE_POOLING_MAX = 0,
  SRAMTILE_POOLING_AVERAGE_ALL = 1,
  SRAMTILE_POOLING_AVERAGE_VALID = 2,
  SRAMTILE_POOLING_COUNT = 3
};

enum {
  SRAMTILE_FUNCTION_COPY = 0,
  SRAMTILE_FUNCTION_ADD = 1,
  SRAMTILE_FUNCTION_SUBTRACT = 2,
  SRAMTILE_FUNCTION_REVERSE_SUBTRACT = 3,
  SRAMTILE_FUNCTION_MULTIPLY = 4,
  SRAMTILE_FUNCTION_DIVIDE = 5,
  SRAMTILE_FUNCTION_REVERSE_DIVIDE = 6,
  SRAMTILE_FUNCTION_MAXIMUM = 7,
  SRAMTILE_FUNCTION_MINIMUM = 8,
  SRAMTILE_FUNCTION_PRELU = 9,
  SRAMTILE_FUNCTION_CLIP = 10,
  SRAMTILE_FUNCTION_LEAKY_RELU = 11,
  SRAMTILE_FUNCTION_SIGMOID = 12,
  SRAMTILE_FUNCTION_TANH = 13,
  SRAMTILE_FUNCTION_EXP = 14,
  SRAMTILE_FUNCTION_SQRT = 15,
  SRAMTILE_FUNCTION_ABS = 16,
  SRAMTILE_FUNCTION_NEGATIVE = 17,
  SRAMTILE_FUNCTION_SILU = 18,
  SRAMTILE_FUNCTION_HARD_SWISH = 19,
  SRAMTILE_FUNCTION_COUNT = 20
};

enum {
  SRAMTILE_PARTNER_NONE = 0,
  SRAMTILE_PARTNER_MAP = 1,
  SRAMTILE_PARTNER_VECTOR = 2,
  SRAMTILE_PARTNER_VALUE = 3,
  SRAMTILE_PARTNER_COUNT = 4
};

enum {
  SRAMTILE_MODE_RUN = 0,
  SRAMTILE_MODE_COUNT_ONLY = 1,
  SRAMTILE_MODE_CHECKED = 2,
  SRAMTILE_MODE_COUNT = 3
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
  SRAMTILE_OP_LOAD_TABLE = 5,
  SRAMTILE_OP_POOL = 6,
  SRAMTILE_OP_RESIZE = 7,
  SRAMTILE_OP_ELTWISE = 8,
  SRAMTILE_OP_COPY = 9,
};

/* Indices into a counter block, and into what it holds for each step and opcode. */
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
enum {
  SRAMTILE_COMMAND_COUNT_COMMANDS = 0,
  SRAMTILE_COMMAND_COUNT_BUSY_CYCLES = 1,
  SRAMTILE_COMMAND_COUNT_MACS = 2,
  SRAMTILE_COMMAND_COUNT_INPUT_BYTES = 3,
  SRAMTILE_COMMAND_COUNT_WEIGHT_BYTES = 4,
  SRAMTILE_COMMAND_COUNT_OUTPUT_BYTES = 5,
  SRAMTILE_COMMAND_COUNT_PARTIAL_SUM_BYTES = 6,
  SRAMTILE_COMMAND_COUNTER_COUNT = 7
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
  uint32_t dim0; /* see Layout */
  uint32_t dim1; /* see Layout */
  uint32_t dim2; /* see Layout */
  uint32_t dim3; /* see Layout */
  uint32_t dim4; /* see Layout */
  uint32_t stride0; /* elements from one position of that axis to the next */
  uint32_t stride1; /* elements from one position of that axis to the next */
  uint32_t stride2; /* elements from one position of that axis to the next */
  uint32_t stride3; /* elements from one position of that axis to the next */
  uint32_t stride4; /* elements from one position of that axis to the next */
  uint32_t image_stride; /* elements from one image to the next; 0: all share one (weights and tables always) */
  uint64_t offset; /* see Place */
};
_Static_assert(sizeof(struct sramtile_tensor) == 56, "no gaps in sramtile_tensor");

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
  uint32_t out_channel; /* first output channel, counted through all groups */
  uint32_t out_channels; /* output channels */
  uint32_t in_channel; /* first input channel of a group */
  uint32_t in_channels; /* input channels of a group */
  uint32_t kernel_row; /* kernel row of the first row of taps */
  uint32_t kernel_rows; /* rows of taps */
  int32_t kernel_row_step; /* kernel rows from one row of taps to the next; negative: flipped */
  uint32_t kernel_col; /* kernel column of the first column of taps */
  uint32_t kernel_cols; /* columns of taps */
  int32_t kernel_col_step; /* kernel columns from one column of taps to the next; negative: flipped */
  uint32_t sram; /* SRAM address of the weights */
};
_Static_assert(sizeof(struct sramtile_load_weights) == 64, "no gaps in sramtile_load_weights");

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
  uint32_t out_map_rows; /* rows of the output map */
  uint32_t out_map_cols; /* columns of the output map */
  uint32_t out_row; /* first output row that is computed */
  uint32_t out_rows; /* output rows that are computed */
  uint32_t out_row_step; /* rows of the output map from one to the next */
  uint32_t out_col; /* first output column that is computed */
  uint32_t out_cols; /* output columns that are computed */
  uint32_t out_col_step; /* columns of the output map from one to the next */
  uint32_t out_channels; /* output channels, of all groups */
  uint32_t groups; /* independent groups of channels */
  uint32_t unit_rows; /* rows of the unit kernel that computes it */
  uint32_t unit_cols; /* columns of the unit kernel that computes it */
  uint32_t kernel_rows; /* rows of taps */
  uint32_t kernel_cols; /* columns of taps */
  uint32_t stride_rows; /* input rows from one output row to the next */
  uint32_t stride_cols; /* input columns from one output column to the next */
  uint32_t dilation_rows; /* input rows from one tap to the next */
  uint32_t dilation_cols; /* input columns from one tap to the next */
  int32_t pad_top; /* rows by which the first tap of the first output lies above the input map; may be negative */
  int32_t pad_left; /* columns by which it lies left of the input map; may be negative */
  float clip_low; /* least value put out */
  float clip_high; /* greatest value put out */
  uint8_t input_dtype; /* see Dtype */
  uint8_t weight_dtype; /* see Dtype */
  uint8_t accumulator_dtype; /* see Dtype */
  uint8_t output_dtype; /* see Dtype */
};
_Static_assert(sizeof(struct sramtile_conv) == 148, "no gaps in sramtile_conv");

struct sramtile_load_table {
  uint8_t opcode; /* which command */
  uint8_t flags; /* see the opcode */
  uint16_t step; /* index of the region's step, for counters */
  uint32_t wait_load; /* load commands that must have finished */
  uint32_t wait_compute; /* compute commands that must have finished */
  uint32_t wait_store; /* store commands that must have finished */
  uint32_t tensor; /* index of the DRAM tensor */
  uint32_t first; /* first output */
  uint32_t count; /* outputs */
  uint32_t sram; /* SRAM address of the entries */
};
_Static_assert(sizeof(struct sramtile_load_table) == 32, "no gaps in sramtile_load_table");

struct sramtile_pool {
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
  uint32_t channels; /* channels */
  uint32_t output; /* SRAM address of the output map */
  uint32_t out_block_bytes; /* bytes from one channel block of the output map to the next */
  uint32_t out_rows; /* rows of the output map */
  uint32_t out_cols; /* columns of the output map */
  uint32_t kernel_rows; /* rows of taps */
  uint32_t kernel_cols; /* columns of taps */
  uint32_t stride_rows; /* input rows from one output row to the next */
  uint32_t stride_cols; /* input columns from one output column to the next */
  uint32_t dilation_rows; /* input rows from one tap to the next */
  uint32_t dilation_cols; /* input columns from one tap to the next */
  int32_t pad_top; /* rows by which the first tap of the first output lies above the input map; may be negative */
  int32_t pad_left; /* columns by which it lies left of the input map; may be negative */
  uint32_t pooling; /* see Pooling */
};
_Static_assert(sizeof(struct sramtile_pool) == 88, "no gaps in sramtile_pool");

struct sramtile_resize {
  uint8_t opcode; /* which command */
  uint8_t flags; /* see the opcode */
  uint16_t step; /* index of the region's step, for counters */
  uint32_t wait_load; /* load commands that must have finished */
  uint32_t wait_compute; /* compute commands that must have finished */
  uint32_t wait_store; /* store commands that must have finished */
  uint32_t input; /* SRAM address of the input map */
  uint32_t in_block_bytes; /* bytes from one channel block of the input map to the next */
  uint32_t in_rows; /* rows of the input map */
  uint32_t in_cols; /* columns of the input map */
  uint32_t in_row; /* position, in the tables, of the input map's first row */
  uint32_t in_col; /* position, in the tables, of the input map's first column */
  uint32_t channels; /* channels */
  uint32_t row_table; /* SRAM address of the entries of the output rows */
  uint32_t row_taps; /* taps of a row's entry */
  uint32_t col_table; /* SRAM address of the entries of the output columns */
  uint32_t col_taps; /* taps of a column's entry */
  uint32_t output; /* SRAM address of the output map */
  uint32_t out_block_bytes; /* bytes from one channel block of the output map to the next */
  uint32_t out_rows; /* rows of the output map */
  uint32_t out_cols; /* columns of the output map */
};
_Static_assert(sizeof(struct sramtile_resize) == 76, "no gaps in sramtile_resize");

struct sramtile_eltwise {
  uint8_t opcode; /* which command */
  uint8_t flags; /* see the opcode */
  uint16_t step; /* index of the region's step, for counters */
  uint32_t wait_load; /* load commands that must have finished */
  uint32_t wait_compute; /* compute commands that must have finished */
  uint32_t wait_store; /* store commands that must have finished */
  uint32_t input; /* SRAM address of the first map */
  uint32_t in_block_bytes; /* bytes from one of its channel blocks to the next */
  uint32_t partner; /* SRAM address of the second map or the vector */
  uint32_t partner_block_bytes; /* bytes from one of its channel blocks to the next */
  uint32_t partner_kind; /* see Partner */
  uint32_t output; /* SRAM address of the output map; may equal an input map's */
  uint32_t out_block_bytes; /* bytes from one channel block of the output map to the next */
  uint32_t rows; /* rows of the maps */
  uint32_t cols; /* columns of the maps */
  uint32_t channels; /* channels */
  uint32_t function; /* see Function */
  float value0; /* see Function and Partner */
  float value1; /* see Function */
};
_Static_assert(sizeof(struct sramtile_eltwise) == 68, "no gaps in sramtile_eltwise");

struct sramtile_copy {
  uint8_t opcode; /* which command */
  uint8_t flags; /* see the opcode */
  uint16_t step; /* index of the region's step, for counters */
  uint32_t wait_load; /* load commands that must have finished */
  uint32_t wait_compute; /* compute commands that must have finished */
  uint32_t wait_store; /* store commands that must have finished */
  uint32_t source; /* SRAM address of the first row */
  uint32_t target; /* SRAM address where it goes */
  uint32_t block_bytes; /* bytes from one channel block to the next, in both places */
  uint32_t channels; /* channels */
  uint32_t rows; /* rows */
  uint32_t cols; /* columns */
};
_Static_assert(sizeof(struct sramtile_copy) == 40, "no gaps in sramtile_copy");

#endif
