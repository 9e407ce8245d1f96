/* The rules of where operands lie in SRAM. */
#include "rules.h"

int32_t sramtile_check_block(const struct sramtile_header* chip, uint32_t rows, uint32_t cols, uint32_t block_bytes,
                             const char* field, const struct sramtile_fault* at) {
  const uint64_t rows_bytes = sramtile_mul(sramtile_round_up(rows, chip->lines), sramtile_row_bytes(chip, cols));
  if (block_bytes % SRAMTILE_ELEM_BYTES != 0) return sramtile_fail(at, SRAMTILE_ERROR_MISALIGNED, field, block_bytes);
  if (block_bytes < rows_bytes) return sramtile_fail(at, SRAMTILE_ERROR_BLOCK_BYTES, field, block_bytes);
  return SRAMTILE_OK;
}

static int32_t check_place(const struct sramtile_program* program, const struct sramtile_operand* operand,
                           struct sramtile_peak* peak, const struct sramtile_fault* at) {
  if (operand->start % SRAMTILE_ELEM_BYTES != 0) {
    return sramtile_fail(at, SRAMTILE_ERROR_MISALIGNED, operand->field, operand->start);
  }
  const uint64_t end = sramtile_add(operand->start, operand->bytes);
  for (uint32_t memory = 0; memory < SRAMTILE_MEMORIES; memory++) {
    if (operand->start < program->memory_start[memory] || end > program->memory_end[memory]) continue;
    const uint64_t reached = end - program->memory_start[memory];
    if (reached > peak->bytes[memory]) peak->bytes[memory] = reached;
    return SRAMTILE_OK;
  }
  return sramtile_fail(at, SRAMTILE_ERROR_NOT_IN_MEMORY, operand->field, operand->start);
}

static int same_map(const struct sramtile_operand* a, const struct sramtile_operand* b) {
  return a->start == b->start && a->block_bytes == b->block_bytes && a->rows == b->rows && a->cols == b->cols;
}

/* The written operands come first: of a CONV the accumulators and the output, which may be the same map; else the
 * output, which for an ELTWISE may be the same map as one that it reads. */
static int32_t check_overlap(const union sramtile_any_command* command, const struct sramtile_operand* operands,
                             int count, const struct sramtile_fault* at) {
  const int conv = command->common.opcode == SRAMTILE_OP_CONV;
  const int written = conv && (command->common.flags & SRAMTILE_CONV_LAST) ? 2 : 1;
  for (int one = 0; one < written; one++) {
    for (int other = one + 1; other < count; other++) {
      const struct sramtile_operand* const a = &operands[one];
      const struct sramtile_operand* const b = &operands[other];
      const int may_be_same = conv ? other < written : command->common.opcode == SRAMTILE_OP_ELTWISE;
      if (may_be_same && same_map(a, b)) continue;
      if (a->start < b->start + b->bytes && b->start < a->start + a->bytes) {
        return sramtile_fail(at, SRAMTILE_ERROR_OVERLAP, a->field, a->start);
      }
    }
  }
  return SRAMTILE_OK;
}

int32_t sramtile_check_operands(const struct sramtile_program* program, const union sramtile_any_command* command,
                                struct sramtile_peak* peak, const struct sramtile_fault* at) {
  struct sramtile_operand operands[SRAMTILE_MAX_OPERANDS];
  const int count = sramtile_operands(program, command, operands);
  for (int index = 0; index < count; index++) {
    const int32_t code = check_place(program, &operands[index], peak, at);
    if (code != SRAMTILE_OK) return code;
  }
  const int compute = sramtile_opcode_queue(command->common.opcode) == SRAMTILE_QUEUE_COMPUTE;
  return compute ? check_overlap(command, operands, count, at) : SRAMTILE_OK;
}
