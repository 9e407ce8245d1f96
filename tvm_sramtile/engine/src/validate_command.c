/* The rules of each opcode. */
#include "machine.h"

#define POSITIVE(record, field)                                                              \
  do {                                                                                       \
    if ((record)->field == 0) return sramtile_fail(at, SRAMTILE_ERROR_NOT_POSITIVE, #field, 0); \
  } while (0)

#define DTYPE(record, field)                                                                                \
  do {                                                                                                      \
    if ((record)->field >= SRAMTILE_DTYPE_COUNT) {                                                          \
      return sramtile_fail(at, SRAMTILE_ERROR_KIND, #field, (record)->field);                               \
    }                                                                                                       \
  } while (0)

/* One dimension of a box: not empty, and it ends within the tensor. */
#define WITHIN(record, first, extent, dim)                                                                  \
  do {                                                                                                      \
    POSITIVE(record, extent);                                                                               \
    if ((uint64_t)(record)->first + (record)->extent > (dim)) {                                             \
      return sramtile_fail(at, SRAMTILE_ERROR_BOX, #extent, (record)->extent);                              \
    }                                                                                                       \
  } while (0)

static int32_t check_operands(const struct sramtile_program* program, const union sramtile_any_command* command,
                              const struct sramtile_fault* at) {
  struct sramtile_operand operands[SRAMTILE_MAX_OPERANDS];
  const int count = sramtile_operands(&program->header, command, operands);
  for (int index = 0; index < count; index++) {
    const struct sramtile_operand* const operand = &operands[index];
    if (operand->start % SRAMTILE_ELEM_BYTES != 0) {
      return sramtile_fail(at, SRAMTILE_ERROR_MISALIGNED, operand->field, operand->start);
    }
    const uint64_t end = sramtile_add(operand->start, operand->bytes);
    int inside = 0;
    for (uint32_t memory = 0; memory < SRAMTILE_MEMORIES; memory++) {
      inside |= operand->start >= program->memory_start[memory] && end <= program->memory_end[memory];
    }
    if (!inside) return sramtile_fail(at, SRAMTILE_ERROR_NOT_IN_MEMORY, operand->field, operand->start);
  }
  return SRAMTILE_OK;
}

static int32_t check_block(const struct sramtile_header* chip, uint32_t rows, uint64_t row_bytes, uint32_t block_bytes,
                           const char* field, const struct sramtile_fault* at) {
  if (block_bytes % SRAMTILE_ELEM_BYTES != 0) return sramtile_fail(at, SRAMTILE_ERROR_MISALIGNED, field, block_bytes);
  if (block_bytes < sramtile_mul(sramtile_round_up(rows, chip->lines), row_bytes)) {
    return sramtile_fail(at, SRAMTILE_ERROR_BLOCK_BYTES, field, block_bytes);
  }
  return SRAMTILE_OK;
}

static int32_t check_use(const struct sramtile_program* program, uint32_t index, int in_prologue,
                         struct sramtile_tensor* tensor, const struct sramtile_fault* at) {
  if (index >= program->header.tensor_count) return sramtile_fail(at, SRAMTILE_ERROR_NO_TENSOR, "tensor", index);
  *tensor = sramtile_tensor_at(program, index);
  if (in_prologue && tensor->per_image) return sramtile_fail(at, SRAMTILE_ERROR_PROLOGUE_IMAGE, "tensor", index);
  return SRAMTILE_OK;
}

/* LOAD and STORE. */
static int32_t check_map(const struct sramtile_program* program, const struct sramtile_load* map, int in_prologue,
                         const struct sramtile_fault* at) {
  struct sramtile_tensor tensor;
  const int32_t code = check_use(program, map->tensor, in_prologue, &tensor, at);
  if (code != SRAMTILE_OK) return code;
  if (map->flags != 0) return sramtile_fail(at, SRAMTILE_ERROR_FLAGS, "flags", map->flags);
  if (tensor.layout != SRAMTILE_LAYOUT_NCHW) return sramtile_fail(at, SRAMTILE_ERROR_LAYOUT, "tensor", map->tensor);
  if (map->opcode == SRAMTILE_OP_STORE && tensor.place == SRAMTILE_PLACE_CONSTANT) {
    return sramtile_fail(at, SRAMTILE_ERROR_CONSTANT_STORE, "tensor", map->tensor);
  }
  if (map->opcode == SRAMTILE_OP_STORE && tensor.traffic == SRAMTILE_TRAFFIC_WEIGHTS) {
    return sramtile_fail(at, SRAMTILE_ERROR_WEIGHTS_STORE, "tensor", map->tensor);
  }
  WITHIN(map, channel, channels, tensor.dim1);
  WITHIN(map, row, rows, tensor.dim2);
  WITHIN(map, col, cols, tensor.dim3);
  if (map->row_bytes != sramtile_row_bytes(&program->header, map->cols)) {
    return sramtile_fail(at, SRAMTILE_ERROR_ROW_BYTES, "row_bytes", map->row_bytes);
  }
  return check_block(&program->header, map->rows, map->row_bytes, map->block_bytes, "block_bytes", at);
}

static int32_t check_weights(const struct sramtile_program* program, const struct sramtile_load_weights* load,
                             int in_prologue, const struct sramtile_fault* at) {
  struct sramtile_tensor tensor;
  const int32_t code = check_use(program, load->tensor, in_prologue, &tensor, at);
  if (code != SRAMTILE_OK) return code;
  if (load->flags != 0) return sramtile_fail(at, SRAMTILE_ERROR_FLAGS, "flags", load->flags);
  if (tensor.layout == SRAMTILE_LAYOUT_NCHW) return sramtile_fail(at, SRAMTILE_ERROR_LAYOUT, "tensor", load->tensor);
  WITHIN(load, out_channel, out_channels, tensor.dim0);
  WITHIN(load, in_channel, in_channels, tensor.dim1);
  WITHIN(load, kernel_row, kernel_rows, tensor.dim2);
  WITHIN(load, kernel_col, kernel_cols, tensor.dim3);
  const int whole = load->in_channels == tensor.dim1 && load->kernel_rows == tensor.dim2 &&
                    load->kernel_cols == tensor.dim3 && load->out_channel % program->header.lanes == 0;
  if (tensor.layout == SRAMTILE_LAYOUT_PACKED && !whole) {
    return sramtile_fail(at, SRAMTILE_ERROR_PACKED_BOX, "tensor", load->tensor);
  }
  return SRAMTILE_OK;
}

static int32_t check_conv_flags(const struct sramtile_conv* conv, const struct sramtile_fault* at) {
  const uint32_t known = SRAMTILE_CONV_FIRST | SRAMTILE_CONV_LAST | SRAMTILE_CONV_BIAS | SRAMTILE_CONV_CLIP;
  if (conv->flags & ~known) return sramtile_fail(at, SRAMTILE_ERROR_FLAGS, "flags", conv->flags);
  if ((conv->flags & (SRAMTILE_CONV_BIAS | SRAMTILE_CONV_CLIP)) && !(conv->flags & SRAMTILE_CONV_LAST)) {
    return sramtile_fail(at, SRAMTILE_ERROR_NEEDS_LAST, "flags", conv->flags);
  }
  /* A NaN compares false with everything. */
  if ((conv->flags & SRAMTILE_CONV_CLIP) && !(conv->clip_low <= conv->clip_high)) {
    return sramtile_fail_real(at, SRAMTILE_ERROR_CLIP, "clip_low", (double)conv->clip_low);
  }
  return SRAMTILE_OK;
}

static int32_t check_conv_extents(const struct sramtile_conv* conv, const struct sramtile_fault* at) {
  if ((conv->in_rows == 0) != (conv->in_cols == 0)) {
    return sramtile_fail(at, SRAMTILE_ERROR_INPUT_EXTENT, "in_rows", conv->in_rows);
  }
  POSITIVE(conv, in_channels);
  POSITIVE(conv, out_rows);
  POSITIVE(conv, out_cols);
  POSITIVE(conv, out_channels);
  POSITIVE(conv, groups);
  POSITIVE(conv, kernel_rows);
  POSITIVE(conv, kernel_cols);
  POSITIVE(conv, stride_rows);
  POSITIVE(conv, stride_cols);
  POSITIVE(conv, dilation_rows);
  POSITIVE(conv, dilation_cols);
  if (conv->in_channels % conv->groups != 0 || conv->out_channels % conv->groups != 0) {
    return sramtile_fail(at, SRAMTILE_ERROR_GROUPS, "groups", conv->groups);
  }
  DTYPE(conv, input_dtype);
  DTYPE(conv, weight_dtype);
  DTYPE(conv, accumulator_dtype);
  DTYPE(conv, output_dtype);
  return SRAMTILE_OK;
}

/* The written operands, accumulators and output, come first. Neither may meet any other operand, except that the output
 * may be the accumulators. */
static int32_t check_overlap(const struct sramtile_program* program, const union sramtile_any_command* command,
                             const struct sramtile_fault* at) {
  struct sramtile_operand operands[SRAMTILE_MAX_OPERANDS];
  const int count = sramtile_operands(&program->header, command, operands);
  const int written = command->common.flags & SRAMTILE_CONV_LAST ? 2 : 1;
  for (int one = 0; one < written; one++) {
    for (int other = one + 1; other < count; other++) {
      const struct sramtile_operand* const a = &operands[one];
      const struct sramtile_operand* const b = &operands[other];
      const int same = other < written && a->start == b->start;
      if (!same && a->start < b->start + b->bytes && b->start < a->start + a->bytes) {
        return sramtile_fail(at, SRAMTILE_ERROR_OVERLAP, a->field, a->start);
      }
    }
  }
  return SRAMTILE_OK;
}

static int32_t check_conv(const struct sramtile_program* program, const union sramtile_any_command* command,
                          const struct sramtile_fault* at) {
  const struct sramtile_header* const chip = &program->header;
  const struct sramtile_conv* const conv = &command->conv;
  int32_t code = check_conv_flags(conv, at);
  if (code == SRAMTILE_OK) code = check_conv_extents(conv, at);
  if (code == SRAMTILE_OK && conv->in_rows > 0) {
    const uint64_t row_bytes = sramtile_row_bytes(chip, conv->in_cols);
    code = check_block(chip, conv->in_rows, row_bytes, conv->in_block_bytes, "in_block_bytes", at);
  }
  if (code == SRAMTILE_OK) {
    const uint64_t row_bytes = sramtile_row_bytes(chip, conv->out_cols);
    code = check_block(chip, conv->out_rows, row_bytes, conv->out_block_bytes, "out_block_bytes", at);
  }
  return code;
}

int32_t sramtile_validate_command(const struct sramtile_program* program, const union sramtile_any_command* command,
                                  int in_prologue, const struct sramtile_fault* at) {
  const int conv = command->common.opcode == SRAMTILE_OP_CONV;
  int32_t code;
  if (conv) {
    code = check_conv(program, command, at);
  } else if (command->common.opcode == SRAMTILE_OP_LOAD_WEIGHTS) {
    code = check_weights(program, &command->load_weights, in_prologue, at);
  } else {
    code = check_map(program, &command->load, in_prologue, at);
  }
  if (code == SRAMTILE_OK) code = check_operands(program, command, at);
  if (code == SRAMTILE_OK && conv) code = check_overlap(program, command, at);
  return code;
}
