/* POOL, RESIZE and ELTWISE: from a command's fields to a job, and to the fastest kernels that this processor and these
 * lanes allow. */
#include "map_job.h"

#if defined(__x86_64__)
static const struct sramtile_map_kernels* kernels_of(int64_t lanes) {
  if (lanes % 8 == 0 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    const int avx512 = lanes % 16 == 0 && __builtin_cpu_supports("avx512f");
    return avx512 ? &sramtile_map_kernels_avx512 : &sramtile_map_kernels_avx2;
  }
  return lanes % 4 == 0 ? &sramtile_map_kernels_4 : &sramtile_map_kernels_1;
}
#else
static const struct sramtile_map_kernels* kernels_of(int64_t lanes) {
  return lanes % 4 == 0 ? &sramtile_map_kernels_4 : &sramtile_map_kernels_1;
}
#endif

static float* at_address(uint8_t* sram, uint32_t address) { return (float*)(void*)(sram + address); }

static int64_t row_elems(const struct sramtile_header* chip, uint32_t cols) {
  return (int64_t)sramtile_row_bytes(chip, cols) / SRAMTILE_ELEM_BYTES;
}

/* From the fields that POOL and RESIZE have alike. */
#define MAPS_OF(command)                                             \
  {                                                                  \
      .input = at_address(sram, (command)->input),                   \
      .output = at_address(sram, (command)->output),                 \
      .in_block = (command)->in_block_bytes / SRAMTILE_ELEM_BYTES,   \
      .in_row = row_elems(chip, (command)->in_cols),                 \
      .in_rows = (command)->in_rows,                                 \
      .in_cols = (command)->in_cols,                                 \
      .out_block = (command)->out_block_bytes / SRAMTILE_ELEM_BYTES, \
      .out_row = row_elems(chip, (command)->out_cols),               \
      .out_rows = (command)->out_rows,                               \
      .out_cols = (command)->out_cols,                               \
      .blocks = (int64_t)sramtile_ceil_div((command)->channels, chip->lanes), \
      .lanes = chip->lanes,                                          \
  }

/* Taps that the first output finds within the map; the others find no more. Beyond them positions could overflow. */
static int64_t useful_taps(uint32_t kernel, int64_t reach, uint32_t dilation) {
  const int64_t inside = sramtile_least_multiple(reach, dilation);
  return inside < kernel ? inside : kernel;
}

void sramtile_pool(const struct sramtile_header* chip, uint8_t* sram, const struct sramtile_pool* command) {
  const int64_t rows = (int64_t)command->in_rows + command->pad_top;
  const int64_t cols = (int64_t)command->in_cols + command->pad_left;
  struct sramtile_pool_job job = {
      .maps = MAPS_OF(command),
      .pooling = command->pooling,
      .window = (float)((uint64_t)command->kernel_rows * command->kernel_cols),
      .kernel_rows = useful_taps(command->kernel_rows, rows, command->dilation_rows),
      .kernel_cols = useful_taps(command->kernel_cols, cols, command->dilation_cols),
      .stride_rows = command->stride_rows,
      .stride_cols = command->stride_cols,
      .dilation_rows = command->dilation_rows,
      .dilation_cols = command->dilation_cols,
      .pad_top = command->pad_top,
      .pad_left = command->pad_left,
  };
  if (command->in_rows == 0 || command->in_cols == 0) { /* no input: its fields were not checked */
    job.maps.input = job.maps.output;
    job.maps.in_rows = job.maps.in_cols = 0;
    job.maps.in_block = job.maps.in_row = 0;
    job.kernel_rows = job.kernel_cols = 0;
  }
  kernels_of(chip->lanes)->pool(&job);
}

static int32_t check_positions(const struct sramtile_entry* entries, int64_t count, int64_t first, int64_t extent,
                               const char* field, const struct sramtile_fault* at) {
  for (int64_t index = 0; index < count; index++) {
    const int64_t position = entries[index].position;
    if (position != -1 && (position < first || position >= first + extent)) {
      return sramtile_fail_signed(at, SRAMTILE_ERROR_POSITION, field, position);
    }
  }
  return SRAMTILE_OK;
}

int32_t sramtile_resize(const struct sramtile_header* chip, uint8_t* sram, const struct sramtile_resize* command,
                        const struct sramtile_fault* at) {
  const struct sramtile_resize_job job = {
      .maps = MAPS_OF(command),
      .row_table = (const struct sramtile_entry*)(const void*)(sram + command->row_table),
      .col_table = (const struct sramtile_entry*)(const void*)(sram + command->col_table),
      .row_taps = command->row_taps,
      .col_taps = command->col_taps,
      .in_row = command->in_row,
      .in_col = command->in_col,
  };
  int32_t code = check_positions(job.row_table, job.maps.out_rows * job.row_taps, job.in_row, job.maps.in_rows,
                                 "row position", at);
  if (code == SRAMTILE_OK) {
    code = check_positions(job.col_table, job.maps.out_cols * job.col_taps, job.in_col, job.maps.in_cols,
                           "column position", at);
  }
  if (code == SRAMTILE_OK) kernels_of(chip->lanes)->resize(&job);
  return code;
}

/* Rows that lie without gaps are one long row. */
static void flatten(struct sramtile_eltwise_job* job) {
  if (job->maps.in_row != job->maps.in_cols * job->maps.lanes) return;
  job->maps.in_cols *= job->maps.in_rows;
  job->maps.in_rows = 1;
}

void sramtile_eltwise(const struct sramtile_header* chip, uint8_t* sram, const struct sramtile_eltwise* command) {
  const int64_t row = row_elems(chip, command->cols);
  const int map = command->partner_kind == SRAMTILE_PARTNER_MAP;
  const int vector = command->partner_kind == SRAMTILE_PARTNER_VECTOR;
  struct sramtile_eltwise_job job = {
      .maps = {.input = at_address(sram, command->input),
               .output = at_address(sram, command->output),
               .in_block = command->in_block_bytes / SRAMTILE_ELEM_BYTES,
               .in_row = row,
               .in_rows = command->rows,
               .in_cols = command->cols,
               .out_block = command->out_block_bytes / SRAMTILE_ELEM_BYTES,
               .out_row = row,
               .out_rows = command->rows,
               .out_cols = command->cols,
               .blocks = (int64_t)sramtile_ceil_div(command->channels, chip->lanes),
               .lanes = chip->lanes},
      .partner = map || vector ? at_address(sram, command->partner) : NULL,
      .partner_block = command->partner_block_bytes / SRAMTILE_ELEM_BYTES,
      .partner_row = map ? row : 0,
      .partner_step = map ? chip->lanes : 0,
      .function = command->function,
      .value0 = command->value0,
      .value1 = command->value1,
  };
  flatten(&job);
  kernels_of(chip->lanes)->eltwise(&job);
}
