/* The rules of loads and stores. */
#include "rules.h"

/* One dimension of a box: not empty, and it ends within the tensor. */
#define WITHIN(record, first, extent, dim)                                     \
  do {                                                                         \
    POSITIVE(record, extent);                                                  \
    if ((uint64_t)(record)->first + (record)->extent > (dim)) {                \
      return sramtile_fail(at, SRAMTILE_ERROR_BOX, #extent, (record)->extent); \
    }                                                                          \
  } while (0)

/* The same of taps, which have a step. */
#define TAPS_WITHIN(record, first, extent, step, dim)                                          \
  do {                                                                                         \
    POSITIVE(record, extent);                                                                  \
    const int64_t last = (record)->first + ((int64_t)(record)->extent - 1) * (record)->step; \
    if ((record)->first >= (dim) || last < 0 || last >= (dim)) {                               \
      return sramtile_fail(at, SRAMTILE_ERROR_BOX, #extent, (record)->extent);                 \
    }                                                                                          \
  } while (0)

/* LOAD and STORE. */
static int32_t check_map(const struct sramtile_program* program, const struct sramtile_load* map,
                         const struct sramtile_tensor* tensor, const struct sramtile_fault* at) {
  if (tensor->layout != SRAMTILE_LAYOUT_MAP) return sramtile_fail(at, SRAMTILE_ERROR_LAYOUT, "tensor", map->tensor);
  if (map->opcode == SRAMTILE_OP_STORE && tensor->place == SRAMTILE_PLACE_CONSTANT) {
    return sramtile_fail(at, SRAMTILE_ERROR_CONSTANT_STORE, "tensor", map->tensor);
  }
  if (map->opcode == SRAMTILE_OP_STORE && tensor->traffic == SRAMTILE_TRAFFIC_WEIGHTS) {
    return sramtile_fail(at, SRAMTILE_ERROR_WEIGHTS_STORE, "tensor", map->tensor);
  }
  WITHIN(map, channel, channels, tensor->dim0);
  WITHIN(map, row, rows, tensor->dim1);
  WITHIN(map, col, cols, tensor->dim2);
  if (map->row_bytes != sramtile_row_bytes(&program->header, map->cols)) {
    return sramtile_fail(at, SRAMTILE_ERROR_ROW_BYTES, "row_bytes", map->row_bytes);
  }
  return sramtile_check_block(&program->header, map->rows, map->cols, map->block_bytes, "block_bytes", at);
}

static int32_t check_weights(const struct sramtile_program* program, const struct sramtile_load_weights* load,
                             const struct sramtile_tensor* tensor, const struct sramtile_fault* at) {
  const uint32_t lanes = program->header.lanes;
  const int packed = tensor->layout == SRAMTILE_LAYOUT_PACKED;
  if (!packed && tensor->layout != SRAMTILE_LAYOUT_WEIGHTS) {
    return sramtile_fail(at, SRAMTILE_ERROR_LAYOUT, "tensor", load->tensor);
  }
  WITHIN(load, out_channel, out_channels, (uint64_t)tensor->dim0 * tensor->dim1);
  WITHIN(load, in_channel, in_channels, tensor->dim2);
  TAPS_WITHIN(load, kernel_row, kernel_rows, kernel_row_step, tensor->dim3);
  TAPS_WITHIN(load, kernel_col, kernel_cols, kernel_col_step, tensor->dim4);
  if (packed && load->out_channel % lanes != 0) {
    return sramtile_fail(at, SRAMTILE_ERROR_PACKED_BOX, "out_channel", load->out_channel);
  }
  if (packed && load->in_channel % lanes != 0) {
    return sramtile_fail(at, SRAMTILE_ERROR_PACKED_BOX, "in_channel", load->in_channel);
  }
  const uint64_t end = (uint64_t)load->out_channel + load->out_channels;
  if (end % tensor->dim1 != 0 && load->out_channel / tensor->dim1 != (end - 1) / tensor->dim1) {
    return sramtile_fail(at, SRAMTILE_ERROR_GROUP_BOX, "out_channels", load->out_channels);
  }
  return SRAMTILE_OK;
}

static int32_t check_table(const struct sramtile_load_table* load, const struct sramtile_tensor* tensor,
                           const struct sramtile_fault* at) {
  if (tensor->layout != SRAMTILE_LAYOUT_TABLE) return sramtile_fail(at, SRAMTILE_ERROR_LAYOUT, "tensor", load->tensor);
  WITHIN(load, first, count, tensor->dim0);
  return SRAMTILE_OK;
}

static int32_t check_copy(const struct sramtile_program* program, const struct sramtile_copy* copy,
                          const struct sramtile_fault* at) {
  POSITIVE(copy, channels);
  POSITIVE(copy, rows);
  POSITIVE(copy, cols);
  return sramtile_check_block(&program->header, copy->rows, copy->cols, copy->block_bytes, "block_bytes", at);
}

int32_t sramtile_check_dma(const struct sramtile_program* program, const union sramtile_any_command* command,
                           int in_prologue, const struct sramtile_fault* at) {
  if (command->common.opcode == SRAMTILE_OP_COPY) return check_copy(program, &command->copy, at);
  const uint32_t index = command->load.tensor; /* all others have this field in one place */
  if (index >= program->header.tensor_count) return sramtile_fail(at, SRAMTILE_ERROR_NO_TENSOR, "tensor", index);
  const struct sramtile_tensor tensor = sramtile_tensor_at(program, index);
  if (in_prologue && tensor.image_stride != 0) {
    return sramtile_fail(at, SRAMTILE_ERROR_PROLOGUE_IMAGE, "tensor", index);
  }
  switch (command->common.opcode) {
    case SRAMTILE_OP_LOAD_WEIGHTS:
      return check_weights(program, &command->load_weights, &tensor, at);
    case SRAMTILE_OP_LOAD_TABLE:
      return check_table(&command->load_table, &tensor, at);
    default:
      return check_map(program, &command->load, &tensor, at);
  }
}
