/* RESIZE: part of the template map_kernels.h. */

/* One output, VL lanes of it: along the rows first, then along the columns. */
ALWAYS_INLINE vec resized(const struct sramtile_resize_job* job, const float* block, const struct sramtile_entry* rows,
                          const int64_t row_taps, const struct sramtile_entry* cols, const int64_t col_taps) {
  vec sum = {0};
  for (int64_t col = 0; col < col_taps; col++) {
    if (cols[col].position < 0) continue;
    const float* const from = block + (cols[col].position - job->in_col) * job->maps.lanes;
    vec part = {0};
    for (int64_t row = 0; row < row_taps; row++) {
      if (rows[row].position < 0) continue;
      part += load(from + (rows[row].position - job->in_row) * job->maps.in_row) * rows[row].weight;
    }
    sum += part * cols[col].weight;
  }
  return sum;
}

ALWAYS_INLINE void resize_row(const struct sramtile_resize_job* job, const float* block,
                              const struct sramtile_entry* rows, const int64_t row_taps, const int64_t col_taps,
                              float* to) {
  const struct sramtile_maps* const maps = &job->maps;
  const struct sramtile_entry* cols = job->col_table;
  for (int64_t col = 0; col < maps->out_cols; col++, to += maps->lanes, cols += col_taps) {
    for (int64_t lane = 0; lane < maps->lanes; lane += VL) {
      store(to + lane, resized(job, block + lane, rows, row_taps, cols, col_taps));
    }
  }
}

static void run_resize(const struct sramtile_resize_job* job) {
  const struct sramtile_maps* const maps = &job->maps;
  for (int64_t block = 0; block < maps->blocks; block++) {
    const float* const from = maps->input + block * maps->in_block;
    for (int64_t row = 0; row < maps->out_rows; row++) {
      const struct sramtile_entry* const rows = job->row_table + row * job->row_taps;
      float* const to = maps->output + block * maps->out_block + row * maps->out_row;
      /* Nearest, linear, cubic: constants unroll the loops over the taps. */
      if (job->row_taps == 1 && job->col_taps == 1) {
        resize_row(job, from, rows, 1, 1, to);
      } else if (job->row_taps == 2 && job->col_taps == 2) {
        resize_row(job, from, rows, 2, 2, to);
      } else if (job->row_taps == 4 && job->col_taps == 4) {
        resize_row(job, from, rows, 4, 4, to);
      } else {
        resize_row(job, from, rows, job->row_taps, job->col_taps, to);
      }
    }
  }
}
