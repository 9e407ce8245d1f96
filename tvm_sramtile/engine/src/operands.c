/* Which ranges of SRAM a command reads and writes. */
#include "machine.h"

static struct sramtile_operand map_operand(const struct sramtile_header* chip, const char* field, uint32_t start,
                                           uint32_t channels, uint32_t rows, uint32_t cols, uint64_t block_bytes) {
  const uint64_t bytes = sramtile_mul(sramtile_ceil_div(channels, chip->lanes), block_bytes);
  return (struct sramtile_operand){field, start, bytes, block_bytes, channels, rows, cols};
}

/* A map that is moved, and no operand of a computation: it ends with its last row. */
static struct sramtile_operand moved_operand(const struct sramtile_header* chip, const char* field, uint32_t start,
                                             uint32_t channels, uint32_t rows, uint32_t cols, uint64_t block_bytes) {
  const uint64_t before = sramtile_mul(sramtile_ceil_div(channels, chip->lanes) - 1, block_bytes);
  const uint64_t bytes = sramtile_add(before, sramtile_mul(rows, sramtile_row_bytes(chip, cols)));
  return (struct sramtile_operand){field, start, bytes, block_bytes, channels, rows, cols};
}

static struct sramtile_operand weights_operand(const struct sramtile_header* chip, const char* field, uint32_t start,
                                               uint32_t out_channels, uint32_t in_channels, uint64_t taps) {
  const uint64_t rows = sramtile_mul(sramtile_round_up(out_channels, chip->lanes), in_channels);
  const uint64_t bytes = sramtile_mul(sramtile_mul(rows, taps), SRAMTILE_ELEM_BYTES);
  return (struct sramtile_operand){.field = field, .start = start, .bytes = bytes};
}

static struct sramtile_operand table_operand(const char* field, uint32_t start, uint64_t outputs, uint64_t taps) {
  const uint64_t bytes = sramtile_mul(outputs * taps, sizeof(struct sramtile_entry));
  return (struct sramtile_operand){.field = field, .start = start, .bytes = bytes};
}

int sramtile_has_products(const struct sramtile_conv* conv) {
  return conv->in_rows > 0 && conv->in_cols > 0 && conv->kernel_rows > 0 && conv->kernel_cols > 0;
}

static int conv_operands(const struct sramtile_header* chip, const struct sramtile_conv* conv,
                         struct sramtile_operand* operands) {
  int count = 0;
  operands[count++] = map_operand(chip, "accumulators", conv->accumulators, conv->out_channels, conv->out_map_rows,
                                  conv->out_map_cols, conv->out_block_bytes);
  if (conv->flags & SRAMTILE_CONV_LAST) {
    operands[count] = operands[0];
    operands[count].field = "output";
    operands[count++].start = conv->output;
  }
  if (sramtile_has_products(conv)) {
    operands[count++] = map_operand(chip, "input", conv->input, conv->in_channels, conv->in_rows, conv->in_cols,
                                    conv->in_block_bytes);
    operands[count++] = weights_operand(chip, "weights", conv->weights, conv->out_channels,
                                        conv->in_channels / conv->groups,
                                        (uint64_t)conv->kernel_rows * conv->kernel_cols);
  }
  if (conv->flags & SRAMTILE_CONV_BIAS) {
    const uint64_t block_bytes = sramtile_mul(sramtile_round_up(1, chip->lines), sramtile_row_bytes(chip, 1));
    operands[count++] = map_operand(chip, "bias", conv->bias, conv->out_channels, 1, 1, block_bytes);
  }
  return count;
}

static int pool_operands(const struct sramtile_header* chip, const struct sramtile_pool* pool,
                         struct sramtile_operand* operands) {
  operands[0] = map_operand(chip, "output", pool->output, pool->channels, pool->out_rows, pool->out_cols,
                            pool->out_block_bytes);
  if (pool->in_rows == 0 || pool->in_cols == 0) return 1;
  operands[1] = map_operand(chip, "input", pool->input, pool->channels, pool->in_rows, pool->in_cols,
                            pool->in_block_bytes);
  return 2;
}

static int resize_operands(const struct sramtile_header* chip, const struct sramtile_resize* resize,
                           struct sramtile_operand* operands) {
  operands[0] = map_operand(chip, "output", resize->output, resize->channels, resize->out_rows, resize->out_cols,
                            resize->out_block_bytes);
  operands[1] = map_operand(chip, "input", resize->input, resize->channels, resize->in_rows, resize->in_cols,
                            resize->in_block_bytes);
  operands[2] = table_operand("row_table", resize->row_table, resize->out_rows, resize->row_taps);
  operands[3] = table_operand("col_table", resize->col_table, resize->out_cols, resize->col_taps);
  return 4;
}

static int eltwise_operands(const struct sramtile_header* chip, const struct sramtile_eltwise* eltwise,
                            struct sramtile_operand* operands) {
  const uint32_t channels = eltwise->channels, rows = eltwise->rows, cols = eltwise->cols;
  const int vector = eltwise->partner_kind == SRAMTILE_PARTNER_VECTOR;
  operands[0] = map_operand(chip, "output", eltwise->output, channels, rows, cols, eltwise->out_block_bytes);
  operands[1] = map_operand(chip, "input", eltwise->input, channels, rows, cols, eltwise->in_block_bytes);
  if (!vector && eltwise->partner_kind != SRAMTILE_PARTNER_MAP) return 2;
  operands[2] = map_operand(chip, "partner", eltwise->partner, channels, vector ? 1 : rows, vector ? 1 : cols,
                            eltwise->partner_block_bytes);
  return 3;
}

int sramtile_operands(const struct sramtile_program* program, const union sramtile_any_command* command,
                      struct sramtile_operand* operands) {
  const struct sramtile_header* const chip = &program->header;
  const struct sramtile_load* const map = &command->load; /* STORE has the same fields */
  const struct sramtile_load_weights* const weights = &command->load_weights;
  const struct sramtile_load_table* const table = &command->load_table;
  const struct sramtile_copy* const copy = &command->copy;
  switch (command->common.opcode) {
    case SRAMTILE_OP_CONV:
      return conv_operands(chip, &command->conv, operands);
    case SRAMTILE_OP_POOL:
      return pool_operands(chip, &command->pool, operands);
    case SRAMTILE_OP_RESIZE:
      return resize_operands(chip, &command->resize, operands);
    case SRAMTILE_OP_ELTWISE:
      return eltwise_operands(chip, &command->eltwise, operands);
    case SRAMTILE_OP_LOAD_WEIGHTS:
      operands[0] = weights_operand(chip, "sram", weights->sram, weights->out_channels, weights->in_channels,
                                    (uint64_t)weights->kernel_rows * weights->kernel_cols);
      return 1;
    case SRAMTILE_OP_LOAD_TABLE:
      operands[0] = table_operand("sram", table->sram, table->count, sramtile_tensor_at(program, table->tensor).dim1);
      return 1;
    case SRAMTILE_OP_COPY:
      operands[0] = moved_operand(chip, "target", copy->target, copy->channels, copy->rows, copy->cols,
                                  copy->block_bytes);
      operands[1] = operands[0];
      operands[1].field = "source";
      operands[1].start = copy->source;
      return 2;
    default:
      operands[0] = moved_operand(chip, "sram", map->sram, map->channels, map->rows, map->cols, map->block_bytes);
      return 1;
  }
}
