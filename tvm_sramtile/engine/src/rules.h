/* What the files of the validator share. */
#ifndef SRAMTILE_RULES_H
#define SRAMTILE_RULES_H

#include "machine.h"

#define POSITIVE(record, field)                                                              \
  do {                                                                                       \
    if ((record)->field == 0) return sramtile_fail(at, SRAMTILE_ERROR_NOT_POSITIVE, #field, 0); \
  } while (0)

/* A field that is one of an enumeration's members. */
#define KIND(record, field, count)                                                                          \
  do {                                                                                                      \
    if ((record)->field >= (count)) return sramtile_fail(at, SRAMTILE_ERROR_KIND, #field, (record)->field); \
  } while (0)

/* validate_dma.c, validate_compute.c: the rules of one command, all but where its operands lie. */
int32_t sramtile_check_dma(const struct sramtile_program* program, const union sramtile_any_command* command,
                           int in_prologue, const struct sramtile_fault* at);
int32_t sramtile_check_compute(const struct sramtile_program* program, const union sramtile_any_command* command,
                               const struct sramtile_fault* at);

/* validate_operands.c: each operand lies within one memory, and how far they reach is added to the peak; what a compute
 * command writes overlaps nothing else. */
int32_t sramtile_check_operands(const struct sramtile_program* program, const union sramtile_any_command* command,
                                struct sramtile_peak* peak, const struct sramtile_fault* at);
/* A map's blocks hold its rows. */
int32_t sramtile_check_block(const struct sramtile_header* chip, uint32_t rows, uint32_t cols, uint32_t block_bytes,
                             const char* field, const struct sramtile_fault* at);

#endif
