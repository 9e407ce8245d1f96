/* A convolution, ready for the kernels. All extents and steps are in elements; SRAM holds floats. */
#ifndef SRAMTILE_CONV_JOB_H
#define SRAMTILE_CONV_JOB_H

#include "machine.h"

struct sramtile_conv_job {
  const float* input;
  const float* weights;
  const float* bias;  /* NULL: none */
  const float* start; /* the sums to start from, in the order of the outputs; NULL: zeros */
  float* output;      /* the first output computed; in the accumulators where sums remain partial */
  int clip;
  float clip_low;
  float clip_high;
  int64_t lanes;
  int64_t in_block, in_row, in_rows, in_cols;
  int64_t out_block, out_row, out_rows, out_cols; /* out_row and out_step: to the next that is computed */
  int64_t out_step;
  int64_t bias_block;
  int64_t groups, ipg, opg; /* input and output channels of a group */
  int64_t kernel_rows, kernel_cols;
  int64_t stride_rows, stride_cols;
  int64_t dilation_rows, dilation_cols;
  int64_t pad_top, pad_left;
};

/* For any lanes, for multiples of 4, and what x86-64 processors with more instructions take: see the files. */
void sramtile_conv_1(const struct sramtile_conv_job* job);
void sramtile_conv_4(const struct sramtile_conv_job* job);
#if defined(__x86_64__)
void sramtile_conv_avx2_any(const struct sramtile_conv_job* job);
void sramtile_conv_avx2_stride1(const struct sramtile_conv_job* job);
void sramtile_conv_avx2_stride2(const struct sramtile_conv_job* job);
void sramtile_conv_avx512_any(const struct sramtile_conv_job* job);
void sramtile_conv_avx512_stride1(const struct sramtile_conv_job* job);
void sramtile_conv_avx512_stride2(const struct sramtile_conv_job* job);
#endif

#endif
