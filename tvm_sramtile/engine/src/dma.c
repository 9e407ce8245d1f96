/* Copies of maps and tables between DRAM and SRAM, with the change of layout. DRAM pointers may be unaligned. */
#include <string.h>

#include "machine.h"

typedef float dram_float __attribute__((aligned(1), may_alias));
typedef float sram_float __attribute__((may_alias));

uint8_t* sramtile_tensor_start(const struct sramtile_program* program, const struct sramtile_dram* dram,
                               const struct sramtile_tensor* tensor) {
  const uint64_t past =
      tensor->image_stride == 0 ? 0 : (uint64_t)dram->image * tensor->image_stride * SRAMTILE_ELEM_BYTES;
  switch (tensor->place) {
    case SRAMTILE_PLACE_ARGUMENT:
      return (uint8_t*)dram->arguments[tensor->offset] + past;
    case SRAMTILE_PLACE_CONSTANT: /* only read: a STORE to a constant is refused */
      return (uint8_t*)(uintptr_t)program->constants + tensor->offset + past;
    default:
      return dram->workspace + tensor->offset + past;
  }
}

/* A box of a map. Steps are in elements. */
struct box {
  dram_float* dram; /* its first element */
  int64_t channel_step, row_step, col_step;
  int64_t sram_row; /* elements from one row to the next in SRAM */
  int64_t channels, rows, cols;
  int64_t lanes;
};

static struct box box_of(const struct sramtile_program* program, const struct sramtile_dram* dram,
                         const struct sramtile_load* map) {
  const struct sramtile_tensor tensor = sramtile_tensor_at(program, map->tensor);
  struct box box = {
      .dram = (dram_float*)sramtile_tensor_start(program, dram, &tensor),
      .channel_step = tensor.stride0,
      .row_step = tensor.stride1,
      .col_step = tensor.stride2,
      .sram_row = map->row_bytes / SRAMTILE_ELEM_BYTES,
      .channels = map->channels,
      .rows = map->rows,
      .cols = map->cols,
      .lanes = program->header.lanes,
  };
  box.dram += map->channel * box.channel_step + map->row * box.row_step + map->col * box.col_step;
  /* Rows that follow each other without a gap, in DRAM and in SRAM, are one. */
  if (box.row_step == box.cols * box.col_step && box.sram_row == box.cols * box.lanes) {
    box.cols *= box.rows;
    box.rows = 1;
  }
  return box;
}

/* A row of one channel block whose channels are neighbours in DRAM; lanes past the channels become zeros. */
static void load_lanes(sram_float* to, const dram_float* from, const struct box* box, int64_t channels) {
  const size_t position_bytes = (size_t)box->lanes * SRAMTILE_ELEM_BYTES;
  if (channels < box->lanes) {
    memset(to, 0, (size_t)box->cols * position_bytes);
    for (int64_t col = 0; col < box->cols; col++, to += box->lanes, from += box->col_step) {
      for (int64_t lane = 0; lane < channels; lane++) to[lane] = from[lane];
    }
  } else if (box->col_step == box->lanes) {
    memcpy(to, from, (size_t)box->cols * position_bytes);
  } else if (box->lanes == 16) { /* a size that the compiler knows: no call */
    for (int64_t col = 0; col < box->cols; col++, to += 16, from += box->col_step) memcpy(to, from, 64);
  } else {
    for (int64_t col = 0; col < box->cols; col++, to += box->lanes, from += box->col_step) {
      memcpy(to, from, position_bytes);
    }
  }
}

static void store_lanes(dram_float* to, const sram_float* from, const struct box* box, int64_t channels) {
  const size_t position_bytes = (size_t)box->lanes * SRAMTILE_ELEM_BYTES;
  if (channels < box->lanes) {
    for (int64_t col = 0; col < box->cols; col++, to += box->col_step, from += box->lanes) {
      for (int64_t lane = 0; lane < channels; lane++) to[lane] = from[lane];
    }
  } else if (box->col_step == box->lanes) {
    memcpy(to, from, (size_t)box->cols * position_bytes);
  } else if (box->lanes == 16) {
    for (int64_t col = 0; col < box->cols; col++, to += box->col_step, from += 16) memcpy(to, from, 64);
  } else {
    for (int64_t col = 0; col < box->cols; col++, to += box->col_step, from += box->lanes) {
      memcpy(to, from, position_bytes);
    }
  }
}

/* The same for any order of axes. */
static void load_any(sram_float* to, const dram_float* from, const struct box* box, int64_t channels) {
  for (int64_t lane = 0; lane < box->lanes; lane++) {
    for (int64_t col = 0; col < box->cols; col++) {
      to[col * box->lanes + lane] = lane < channels ? from[lane * box->channel_step + col * box->col_step] : 0.0f;
    }
  }
}

static void store_any(dram_float* to, const sram_float* from, const struct box* box, int64_t channels) {
  for (int64_t lane = 0; lane < channels; lane++) {
    for (int64_t col = 0; col < box->cols; col++) {
      to[lane * box->channel_step + col * box->col_step] = from[col * box->lanes + lane];
    }
  }
}

/* Channels that are neighbours are copied as they are, columns that are neighbours are transposed. */
static void load_row(float* to, const dram_float* from, const struct box* box, int64_t channels) {
  if (box->channel_step == 1 && box->channels > 1) {
    load_lanes((sram_float*)to, from, box, channels);
  } else if (box->col_step == 1) {
    sramtile_blocked_from_planes(to, from, box->channel_step, box->cols, channels, box->lanes);
  } else {
    load_any((sram_float*)to, from, box, channels);
  }
}

static void store_row(dram_float* to, const float* from, const struct box* box, int64_t channels) {
  if (box->channel_step == 1 && box->channels > 1) {
    store_lanes(to, (const sram_float*)from, box, channels);
  } else if (box->col_step == 1) {
    sramtile_planes_from_blocked(to, from, box->channel_step, box->cols, channels, box->lanes);
  } else {
    store_any(to, (const sram_float*)from, box, channels);
  }
}

void sramtile_load(const struct sramtile_program* program, const struct sramtile_dram* dram, uint8_t* sram,
                   const struct sramtile_load* command) {
  const struct box box = box_of(program, dram, command);
  uint8_t* block = sram + command->sram;
  for (int64_t channel = 0; channel < box.channels; channel += box.lanes, block += command->block_bytes) {
    const int64_t real = box.channels - channel < box.lanes ? box.channels - channel : box.lanes;
    const dram_float* const from = box.dram + channel * box.channel_step;
    for (int64_t row = 0; row < box.rows; row++) {
      load_row((float*)(void*)block + row * box.sram_row, from + row * box.row_step, &box, real);
    }
  }
}

void sramtile_store(const struct sramtile_program* program, const struct sramtile_dram* dram, const uint8_t* sram,
                    const struct sramtile_store* command) {
  struct sramtile_load map; /* the same fields */
  memcpy(&map, command, sizeof map);
  const struct box box = box_of(program, dram, &map);
  const uint8_t* block = sram + command->sram;
  for (int64_t channel = 0; channel < box.channels; channel += box.lanes, block += command->block_bytes) {
    const int64_t real = box.channels - channel < box.lanes ? box.channels - channel : box.lanes;
    dram_float* const to = box.dram + channel * box.channel_step;
    for (int64_t row = 0; row < box.rows; row++) {
      store_row(to + row * box.row_step, (const float*)(const void*)block + row * box.sram_row, &box, real);
    }
  }
}

void sramtile_copy(const struct sramtile_header* chip, uint8_t* sram, const struct sramtile_copy* command) {
  const size_t bytes = (size_t)command->rows * sramtile_row_bytes(chip, command->cols);
  const uint64_t blocks = sramtile_ceil_div(command->channels, chip->lanes);
  for (uint64_t block = 0; block < blocks; block++) {
    const uint64_t past = block * command->block_bytes;
    memmove(sram + command->target + past, sram + command->source + past, bytes);
  }
}

void sramtile_load_table(const struct sramtile_program* program, const struct sramtile_dram* dram, uint8_t* sram,
                         const struct sramtile_load_table* command) {
  const struct sramtile_tensor tensor = sramtile_tensor_at(program, command->tensor);
  const size_t output_bytes = tensor.dim1 * sizeof(struct sramtile_entry);
  memcpy(sram + command->sram, sramtile_tensor_start(program, dram, &tensor) + command->first * output_bytes,
         command->count * output_bytes);
}
