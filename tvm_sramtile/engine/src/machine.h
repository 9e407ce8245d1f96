/* What the engine's files share: the program as read, errors, operands, time and counts. Not public. */
#ifndef SRAMTILE_MACHINE_H
#define SRAMTILE_MACHINE_H

#include <stddef.h>
#include <stdint.h>

#include "engine.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "programs are little-endian and read as they are");

enum { SRAMTILE_ELEM_BYTES = 4, SRAMTILE_MAX_LANES = 1024, SRAMTILE_MAX_OPERANDS = 5 };

/* An entry of a table, as it lies in SRAM. */
struct sramtile_entry {
  int32_t position; /* -1: no tap */
  float weight;
} __attribute__((may_alias));
_Static_assert(sizeof(struct sramtile_entry) == 8, "no gaps in sramtile_entry");

enum { SRAMTILE_PROLOGUE, SRAMTILE_BODY, SRAMTILE_PARTS };

/* How many bytes of each memory the operands of some commands reach. */
struct sramtile_peak {
  uint64_t bytes[SRAMTILE_MEMORIES];
};

/* A program's bytes and where its parts start. Records may lie unaligned: they are copied out, never pointed to. */
struct sramtile_program {
  struct sramtile_header header;
  const uint8_t* tensors;
  const uint8_t* commands;
  const uint8_t* constants;
  uint64_t memory_start[SRAMTILE_MEMORIES + 1]; /* SRAM address of each memory's first byte, and of the end */
  uint64_t memory_end[SRAMTILE_MEMORIES];       /* SRAM address after each memory's last byte */
  struct sramtile_peak peak[SRAMTILE_PARTS];    /* set by sramtile_validate */
};

/* A command of any opcode. */
union sramtile_any_command {
  struct sramtile_command common;
  struct sramtile_load load; /* STORE has the same fields */
  struct sramtile_load_weights load_weights;
  struct sramtile_load_table load_table;
  struct sramtile_store store;
  struct sramtile_conv conv;
  struct sramtile_pool pool;
  struct sramtile_resize resize;
  struct sramtile_eltwise eltwise;
  struct sramtile_copy copy;
};
_Static_assert(sizeof(struct sramtile_load) == sizeof(struct sramtile_store), "LOAD and STORE have the same fields");

/* Where the record under examination stands, and where the text of an error goes. */
struct sramtile_fault {
  const char* part;    /* "header", "tensor", "prologue command", "body command", "call" */
  int64_t index;       /* negative: the part has only one */
  const char* command; /* name of the opcode, or NULL */
  char* message;
  int32_t message_bytes;
};

/* A range of SRAM that a command reads or writes. */
struct sramtile_operand {
  const char* field; /* the field with its address */
  uint64_t start;
  uint64_t bytes;
  uint64_t block_bytes; /* of a map; its extents too. Else 0 */
  uint32_t channels, rows, cols;
};

/* What a call has measured so far, and the state of its timeline. All values saturate instead of overflowing. */
struct sramtile_measured {
  uint64_t* values; /* as in a counter block; the sums over all steps are taken last */
  uint64_t count;   /* of the values */
  struct sramtile_peak peak;
};

struct sramtile_timeline {
  uint64_t* finish_cycles[SRAMTILE_QUEUE_COUNT]; /* of each queue's n-th command, from the start of the part */
  uint32_t done[SRAMTILE_QUEUE_COUNT];
};

/* The DRAM of a call: the arguments and the workspace. */
struct sramtile_dram {
  void* const* arguments;
  uint8_t* workspace;
  int64_t image;
};

/* Multiply and add without overflow: what does not fit 64 bits is UINT64_MAX, larger than any extent that is legal. */
static inline uint64_t sramtile_mul(uint64_t a, uint64_t b) {
  uint64_t product;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static inline uint64_t sramtile_add(uint64_t a, uint64_t b) {
  uint64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

/* For values below 2^63 and positive divisors. */
static inline uint64_t sramtile_ceil_div(uint64_t value, uint64_t divisor) { return (value + divisor - 1) / divisor; }

static inline uint64_t sramtile_round_up(uint64_t value, uint64_t multiple) {
  return sramtile_mul(sramtile_ceil_div(value, multiple), multiple);
}

static inline uint64_t sramtile_row_bytes(const struct sramtile_header* chip, uint32_t cols) {
  return sramtile_mul(sramtile_round_up(cols, chip->column_align), (uint64_t)chip->lanes * SRAMTILE_ELEM_BYTES);
}

/* errors.c: write the message of an error and return its code. */
int32_t sramtile_fail(const struct sramtile_fault* at, int32_t code, const char* field, uint64_t value);
int32_t sramtile_fail_signed(const struct sramtile_fault* at, int32_t code, const char* field, int64_t value);
int32_t sramtile_fail_real(const struct sramtile_fault* at, int32_t code, const char* field, double value);

/* program.c */
int32_t sramtile_parse(struct sramtile_program* program, const uint8_t* bytes, uint64_t program_bytes,
                       struct sramtile_fault* at);
struct sramtile_tensor sramtile_tensor_at(const struct sramtile_program* program, uint32_t index);
uint64_t sramtile_tensor_elems(const struct sramtile_tensor* tensor); /* from the first to the last of an image */
uint32_t sramtile_opcode_bytes(uint8_t opcode);                       /* 0: there is no such opcode */
const char* sramtile_opcode_name(uint8_t opcode);
int32_t sramtile_opcode_queue(uint8_t opcode);
uint32_t sramtile_fetch(const uint8_t* bytes, union sramtile_any_command* command); /* returns its bytes */

/* validate.c: every rule of the instruction set, before anything is executed. */
int32_t sramtile_validate(struct sramtile_program* program, int32_t tensor_count, int64_t images,
                          struct sramtile_fault* at);

/* operands.c: the SRAM operands of a command, as many as returned; those that a compute command writes come first. */
int sramtile_operands(const struct sramtile_program* program, const union sramtile_any_command* command,
                      struct sramtile_operand* operands);
int sramtile_has_products(const struct sramtile_conv* conv); /* else a CONV uses no input and no weights */

/* shadow.c: no command reads SRAM that nothing has written before it. For programs that passed sramtile_validate. */
int32_t sramtile_check_reads(const struct sramtile_program* program, struct sramtile_fault* at);

/* dma.c, dma_weights.c */
uint8_t* sramtile_tensor_start(const struct sramtile_program* program, const struct sramtile_dram* dram,
                               const struct sramtile_tensor* tensor); /* its first byte, of the current image */
void sramtile_load(const struct sramtile_program* program, const struct sramtile_dram* dram, uint8_t* sram,
                   const struct sramtile_load* command);
void sramtile_load_weights(const struct sramtile_program* program, const struct sramtile_dram* dram, uint8_t* sram,
                           const struct sramtile_load_weights* command);
void sramtile_load_table(const struct sramtile_program* program, const struct sramtile_dram* dram, uint8_t* sram,
                         const struct sramtile_load_table* command);
void sramtile_copy(const struct sramtile_header* chip, uint8_t* sram, const struct sramtile_copy* command);
void sramtile_store(const struct sramtile_program* program, const struct sramtile_dram* dram, const uint8_t* sram,
                    const struct sramtile_store* command);

/* transpose.c: between planes of channels in DRAM and one channel block in SRAM. */
void sramtile_blocked_from_planes(float* blocked, const void* planes, int64_t plane, int64_t length, int64_t channels,
                                  int64_t lanes);
void sramtile_planes_from_blocked(void* planes, const float* blocked, int64_t plane, int64_t length, int64_t channels,
                                  int64_t lanes);

/* conv.c, maps.c; they get the SRAM and no DRAM. A RESIZE may fail. */
void sramtile_conv(const struct sramtile_header* chip, uint8_t* sram, const struct sramtile_conv* command);
void sramtile_pool(const struct sramtile_header* chip, uint8_t* sram, const struct sramtile_pool* command);
int32_t sramtile_resize(const struct sramtile_header* chip, uint8_t* sram, const struct sramtile_resize* command,
                        const struct sramtile_fault* at);
void sramtile_eltwise(const struct sramtile_header* chip, uint8_t* sram, const struct sramtile_eltwise* command);

/* measure.c */
int32_t sramtile_timeline_new(struct sramtile_timeline* timeline, const struct sramtile_header* header,
                              const struct sramtile_fault* at);
void sramtile_timeline_free(struct sramtile_timeline* timeline);
void sramtile_part_start(struct sramtile_timeline* timeline);
void sramtile_part_end(const struct sramtile_timeline* timeline, const struct sramtile_peak* peak,
                       struct sramtile_measured* measured);
void sramtile_measure(const struct sramtile_program* program, const union sramtile_any_command* command,
                      struct sramtile_timeline* timeline, struct sramtile_measured* measured);
int32_t sramtile_measured_new(struct sramtile_measured* measured, const struct sramtile_header* header,
                              const struct sramtile_fault* at);
void sramtile_measured_free(struct sramtile_measured* measured);
void sramtile_total(struct sramtile_measured* measured, const struct sramtile_header* header, int64_t images);
void sramtile_merge(struct sramtile_counters* counters, const struct sramtile_measured* measured);
uint32_t sramtile_mode(const struct sramtile_counters* counters); /* of a call that starts now; counters may be NULL */

#endif
