/* For the thread sanitizer: eight threads run each program of the corpus, with tensors of their own, on one counter block,
 * while they read it and change the mode.
 *
 *   threads FILE...
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "machine.h"

int32_t sramtile_call(const struct sramtile_program* program, const uint8_t* code, size_t size,
                      struct sramtile_counters* counters);

enum { THREADS = 8, CALLS = 2, MAX_BYTES = 1 << 17 };

static uint8_t code[MAX_BYTES];
static size_t code_bytes;
static struct sramtile_program program;
static struct sramtile_counters counters;
static pthread_barrier_t start;
static int64_t succeeded;

static void* run(void* number) {
  int64_t* const seen = calloc(SRAMTILE_VALUES(program.header.step_count), sizeof *seen);
  if (seen == NULL) abort();
  pthread_barrier_wait(&start);
  for (int call = 0; call < CALLS; call++) {
    sramtile_counters_mode(&counters, ((intptr_t)number + call) % SRAMTILE_MODE_COUNT);
    const int32_t status = sramtile_call(&program, code, code_bytes, &counters);
    if (status == SRAMTILE_OK) {
      __atomic_add_fetch(&succeeded, 1, __ATOMIC_RELAXED);
    } else if (status != SRAMTILE_ERROR_POSITION) {
      abort();
    }
    sramtile_counters_read(&counters, seen);
  }
  free(seen);
  return NULL;
}

static int run_file(const char* path) {
  FILE* const file = fopen(path, "rb");
  if (file == NULL) return 0;
  code_bytes = fread(code, 1, sizeof code, file);
  fclose(file);
  struct sramtile_fault nowhere = {.part = "", .index = -1};
  if (sramtile_parse(&program, code, code_bytes, &nowhere) != SRAMTILE_OK) return 0;
  counters = (struct sramtile_counters){.step_count = program.header.step_count};
  counters.values = calloc(SRAMTILE_VALUES(counters.step_count), sizeof *counters.values);
  if (counters.values == NULL) abort();
  succeeded = 0;
  pthread_t threads[THREADS];
  for (intptr_t index = 0; index < THREADS; index++) pthread_create(&threads[index], NULL, run, (void*)index);
  for (int index = 0; index < THREADS; index++) pthread_join(threads[index], NULL);
  const int64_t calls = counters.values[SRAMTILE_COUNT_CALLS];
  free(counters.values);
  return calls == succeeded;
}

int main(int argc, char** argv) {
  pthread_barrier_init(&start, NULL, THREADS);
  for (int index = 1; index < argc; index++) {
    if (!run_file(argv[index])) return fprintf(stderr, "%s: the calls that succeeded are not those that were counted\n", argv[index]), 1;
  }
  printf("%d programs ran in %d threads each\n", argc - 1, THREADS);
  return 0;
}
