/* Loads of weights, into the order that SRAM has:
 * [output block][input block][kernel row][kernel col][input channel][lane]. */
#include <string.h>

#include "machine.h"

typedef float dram_float __attribute__((aligned(1), may_alias));
typedef float sram_float __attribute__((may_alias));

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Rows of `pitch` lanes in DRAM to rows of `lanes`, of which the first `real` are copied and the others are zeros. */
static sram_float* copy_rows(sram_float* to, const dram_float* from, int64_t rows, int64_t pitch, int64_t real,
                             int64_t lanes) {
  if (pitch == lanes && real == lanes) {
    memcpy(to, from, (size_t)(rows * lanes) * SRAMTILE_ELEM_BYTES);
    return to + rows * lanes;
  }
  for (int64_t row = 0; row < rows; row++, to += lanes, from += pitch) {
    memcpy(to, from, (size_t)real * SRAMTILE_ELEM_BYTES);
    memset(to + real, 0, (size_t)(lanes - real) * SRAMTILE_ELEM_BYTES);
  }
  return to;
}

/* One output block of packed weights; `from` is where it starts in DRAM. */
static sram_float* load_packed_block(sram_float* to, const dram_float* from, const struct sramtile_tensor* tensor,
                                     const struct sramtile_load_weights* load, int64_t pitch, int64_t real,
                                     int64_t lanes) {
  const int64_t taps = (int64_t)tensor->dim3 * tensor->dim4;
  const int whole_taps = load->kernel_rows == tensor->dim3 && load->kernel_cols == tensor->dim4 &&
                         (load->kernel_rows == 1 || load->kernel_row_step == 1) &&
                         (load->kernel_cols == 1 || load->kernel_col_step == 1);
  if (whole_taps && load->in_channels == tensor->dim2) {
    return copy_rows(to, from, taps * load->in_channels, pitch, real, lanes);
  }
  for (int64_t in = 0; in < load->in_channels; in += lanes) {
    const int64_t first = load->in_channel + in;
    const int64_t stored = least(tensor->dim2 - first, lanes); /* input channels of the block in DRAM */
    const int64_t wanted = least(load->in_channels - in, lanes);
    const dram_float* const block = from + first * taps * pitch;
    if (whole_taps && wanted == stored) {
      to = copy_rows(to, block, taps * wanted, pitch, real, lanes);
      continue;
    }
    for (int64_t row = 0; row < load->kernel_rows; row++) {
      for (int64_t col = 0; col < load->kernel_cols; col++) {
        const int64_t tap = (load->kernel_row + row * load->kernel_row_step) * (int64_t)tensor->dim4 +
                            load->kernel_col + col * load->kernel_col_step;
        to = copy_rows(to, block + tap * stored * pitch, wanted, pitch, real, lanes);
      }
    }
  }
  return to;
}

static void load_packed(sram_float* to, const dram_float* from, const struct sramtile_tensor* tensor,
                        const struct sramtile_load_weights* load, int64_t lanes) {
  const int64_t rows = (int64_t)tensor->dim2 * tensor->dim3 * tensor->dim4; /* of lanes, in an output block */
  const int64_t outs = (int64_t)tensor->dim0 * tensor->dim1;
  for (int64_t done = 0; done < load->out_channels; done += lanes) {
    const int64_t first = load->out_channel + done;
    const int64_t pitch = least(outs - first, lanes);
    const int64_t real = least(load->out_channels - done, lanes);
    to = load_packed_block(to, from + first * rows, tensor, load, pitch, real, lanes);
  }
}

/* One block of output channels, of which lane i lies `places[i]` elements on, by one block of input channels. */
static sram_float* load_block(sram_float* to, const dram_float* from, const struct sramtile_tensor* tensor,
                              const struct sramtile_load_weights* load, const int64_t* places, int64_t outs,
                              int64_t ins, int64_t lanes) {
  for (int64_t row = 0; row < load->kernel_rows; row++) {
    for (int64_t col = 0; col < load->kernel_cols; col++) {
      const dram_float* tap = from + (load->kernel_row + row * load->kernel_row_step) * (int64_t)tensor->stride3 +
                              (load->kernel_col + col * load->kernel_col_step) * (int64_t)tensor->stride4;
      for (int64_t in = 0; in < ins; in++, to += lanes, tap += tensor->stride2) {
        for (int64_t out = 0; out < outs; out++) to[out] = tap[places[out]];
        for (int64_t out = outs; out < lanes; out++) to[out] = 0.0f;
      }
    }
  }
  return to;
}

static void load_strided(sram_float* to, const dram_float* from, const struct sramtile_tensor* tensor,
                         const struct sramtile_load_weights* load, int64_t lanes) {
  int64_t places[SRAMTILE_MAX_LANES];
  for (int64_t done = 0; done < load->out_channels; done += lanes) {
    const int64_t outs = least(load->out_channels - done, lanes);
    for (int64_t out = 0; out < outs; out++) {
      const int64_t channel = load->out_channel + done + out;
      places[out] = channel / tensor->dim1 * tensor->stride0 + channel % tensor->dim1 * tensor->stride1;
    }
    for (int64_t in = 0; in < load->in_channels; in += lanes) {
      const int64_t ins = least(load->in_channels - in, lanes);
      const dram_float* const block = from + (load->in_channel + in) * tensor->stride2;
      to = load_block(to, block, tensor, load, places, outs, ins, lanes);
    }
  }
}

void sramtile_load_weights(const struct sramtile_program* program, const struct sramtile_dram* dram, uint8_t* sram,
                           const struct sramtile_load_weights* command) {
  const struct sramtile_tensor tensor = sramtile_tensor_at(program, command->tensor);
  const dram_float* const from = (const dram_float*)sramtile_tensor_start(program, dram, &tensor);
  sram_float* const to = (sram_float*)(void*)(sram + command->sram);
  if (tensor.layout == SRAMTILE_LAYOUT_PACKED) {
    load_packed(to, from, &tensor, command, program->header.lanes);
  } else {
    load_strided(to, from, &tensor, command, program->header.lanes);
  }
}
