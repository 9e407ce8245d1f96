/* POOL: part of the template map_kernels.h. */
#include <float.h>

/* The taps of an output along one axis that lie within the map, and the position of the first of them. */
struct span {
  int64_t taps;
  int64_t position;
};

static inline struct span span_of(int64_t start, int64_t kernel, int64_t dilation, int64_t extent) {
  const int64_t first = sramtile_least_multiple(-start, dilation);
  const int64_t inside = sramtile_least_multiple(extent - start, dilation);
  const int64_t end = inside < kernel ? inside : kernel;
  return (struct span){end > first ? end - first : 0, start + first * dilation};
}

/* One output, VL lanes of it; a NaN in the window is the result. */
ALWAYS_INLINE vec pooled(const struct sramtile_pool_job* job, const uint32_t pooling, const float* block,
                         struct span rows, struct span cols) {
  const int64_t col_step = job->dilation_cols * job->maps.lanes;
  const int64_t row_step = job->dilation_rows * job->maps.in_row;
  const float* row_start = block + rows.position * job->maps.in_row + cols.position * job->maps.lanes;
  vec sum = filled(pooling == SRAMTILE_POOLING_MAX ? -FLT_MAX : 0.0f);
  for (int64_t row = 0; row < rows.taps; row++, row_start += row_step) {
    const float* from = row_start;
    for (int64_t col = 0; col < cols.taps; col++, from += col_step) {
      const vec value = load(from);
      sum = pooling == SRAMTILE_POOLING_MAX ? maximum(sum, value) : sum + value;
    }
  }
  if (pooling == SRAMTILE_POOLING_AVERAGE_ALL) return sum / filled(job->window);
  const int64_t taps = rows.taps * cols.taps;
  return pooling == SRAMTILE_POOLING_AVERAGE_VALID && taps > 0 ? sum / filled((float)taps) : sum;
}

ALWAYS_INLINE void pool_row(const struct sramtile_pool_job* job, const uint32_t pooling, const float* block,
                            struct span rows, float* to) {
  const struct sramtile_maps* const maps = &job->maps;
  for (int64_t col = 0; col < maps->out_cols; col++, to += maps->lanes) {
    const struct span cols =
        span_of(col * job->stride_cols - job->pad_left, job->kernel_cols, job->dilation_cols, maps->in_cols);
    for (int64_t lane = 0; lane < maps->lanes; lane += VL) {
      store(to + lane, pooled(job, pooling, block + lane, rows, cols));
    }
  }
}

static void run_pool(const struct sramtile_pool_job* job) {
  const struct sramtile_maps* const maps = &job->maps;
  for (int64_t block = 0; block < maps->blocks; block++) {
    const float* const from = maps->input + block * maps->in_block;
    for (int64_t row = 0; row < maps->out_rows; row++) {
      const struct span rows =
          span_of(row * job->stride_rows - job->pad_top, job->kernel_rows, job->dilation_rows, maps->in_rows);
      float* const to = maps->output + block * maps->out_block + row * maps->out_row;
      if (job->pooling == SRAMTILE_POOLING_MAX) {
        pool_row(job, SRAMTILE_POOLING_MAX, from, rows, to);
      } else if (job->pooling == SRAMTILE_POOLING_AVERAGE_ALL) {
        pool_row(job, SRAMTILE_POOLING_AVERAGE_ALL, from, rows, to);
      } else {
        pool_row(job, SRAMTILE_POOLING_AVERAGE_VALID, from, rows, to);
      }
    }
  }
}
