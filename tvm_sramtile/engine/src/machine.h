/* What the engine's files share: the program as read, errors, operands, time and counts. Not public. */
#ifndef SRAMTILE_MACHINE_H
#define SRAMTILE_MACHINE_H

#include <stddef.h>
#include <stdint.h>

#include "engine.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "programs are little-endian and read as they are");

enum { SRAMTILE_ELEM_BYTES = 4, SRAMTILE_MAX_LANES = 1024, SRAMTILE_MAX_OPERANDS = 5 };

/* A program's bytes and where its parts start. Records may lie unaligned: they are copied out, never pointed to. */
struct sramtile_program {
  struct sramtile_header header;
  const uint8_t* tensors;
  const uint8_t* commands;
  const uint8_t* constants;
  uint64_t memory_start[SRAMTILE_MEMORIES + 1]; /* SRAM address of each memory's first byte, and of the end */
  uint64_t memory_end[SRAMTILE_MEMORIES];       /* SRAM address after each memory's last byte */
};

/* A command of any opcode. */
union sramtile_any_command {
  struct sramtile_command common;
  struct sramtile_load load; /* STORE has the same fields */
  struct sramtile_load_weights load_weights;
  struct sramtile_store store;
  struct sramtile_conv conv;
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
};

/* What a call has measured so far, and the state of its timeline. All values saturate instead of overflowing. */
struct sramtile_measured {
  uint64_t values[SRAMTILE_COUNTER_COUNT];
  uint64_t memory_peak_bytes[SRAMTILE_MEMORIES];
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
uint64_t sramtile_tensor_bytes(const struct sramtile_tensor* tensor); /* of one image */
uint32_t sramtile_opcode_bytes(uint8_t opcode);                       /* 0: there is no such opcode */
const char* sramtile_opcode_name(uint8_t opcode);
int32_t sramtile_opcode_queue(uint8_t opcode);
uint32_t sramtile_fetch(const uint8_t* bytes, union sramtile_any_command* command); /* returns its bytes */

/* validate.c, validate_command.c: every rule of the instruction set, before anything is executed. */
int32_t sramtile_validate(const struct sramtile_program* program, int32_t tensor_count, int64_t images,
                          struct sramtile_fault* at);
int32_t sramtile_validate_command(const struct sramtile_program* program, const union sramtile_any_command* command,
                                  int in_prologue, const struct sramtile_fault* at);

/* operands.c: the SRAM operands of a command, as many as returned; the written ones of CONV come first. */
int sramtile_operands(const struct sramtile_header* chip, const union sramtile_any_command* command,
                      struct sramtile_operand* operands);

/* dma.c */
void sramtile_load(const struct sramtile_program* program, const struct sramtile_dram* dram, uint8_t* sram,
                   const struct sramtile_load* command);
void sramtile_load_weights(const struct sramtile_program* program, const struct sramtile_dram* dram, uint8_t* sram,
                           const struct sramtile_load_weights* command);
void sramtile_store(const struct sramtile_program* program, const struct sramtile_dram* dram, const uint8_t* sram,
                    const struct sramtile_store* command);

/* transpose.c: between planes of channels in DRAM and one channel block in SRAM. */
void sramtile_blocked_from_planes(float* blocked, const void* planes, int64_t plane, int64_t length, int64_t channels,
                                  int64_t lanes);
void sramtile_planes_from_blocked(void* planes, const float* blocked, int64_t plane, int64_t length, int64_t channels,
                                  int64_t lanes);

#if defined(__x86_64__)
/* transpose_avx512.c: the same for 16 lanes. */
void sramtile_blocked_from_planes_avx512(float* blocked, const void* planes, int64_t plane, int64_t length,
                                         int64_t channels);
void sramtile_planes_from_blocked_avx512(void* planes, const float* blocked, int64_t plane, int64_t length,
                                         int64_t channels);
#endif

/* conv.c; it gets the SRAM and no DRAM. */
void sramtile_conv(const struct sramtile_header* chip, uint8_t* sram, const struct sramtile_conv* command);

/* measure.c */
int32_t sramtile_timeline_new(struct sramtile_timeline* timeline, const struct sramtile_header* header,
                              const struct sramtile_fault* at);
void sramtile_timeline_free(struct sramtile_timeline* timeline);
void sramtile_part_start(struct sramtile_timeline* timeline);
void sramtile_part_end(const struct sramtile_timeline* timeline, struct sramtile_measured* measured);
void sramtile_measure(const struct sramtile_program* program, const union sramtile_any_command* command,
                      struct sramtile_timeline* timeline, struct sramtile_measured* measured);
void sramtile_merge(struct sramtile_counters* counters, const struct sramtile_measured* measured);

#endif
