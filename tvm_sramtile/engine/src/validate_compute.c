/* The rules of the compute commands. */
#include "rules.h"

static int32_t check_conv_flags(const struct sramtile_conv* conv, const struct sramtile_fault* at) {
  const uint32_t known = SRAMTILE_CONV_FIRST | SRAMTILE_CONV_LAST | SRAMTILE_CONV_BIAS | SRAMTILE_CONV_CLIP;
  if (conv->flags & ~known) return sramtile_fail(at, SRAMTILE_ERROR_FLAGS, "flags", conv->flags);
  if ((conv->flags & (SRAMTILE_CONV_BIAS | SRAMTILE_CONV_CLIP)) && !(conv->flags & SRAMTILE_CONV_LAST)) {
    return sramtile_fail(at, SRAMTILE_ERROR_NEEDS_LAST, "flags", conv->flags);
  }
  /* A NaN compares false with everything. */
  if ((conv->flags & SRAMTILE_CONV_CLIP) && !(conv->clip_low <= conv->clip_high)) {
    return sramtile_fail_real(at, SRAMTILE_ERROR_LIMITS, "clip_low", (double)conv->clip_low);
  }
  return SRAMTILE_OK;
}

/* What of a window must be positive for CONV and POOL. */
#define WINDOW_STEPS(record)       \
  do {                             \
    POSITIVE(record, stride_rows);   \
    POSITIVE(record, stride_cols);   \
    POSITIVE(record, dilation_rows); \
    POSITIVE(record, dilation_cols); \
  } while (0)

/* Outputs along one axis of the output map: the last of them lies within it. */
#define OUTPUTS_WITHIN(conv, first, outputs, step, extent)                                                \
  do {                                                                                                    \
    if ((conv)->first + ((uint64_t)(conv)->outputs - 1) * (conv)->step >= (conv)->extent) {               \
      return sramtile_fail(at, SRAMTILE_ERROR_OUTPUTS, #outputs, (conv)->outputs);                        \
    }                                                                                                     \
  } while (0)

static int32_t check_conv_extents(const struct sramtile_conv* conv, const struct sramtile_fault* at) {
  POSITIVE(conv, in_channels);
  POSITIVE(conv, out_map_rows);
  POSITIVE(conv, out_map_cols);
  POSITIVE(conv, out_rows);
  POSITIVE(conv, out_row_step);
  POSITIVE(conv, out_cols);
  POSITIVE(conv, out_col_step);
  POSITIVE(conv, out_channels);
  POSITIVE(conv, groups);
  POSITIVE(conv, unit_rows);
  POSITIVE(conv, unit_cols);
  WINDOW_STEPS(conv);
  if (conv->kernel_rows > conv->unit_rows) {
    return sramtile_fail(at, SRAMTILE_ERROR_UNIT, "kernel_rows", conv->kernel_rows);
  }
  if (conv->kernel_cols > conv->unit_cols) {
    return sramtile_fail(at, SRAMTILE_ERROR_UNIT, "kernel_cols", conv->kernel_cols);
  }
  OUTPUTS_WITHIN(conv, out_row, out_rows, out_row_step, out_map_rows);
  OUTPUTS_WITHIN(conv, out_col, out_cols, out_col_step, out_map_cols);
  if (conv->in_channels % conv->groups != 0 || conv->out_channels % conv->groups != 0) {
    return sramtile_fail(at, SRAMTILE_ERROR_GROUPS, "groups", conv->groups);
  }
  KIND(conv, input_dtype, SRAMTILE_DTYPE_COUNT);
  KIND(conv, weight_dtype, SRAMTILE_DTYPE_COUNT);
  KIND(conv, accumulator_dtype, SRAMTILE_DTYPE_COUNT);
  KIND(conv, output_dtype, SRAMTILE_DTYPE_COUNT);
  return SRAMTILE_OK;
}

static int32_t check_conv(const struct sramtile_header* chip, const struct sramtile_conv* conv,
                          const struct sramtile_fault* at) {
  int32_t code = check_conv_flags(conv, at);
  if (code == SRAMTILE_OK) code = check_conv_extents(conv, at);
  if (code == SRAMTILE_OK && sramtile_has_products(conv)) {
    code = sramtile_check_block(chip, conv->in_rows, conv->in_cols, conv->in_block_bytes, "in_block_bytes", at);
  }
  if (code != SRAMTILE_OK) return code;
  return sramtile_check_block(chip, conv->out_map_rows, conv->out_map_cols, conv->out_block_bytes, "out_block_bytes",
                              at);
}

static int32_t check_pool(const struct sramtile_header* chip, const struct sramtile_pool* pool,
                          const struct sramtile_fault* at) {
  POSITIVE(pool, channels);
  POSITIVE(pool, out_rows);
  POSITIVE(pool, out_cols);
  POSITIVE(pool, kernel_rows);
  POSITIVE(pool, kernel_cols);
  WINDOW_STEPS(pool);
  KIND(pool, pooling, SRAMTILE_POOLING_COUNT);
  if (pool->in_rows > 0 && pool->in_cols > 0) {
    const int32_t code =
        sramtile_check_block(chip, pool->in_rows, pool->in_cols, pool->in_block_bytes, "in_block_bytes", at);
    if (code != SRAMTILE_OK) return code;
  }
  return sramtile_check_block(chip, pool->out_rows, pool->out_cols, pool->out_block_bytes, "out_block_bytes", at);
}

static int32_t check_resize(const struct sramtile_header* chip, const struct sramtile_resize* resize,
                            const struct sramtile_fault* at) {
  POSITIVE(resize, in_rows);
  POSITIVE(resize, in_cols);
  POSITIVE(resize, channels);
  POSITIVE(resize, row_taps);
  POSITIVE(resize, col_taps);
  POSITIVE(resize, out_rows);
  POSITIVE(resize, out_cols);
  const int32_t code =
      sramtile_check_block(chip, resize->in_rows, resize->in_cols, resize->in_block_bytes, "in_block_bytes", at);
  if (code != SRAMTILE_OK) return code;
  return sramtile_check_block(chip, resize->out_rows, resize->out_cols, resize->out_block_bytes, "out_block_bytes", at);
}

static int takes_partner(uint32_t function) {
  switch (function) {
    case SRAMTILE_FUNCTION_ADD:
    case SRAMTILE_FUNCTION_SUBTRACT:
    case SRAMTILE_FUNCTION_REVERSE_SUBTRACT:
    case SRAMTILE_FUNCTION_MULTIPLY:
    case SRAMTILE_FUNCTION_DIVIDE:
    case SRAMTILE_FUNCTION_REVERSE_DIVIDE:
    case SRAMTILE_FUNCTION_MAXIMUM:
    case SRAMTILE_FUNCTION_MINIMUM:
    case SRAMTILE_FUNCTION_PRELU:
      return 1;
    default:
      return 0;
  }
}

static int32_t check_function(const struct sramtile_eltwise* eltwise, const struct sramtile_fault* at) {
  const int alone = eltwise->partner_kind == SRAMTILE_PARTNER_NONE;
  KIND(eltwise, partner_kind, SRAMTILE_PARTNER_COUNT);
  KIND(eltwise, function, SRAMTILE_FUNCTION_COUNT);
  if (alone == takes_partner(eltwise->function)) {
    return sramtile_fail(at, alone ? SRAMTILE_ERROR_NEEDS_PARTNER : SRAMTILE_ERROR_NO_PARTNER, "partner_kind",
                         eltwise->partner_kind);
  }
  if (eltwise->function == SRAMTILE_FUNCTION_CLIP && !(eltwise->value0 <= eltwise->value1)) {
    return sramtile_fail_real(at, SRAMTILE_ERROR_LIMITS, "value0", (double)eltwise->value0);
  }
  return SRAMTILE_OK;
}

static int32_t check_eltwise(const struct sramtile_header* chip, const struct sramtile_eltwise* eltwise,
                             const struct sramtile_fault* at) {
  const uint32_t rows = eltwise->rows, cols = eltwise->cols;
  POSITIVE(eltwise, rows);
  POSITIVE(eltwise, cols);
  POSITIVE(eltwise, channels);
  int32_t code = check_function(eltwise, at);
  if (code == SRAMTILE_OK) code = sramtile_check_block(chip, rows, cols, eltwise->in_block_bytes, "in_block_bytes", at);
  const int vector = eltwise->partner_kind == SRAMTILE_PARTNER_VECTOR;
  if (code == SRAMTILE_OK && (vector || eltwise->partner_kind == SRAMTILE_PARTNER_MAP)) {
    code = sramtile_check_block(chip, vector ? 1 : rows, vector ? 1 : cols, eltwise->partner_block_bytes,
                                "partner_block_bytes", at);
  }
  if (code != SRAMTILE_OK) return code;
  return sramtile_check_block(chip, rows, cols, eltwise->out_block_bytes, "out_block_bytes", at);
}

int32_t sramtile_check_compute(const struct sramtile_program* program, const union sramtile_any_command* command,
                               const struct sramtile_fault* at) {
  const struct sramtile_header* const chip = &program->header;
  switch (command->common.opcode) {
    case SRAMTILE_OP_CONV:
      return check_conv(chip, &command->conv, at);
    case SRAMTILE_OP_POOL:
      return check_pool(chip, &command->pool, at);
    case SRAMTILE_OP_RESIZE:
      return check_resize(chip, &command->resize, at);
    default:
      return check_eltwise(chip, &command->eltwise, at);
  }
}
