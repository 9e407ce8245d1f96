/* One program, from whatever bytes: it must be refused or run, in every mode, and never go wrong. Its tensors are as
 * large as the program says and not a byte larger, so that the address sanitizer sees a step beyond. The entry point is
 * libFuzzer's; driver.c calls it where there is none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"

enum { MAX_ARGUMENTS = 64, MAX_BYTES = 1 << 24 };

/* A calloc that is too large for the system must fail, as it does without the sanitizer. */
const char* __asan_default_options(void) { return "allocator_may_return_null=1"; }
const char* __ubsan_default_options(void) { return "print_stacktrace=1"; }

struct arguments {
  void* pointers[MAX_ARGUMENTS];
  uint64_t bytes[MAX_ARGUMENTS];
  int is_table[MAX_ARGUMENTS];
};

/* The bytes of each argument. 0: the program is no program, or one of its tensors is too large for this test. */
static int size_arguments(struct arguments* arguments, const struct sramtile_program* program, int64_t images) {
  if (program->header.argument_count > MAX_ARGUMENTS || program->header.workspace_bytes > MAX_BYTES) return 0;
  if (program->memory_start[SRAMTILE_MEMORIES] > MAX_BYTES) return 0;
  for (uint32_t index = 0; index < program->header.tensor_count; index++) {
    const struct sramtile_tensor tensor = sramtile_tensor_at(program, index);
    if (tensor.place != SRAMTILE_PLACE_ARGUMENT || (tensor.image_stride != 0 && images == 0)) continue;
    const uint64_t past = tensor.image_stride == 0 ? 0 : sramtile_mul((uint64_t)images - 1, tensor.image_stride);
    const uint64_t bytes = sramtile_mul(sramtile_add(past, sramtile_tensor_elems(&tensor)), SRAMTILE_ELEM_BYTES);
    if (tensor.offset >= MAX_ARGUMENTS || bytes > MAX_BYTES) return 0;
    if (bytes > arguments->bytes[tensor.offset]) arguments->bytes[tensor.offset] = bytes;
    arguments->is_table[tensor.offset] |= tensor.layout == SRAMTILE_LAYOUT_TABLE;
  }
  return 1;
}

static void fill(struct arguments* arguments) {
  for (int index = 0; index < MAX_ARGUMENTS; index++) {
    if (arguments->bytes[index] == 0) continue;
    float* const values = malloc(arguments->bytes[index]);
    if (values == NULL) abort();
    for (uint64_t at = 0; at < arguments->bytes[index] / SRAMTILE_ELEM_BYTES; at++) {
      values[at] = (float)(at * 2654435761u % 1000) / 500.0f - 1.0f;
      const int32_t position = (int32_t)(at % 5) - 1; /* few maps are smaller */
      if (arguments->is_table[index] && at % 2 == 0) memcpy(&values[at], &position, sizeof position);
    }
    arguments->pointers[index] = values;
  }
}

static int32_t call(const uint8_t* code, size_t size, void* const* tensors, int32_t count, int64_t images,
                    struct sramtile_counters* counters, int64_t mode) {
  char message[300];
  sramtile_counters_mode(counters, mode);
  const int32_t status = sramtile_run(code, size, tensors, count, images, counters, message, sizeof message);
  if ((status == SRAMTILE_OK) != (message[0] == '\0')) {
    fprintf(stderr, "mode %d: status %d, but the text is \"%s\"\n", (int)mode, status, message);
    abort();
  }
  return status;
}

/* Returns whether the program is run, if only up to a wrong position. What runs must have been counted the same without running, if that was possible. */
static int run_all_modes(const uint8_t* code, size_t size, const struct sramtile_header* header, int64_t images,
                         const struct arguments* arguments, int64_t* values) {
  struct sramtile_counters counters = {.step_count = header->step_count, .values = values};
  const size_t bytes = SRAMTILE_VALUES(header->step_count) * sizeof *values;
  const int32_t count = (int32_t)header->argument_count;
  const int32_t counted = call(code, size, NULL, count, images, &counters, SRAMTILE_MODE_COUNT_ONLY);
  int64_t* const expected = malloc(bytes);
  if (expected == NULL) abort();
  memcpy(expected, values, bytes);
  sramtile_counters_reset(&counters);
  const int32_t ran = call(code, size, arguments->pointers, count, images, &counters, SRAMTILE_MODE_RUN);
  if (counted != ran && ran != SRAMTILE_ERROR_POSITION) abort();
  if (ran == SRAMTILE_OK && memcmp(expected, values, bytes) != 0) abort();
  free(expected);
  call(code, size, arguments->pointers, count, images, &counters, SRAMTILE_MODE_CHECKED);
  return ran == SRAMTILE_OK || ran == SRAMTILE_ERROR_POSITION;
}

/* One call with tensors of its own, on a counter block that others may share. */
int32_t sramtile_call(const struct sramtile_program* program, const uint8_t* code, size_t size,
                      struct sramtile_counters* counters) {
  struct arguments arguments = {0};
  if (!size_arguments(&arguments, program, 1)) abort();
  fill(&arguments);
  const int32_t count = (int32_t)program->header.argument_count;
  const int32_t status = sramtile_run(code, size, arguments.pointers, count, 1, counters, NULL, 0);
  for (int index = 0; index < MAX_ARGUMENTS; index++) free(arguments.pointers[index]);
  return status;
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int sramtile_try(const uint8_t* data, size_t size) {
  uint32_t sum = 0;
  for (size_t at = 0; at < size; at++) sum = sum * 31 + data[at];
  const int64_t images = sum % 8 == 0 ? 0 : 1 + sum % 2;
  struct sramtile_fault nowhere = {.part = "", .index = -1};
  struct sramtile_program program;
  uint8_t* const code = malloc(size > 0 ? size : 1); /* exactly as long as it is */
  if (code == NULL) abort();
  if (size > 0) memcpy(code, data, size);
  int ran = 0;
  if (sramtile_parse(&program, code, size, &nowhere) != SRAMTILE_OK) {
    if (sramtile_run(code, size, NULL, 0, images, NULL, NULL, 0) == SRAMTILE_OK) abort();
  } else if (sramtile_validate(&program, (int32_t)program.header.argument_count, images, &nowhere) != SRAMTILE_OK) {
    if (sramtile_run(code, size, NULL, (int32_t)program.header.argument_count, images, NULL, NULL, 0) == SRAMTILE_OK) {
      abort();
    }
  } else {
    struct arguments arguments = {0};
    int64_t* const values = calloc(SRAMTILE_VALUES(program.header.step_count), sizeof *values);
    if (values == NULL) abort();
    if (size_arguments(&arguments, &program, images)) {
      fill(&arguments);
      ran = run_all_modes(code, size, &program.header, images, &arguments, values);
    }
    for (int index = 0; index < MAX_ARGUMENTS; index++) free(arguments.pointers[index]);
    free(values);
  }
  free(code);
  return ran;
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sramtile_try(data, size);
  return 0;
}
