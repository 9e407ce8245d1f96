/* Copies between DRAM tensors and SRAM, with the change of layout. DRAM pointers may be unaligned. */
#include <string.h>

#include "machine.h"

typedef float dram_float __attribute__((aligned(1), may_alias));
typedef float sram_float __attribute__((may_alias));

/* The first byte of a tensor, of the current image. */
static uint8_t* tensor_start(const struct sramtile_program* program, const struct sramtile_dram* dram,
                             const struct sramtile_tensor* tensor) {
  const uint64_t past = tensor->per_image ? (uint64_t)dram->image * sramtile_tensor_bytes(tensor) : 0;
  switch (tensor->place) {
    case SRAMTILE_PLACE_ARGUMENT:
      return (uint8_t*)dram->arguments[tensor->offset] + past;
    case SRAMTILE_PLACE_CONSTANT: /* only read: a STORE to a constant is refused */
      return (uint8_t*)(uintptr_t)program->constants + tensor->offset + past;
    default:
      return dram->workspace + tensor->offset + past;
  }
}

/* A box of a map as runs of positions that are contiguous in DRAM and in SRAM: its rows, or all of them as one. */
struct runs {
  dram_float* dram;  /* the box's first element */
  int64_t plane;     /* elements from one channel to the next */
  int64_t dram_step; /* elements from one run to the next */
  int64_t sram_step;
  int64_t count;
  int64_t length;
};

static struct runs runs_of(const struct sramtile_program* program, const struct sramtile_dram* dram,
                           const struct sramtile_load* map) {
  const struct sramtile_tensor tensor = sramtile_tensor_at(program, map->tensor);
  const int64_t width = tensor.dim3;
  struct runs runs = {
      .plane = tensor.dim2 * width,
      .dram_step = width,
      .sram_step = map->row_bytes / SRAMTILE_ELEM_BYTES,
      .count = map->rows,
      .length = map->cols,
  };
  const int64_t past = map->channel * runs.plane + map->row * width + map->col;
  runs.dram = (dram_float*)tensor_start(program, dram, &tensor) + past;
  if (map->cols == width && runs.sram_step == width * program->header.lanes) {
    runs.count = 1;
    runs.length = map->rows * width;
  }
  return runs;
}

void sramtile_load(const struct sramtile_program* program, const struct sramtile_dram* dram, uint8_t* sram,
                   const struct sramtile_load* command) {
  const struct runs runs = runs_of(program, dram, command);
  const int64_t lanes = program->header.lanes;
  const int64_t channels = command->channels;
  uint8_t* block = sram + command->sram;
  for (int64_t channel = 0; channel < channels; channel += lanes, block += command->block_bytes) {
    const int64_t real = channels - channel < lanes ? channels - channel : lanes;
    for (int64_t run = 0; run < runs.count; run++) {
      sramtile_blocked_from_planes((float*)(void*)block + run * runs.sram_step,
                                   runs.dram + channel * runs.plane + run * runs.dram_step, runs.plane, runs.length,
                                   real, lanes);
    }
  }
}

void sramtile_store(const struct sramtile_program* program, const struct sramtile_dram* dram, const uint8_t* sram,
                    const struct sramtile_store* command) {
  struct sramtile_load map; /* the same fields */
  memcpy(&map, command, sizeof map);
  const struct runs runs = runs_of(program, dram, &map);
  const int64_t lanes = program->header.lanes;
  const int64_t channels = command->channels;
  const uint8_t* block = sram + command->sram;
  for (int64_t channel = 0; channel < channels; channel += lanes, block += command->block_bytes) {
    const int64_t real = channels - channel < lanes ? channels - channel : lanes;
    for (int64_t run = 0; run < runs.count; run++) {
      sramtile_planes_from_blocked(runs.dram + channel * runs.plane + run * runs.dram_step,
                                   (const float*)(const void*)block + run * runs.sram_step, runs.plane, runs.length,
                                   real, lanes);
    }
  }
}

/* Packed weights: output blocks one after the other, each without the lanes past the last channel. */
static void load_packed(sram_float* to, const uint8_t* tensor_bytes, const struct sramtile_tensor* tensor,
                        const struct sramtile_load_weights* load, int64_t lanes) {
  const int64_t rows = (int64_t)tensor->dim1 * tensor->dim2 * tensor->dim3; /* of lanes, in an output block */
  const dram_float* from = (const dram_float*)tensor_bytes + load->out_channel * rows;
  for (int64_t done = 0; done < load->out_channels; done += lanes) {
    const int64_t stored = tensor->dim0 - load->out_channel - done;
    const int64_t wanted = load->out_channels - done;
    const int64_t pitch = stored < lanes ? stored : lanes;
    const int64_t real = wanted < lanes ? wanted : lanes;
    if (real == lanes) {
      memcpy(to, from, (size_t)(rows * lanes) * SRAMTILE_ELEM_BYTES);
      to += rows * lanes;
      from += rows * lanes;
      continue;
    }
    for (int64_t row = 0; row < rows; row++, to += lanes, from += pitch) {
      memcpy(to, from, (size_t)real * SRAMTILE_ELEM_BYTES);
      memset(to + real, 0, (size_t)(lanes - real) * SRAMTILE_ELEM_BYTES);
    }
  }
}

/* One block of output channels by one block of input channels, from OIHW; returns the end of what it wrote. */
static sram_float* load_block(sram_float* to, const dram_float* from, const struct sramtile_tensor* tensor,
                              const struct sramtile_load_weights* load, int64_t outs, int64_t ins, int64_t lanes) {
  const int64_t in_step = (int64_t)tensor->dim2 * tensor->dim3;
  const int64_t out_step = in_step * tensor->dim1;
  for (int64_t row = 0; row < load->kernel_rows; row++) {
    for (int64_t col = 0; col < load->kernel_cols; col++) {
      const dram_float* tap = from + row * tensor->dim3 + col;
      for (int64_t in = 0; in < ins; in++, to += lanes, tap += in_step) {
        for (int64_t out = 0; out < outs; out++) to[out] = tap[out * out_step];
        for (int64_t out = outs; out < lanes; out++) to[out] = 0.0f;
      }
    }
  }
  return to;
}

void sramtile_load_weights(const struct sramtile_program* program, const struct sramtile_dram* dram, uint8_t* sram,
                           const struct sramtile_load_weights* command) {
  const struct sramtile_tensor tensor = sramtile_tensor_at(program, command->tensor);
  const uint8_t* const bytes = tensor_start(program, dram, &tensor);
  const int64_t lanes = program->header.lanes;
  sram_float* to = (sram_float*)(void*)(sram + command->sram);
  if (tensor.layout == SRAMTILE_LAYOUT_PACKED) {
    load_packed(to, bytes, &tensor, command, lanes);
    return;
  }
  for (int64_t out = 0; out < command->out_channels; out += lanes) {
    const int64_t outs = command->out_channels - out < lanes ? command->out_channels - out : lanes;
    for (int64_t in = 0; in < command->in_channels; in += lanes) {
      const int64_t ins = command->in_channels - in < lanes ? command->in_channels - in : lanes;
      int64_t past = (command->out_channel + out) * tensor.dim1 + command->in_channel + in;
      past = (past * tensor.dim2 + command->kernel_row) * tensor.dim3 + command->kernel_col;
      to = load_block(to, (const dram_float*)bytes + past, &tensor, command, outs, ins, lanes);
    }
  }
}
