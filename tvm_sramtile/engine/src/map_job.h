/* POOL, RESIZE and ELTWISE, ready for the kernels. All extents and steps are in elements; SRAM holds floats. */
#ifndef SRAMTILE_MAP_JOB_H
#define SRAMTILE_MAP_JOB_H

#include "machine.h"

/* Maps that are read and written, block by block. */
struct sramtile_maps {
  const float* input;
  float* output;
  int64_t in_block, in_row, in_rows, in_cols;
  int64_t out_block, out_row, out_rows, out_cols;
  int64_t blocks, lanes;
};

struct sramtile_pool_job {
  struct sramtile_maps maps;
  uint32_t pooling;
  float window; /* taps of the whole window */
  int64_t kernel_rows, kernel_cols; /* those taps that any output can have within the map */
  int64_t stride_rows, stride_cols;
  int64_t dilation_rows, dilation_cols;
  int64_t pad_top, pad_left;
};

/* Positions count from in_row and in_col; they have been checked. */
struct sramtile_resize_job {
  struct sramtile_maps maps;
  const struct sramtile_entry* row_table;
  const struct sramtile_entry* col_table;
  int64_t row_taps, col_taps;
  int64_t in_row, in_col;
};

/* The rows of the maps may all be one; the extents are those of the input. */
struct sramtile_eltwise_job {
  struct sramtile_maps maps;
  const float* partner; /* NULL: none, or value0 */
  int64_t partner_block, partner_row;
  int64_t partner_step; /* from one column to the next; 0: a vector */
  uint32_t function;
  float value0, value1;
};

struct sramtile_map_kernels {
  void (*pool)(const struct sramtile_pool_job* job);
  void (*resize)(const struct sramtile_resize_job* job);
  void (*eltwise)(const struct sramtile_eltwise_job* job);
};

/* For any lanes, for multiples of 4; on x86-64 processors with more instructions, for multiples of 8 and of 16. */
extern const struct sramtile_map_kernels sramtile_map_kernels_1;
extern const struct sramtile_map_kernels sramtile_map_kernels_4;
#if defined(__x86_64__)
extern const struct sramtile_map_kernels sramtile_map_kernels_avx2;
extern const struct sramtile_map_kernels sramtile_map_kernels_avx512;
#endif

/* The least q with q*divisor >= value, but not below 0. */
static inline int64_t sramtile_least_multiple(int64_t value, int64_t divisor) {
  return value <= 0 ? 0 : (value + divisor - 1) / divisor;
}

#endif
