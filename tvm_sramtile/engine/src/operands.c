/* Which ranges of SRAM a command reads and writes. */
#include "machine.h"

/* Block steps up to the last block, of which only the rows count: what follows them may belong to another operand. */
static uint64_t map_bytes(const struct sramtile_header* chip, uint32_t channels, uint32_t rows, uint32_t cols,
                          uint64_t block_bytes) {
  const uint64_t rows_bytes = sramtile_mul(sramtile_round_up(rows, chip->lines), sramtile_row_bytes(chip, cols));
  const uint64_t blocks = sramtile_ceil_div(channels, chip->lanes);
  return sramtile_add(sramtile_mul(blocks - 1, block_bytes), rows_bytes);
}

static uint64_t weight_bytes(const struct sramtile_header* chip, uint32_t out_channels, uint32_t in_channels,
                             uint32_t kernel_rows, uint32_t kernel_cols) {
  const uint64_t taps = (uint64_t)kernel_rows * kernel_cols;
  const uint64_t rows = sramtile_mul(sramtile_round_up(out_channels, chip->lanes), in_channels);
  return sramtile_mul(sramtile_mul(rows, taps), SRAMTILE_ELEM_BYTES);
}

static uint64_t bias_bytes(const struct sramtile_header* chip, uint32_t channels) {
  const uint64_t block_bytes = sramtile_mul(sramtile_round_up(1, chip->lines), sramtile_row_bytes(chip, 1));
  return sramtile_mul(sramtile_ceil_div(channels, chip->lanes), block_bytes);
}

static int conv_operands(const struct sramtile_header* chip, const struct sramtile_conv* conv,
                         struct sramtile_operand* operands) {
  const uint64_t out_bytes = map_bytes(chip, conv->out_channels, conv->out_rows, conv->out_cols, conv->out_block_bytes);
  int count = 0;
  operands[count++] = (struct sramtile_operand){"accumulators", conv->accumulators, out_bytes};
  if (conv->flags & SRAMTILE_CONV_LAST) {
    operands[count++] = (struct sramtile_operand){"output", conv->output, out_bytes};
  }
  if (conv->in_rows > 0) {
    const uint32_t ipg = conv->in_channels / conv->groups;
    operands[count++] = (struct sramtile_operand){
        "input", conv->input, map_bytes(chip, conv->in_channels, conv->in_rows, conv->in_cols, conv->in_block_bytes)};
    operands[count++] = (struct sramtile_operand){
        "weights", conv->weights, weight_bytes(chip, conv->out_channels, ipg, conv->kernel_rows, conv->kernel_cols)};
  }
  if (conv->flags & SRAMTILE_CONV_BIAS) {
    operands[count++] = (struct sramtile_operand){"bias", conv->bias, bias_bytes(chip, conv->out_channels)};
  }
  return count;
}

int sramtile_operands(const struct sramtile_header* chip, const union sramtile_any_command* command,
                      struct sramtile_operand* operands) {
  if (command->common.opcode == SRAMTILE_OP_CONV) return conv_operands(chip, &command->conv, operands);
  if (command->common.opcode == SRAMTILE_OP_LOAD_WEIGHTS) {
    const struct sramtile_load_weights* const load = &command->load_weights;
    operands[0] = (struct sramtile_operand){
        "sram", load->sram,
        weight_bytes(chip, load->out_channels, load->in_channels, load->kernel_rows, load->kernel_cols)};
  } else {
    const struct sramtile_load* const map = &command->load;
    operands[0] = (struct sramtile_operand){
        "sram", map->sram, map_bytes(chip, map->channels, map->rows, map->cols, map->block_bytes)};
  }
  return 1;
}
