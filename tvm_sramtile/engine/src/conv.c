/* CONV: from the command's fields to a job, and to the fastest kernels that this processor and these lanes allow. */
#include "conv_job.h"

typedef void kernels(const struct sramtile_conv_job* job);

#if defined(__x86_64__)
/* Asked at each command: a kept answer would be state. It costs a load of what the C runtime has found out. */
static kernels* kernels_of(const struct sramtile_conv_job* job) {
  if (job->lanes % 8 == 0 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    const int avx512 = __builtin_cpu_supports("avx512f") != 0;
    if (job->lanes == 16 && job->stride_cols == 1) {
      return avx512 ? sramtile_conv_avx512_stride1 : sramtile_conv_avx2_stride1;
    }
    if (job->lanes == 16 && job->stride_cols == 2) {
      return avx512 ? sramtile_conv_avx512_stride2 : sramtile_conv_avx2_stride2;
    }
    return job->lanes == 16 && avx512 ? sramtile_conv_avx512_any : sramtile_conv_avx2_any;
  }
  return job->lanes % 4 == 0 ? sramtile_conv_4 : sramtile_conv_1;
}
#else
static kernels* kernels_of(const struct sramtile_conv_job* job) {
  return job->lanes % 4 == 0 ? sramtile_conv_4 : sramtile_conv_1;
}
#endif

/* A 1x1 kernel without stride and padding takes a map whose rows lie without gaps as one long row. */
static void flatten(struct sramtile_conv_job* job) {
  const int pointwise = job->kernel_rows == 1 && job->kernel_cols == 1 && job->stride_rows == 1 && job->stride_cols == 1;
  const int whole = job->pad_top <= 0 && job->pad_left == 0 && job->in_rows + job->pad_top >= job->out_rows;
  if (!pointwise || !whole || job->in_cols != job->out_cols) return;
  if (job->out_step != job->lanes || job->out_row != job->out_cols * job->lanes) return;
  job->input -= job->pad_top * job->in_row; /* the rows above the first tap are left out */
  job->in_rows += job->pad_top;
  job->pad_top = 0;
  job->in_cols = job->in_rows * job->in_cols;
  job->out_cols = job->out_rows * job->out_cols;
  job->in_rows = 1;
  job->out_rows = 1;
}

/* A chunk wholly in padding, or a phase without taps, uses no input and no weights: their fields were not checked. */
static void leave_out_input(struct sramtile_conv_job* job) {
  job->input = job->output;
  job->weights = job->output;
  job->in_rows = 0;
  job->in_cols = 0;
  job->in_block = 0;
  job->in_row = 0;
  job->ipg = 1;
  job->kernel_rows = 1;
  job->kernel_cols = 1;
}

static float* at(uint8_t* sram, uint32_t address) { return (float*)(void*)(sram + address); }

void sramtile_conv(const struct sramtile_header* chip, uint8_t* sram, const struct sramtile_conv* command) {
  const int last = (command->flags & SRAMTILE_CONV_LAST) != 0;
  const int64_t one_row = (int64_t)sramtile_row_bytes(chip, 1);
  const int64_t out_row = (int64_t)sramtile_row_bytes(chip, command->out_map_cols) / SRAMTILE_ELEM_BYTES;
  const int64_t past = command->out_row * out_row + (int64_t)command->out_col * chip->lanes; /* to the first output */
  struct sramtile_conv_job job = {
      .input = at(sram, command->input),
      .weights = at(sram, command->weights),
      .bias = command->flags & SRAMTILE_CONV_BIAS ? at(sram, command->bias) : NULL,
      .start = command->flags & SRAMTILE_CONV_FIRST ? NULL : at(sram, command->accumulators) + past,
      .output = at(sram, last ? command->output : command->accumulators) + past,
      .clip = (command->flags & SRAMTILE_CONV_CLIP) != 0,
      .clip_low = command->clip_low,
      .clip_high = command->clip_high,
      .lanes = chip->lanes,
      .in_block = command->in_block_bytes / SRAMTILE_ELEM_BYTES,
      .in_row = (int64_t)sramtile_row_bytes(chip, command->in_cols) / SRAMTILE_ELEM_BYTES,
      .in_rows = command->in_rows,
      .in_cols = command->in_cols,
      .out_block = command->out_block_bytes / SRAMTILE_ELEM_BYTES,
      .out_row = out_row * command->out_row_step,
      .out_rows = command->out_rows,
      .out_cols = command->out_cols,
      .out_step = (int64_t)command->out_col_step * chip->lanes,
      .bias_block = (int64_t)sramtile_round_up(1, chip->lines) * one_row / SRAMTILE_ELEM_BYTES,
      .groups = command->groups,
      .ipg = command->in_channels / command->groups,
      .opg = command->out_channels / command->groups,
      .kernel_rows = command->kernel_rows,
      .kernel_cols = command->kernel_cols,
      .stride_rows = command->stride_rows,
      .stride_cols = command->stride_cols,
      .dilation_rows = command->dilation_rows,
      .dilation_cols = command->dilation_cols,
      .pad_top = command->pad_top,
      .pad_left = command->pad_left,
  };
  if (!sramtile_has_products(command)) leave_out_input(&job);
  flatten(&job);
  kernels_of(&job)(&job);
}
