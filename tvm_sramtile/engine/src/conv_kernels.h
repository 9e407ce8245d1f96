/* The convolution kernels, a template: included once for each vector width and processor.
 *
 * The file that includes it defines
 *   VL              lanes of a vector
 *   KERNELS         name of the function that runs a job
 *   MAX_COLS        widest tile: so many columns by two vectors must fit the registers
 *   EACH_WIDTH(X)   X(1) ... X(MAX_COLS)
 *   what vector.h takes      optional
 *   LANES, STRIDE            optional: the only lanes and column stride that it is for; constants make it faster
 *
 * A strip is VL output channels of one channel block. A tile is up to MAX_COLS neighbouring columns of one output row,
 * of one strip or two; its sums stay in registers from the first tap to the epilogue.
 */
#include "conv_job.h"
#include "vector.h"

#if defined(LANES)
#define START_STEP LANES
#define GATHERED_STEP LANES
#else
#define LANES job->lanes
#define START_STEP tile->start_step
#define GATHERED_STEP VL
#endif
#ifndef STRIDE
#define STRIDE job->stride_cols
#endif

/* Where a tile lies. Arrays have one entry for each of the one or two strips. */
struct tile {
  int64_t row, col;                   /* of the output */
  int64_t first_tap_row, end_tap_row; /* the kernel rows that meet the input map */
  const float* input;                 /* the channel block that holds the group's first input channel */
  int64_t input_lane;                 /* that channel's lane */
  const float* weights[2];
  const float* bias[2];
  const float* start[2];       /* the sums to start from; NULL: zeros */
  int64_t start_step;          /* from one column's to the next one's */
  int64_t out[2];              /* the strip's place in an output map */
  int64_t first_lane, end_lane; /* the lanes of a strip that belong to the group */
};

/* The least q with q*divisor >= value, but not below 0. */
static inline int64_t least_multiple(int64_t value, int64_t divisor) {
  return value <= 0 ? 0 : (value + divisor - 1) / divisor;
}

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Weights come one after the other, but faster than the processor fetches them by itself where a tile is narrow. */
ALWAYS_INLINE void fetch_ahead(const float* w, int64_t lanes) {
  enum { CHANNELS = 12 };
  __builtin_prefetch((const void*)((uintptr_t)w + (uintptr_t)(CHANNELS * lanes) * sizeof *w)); /* may lie past their end */
}

/* sums += x * w for `count` input channels and the columns [from, to), which are constants where this is inlined. */
ALWAYS_INLINE void multiply(vec* sums, const int cols, const int strips, const int from, const int to, const float* x,
                            const int64_t step, const float* w0, const float* w1, const int64_t lanes,
                            const int64_t count) {
  for (int64_t channel = 0; channel < count; channel++) {
    const vec first = load(w0 + channel * lanes);
    const vec second = strips > 1 ? load(w1 + channel * lanes) : first;
    fetch_ahead(w0 + channel * lanes, lanes);
    if (strips > 1) fetch_ahead(w1 + channel * lanes, lanes);
#pragma GCC unroll 16
    for (int col = from; col < to; col++) {
      const float value = x[(col - from) * step + channel];
      sums[col] += value * first;
      if (strips > 1) sums[cols + col] += value * second;
    }
  }
}

/* The same for sums in memory and any columns: taps that meet the map's border in an unusual way. */
NEVER_INLINE void multiply_some(vec* sums, int cols, int strips, int from, int to, const float* x, int64_t step,
                                const float* w0, const float* w1, int64_t lanes, int64_t count) {
  for (int strip = 0; strip < strips; strip++) {
    const float* const w = strip == 0 ? w0 : w1;
    for (int col = from; col < to; col++) {
      vec sum = sums[strip * cols + col];
      for (int64_t channel = 0; channel < count; channel++) {
        sum += x[(col - from) * step + channel] * load(w + channel * lanes);
      }
      sums[strip * cols + col] = sum;
    }
  }
}

/* The form matters: with a step that is no constant, the sums would be spilled at each tap. */
ALWAYS_INLINE void start_sums(vec* sums, const int cols, const int strips, const struct tile* tile) {
  for (int strip = 0; strip < strips; strip++) {
    const float* const start = tile->start[strip];
#pragma GCC unroll 16
    for (int col = 0; col < cols; col++) {
      const vec zero = {0};
      sums[strip * cols + col] = start == NULL ? zero : load(start + col * START_STEP);
    }
  }
}

/* Of strips that several groups share only some lanes are written; the columns of a phase have others between them. */
NEVER_INLINE void write_spaced(float* to, const vec* sums, int cols, int64_t step, int64_t first, int64_t end) {
  if (first == 0 && end == VL) {
    for (int col = 0; col < cols; col++) store(to + col * step, sums[col]);
    return;
  }
  int32_t lanes[VL];
  for (int64_t lane = 0; lane < VL; lane++) lanes[lane] = -(lane >= first && lane < end);
  mask own;
  memcpy(&own, lanes, sizeof own);
  for (int col = 0; col < cols; col++) store(to + col * step, choose(own, sums[col], load(to + col * step)));
}

/* The epilogue. Each of its steps goes over all sums, so that none has a branch among the registers. */
ALWAYS_INLINE void write_sums(vec* sums, const int cols, const int strips, const struct sramtile_conv_job* job,
                              const struct tile* tile) {
  if (job->bias != NULL) {
    const vec first = load(tile->bias[0]);
    const vec second = load(tile->bias[strips - 1]);
#pragma GCC unroll 32
    for (int index = 0; index < strips * cols; index++) sums[index] += index < cols ? first : second;
  }
  if (job->clip) {
    const vec low = filled(job->clip_low);
    const vec high = filled(job->clip_high);
#pragma GCC unroll 32
    for (int index = 0; index < strips * cols; index++) sums[index] = limited(sums[index], low, high);
  }
  float* const to = job->output + tile->out[0] + tile->col * job->out_step;
  float* const second_to = job->output + tile->out[strips - 1] + tile->col * job->out_step;
  if (tile->first_lane == 0 && tile->end_lane == VL && job->out_step == LANES) {
#pragma GCC unroll 32
    for (int col = 0; col < cols; col++) store(to + col * LANES, sums[col]);
#pragma GCC unroll 32
    for (int col = 0; col < cols && strips > 1; col++) store(second_to + col * LANES, sums[cols + col]);
    return;
  }
  vec spilled[2 * MAX_COLS];
#pragma GCC unroll 32
  for (int index = 0; index < strips * cols; index++) spilled[index] = sums[index];
  write_spaced(to, spilled, cols, job->out_step, tile->first_lane, tile->end_lane);
  if (strips > 1) write_spaced(second_to, spilled + cols, cols, job->out_step, 0, VL);
}

/* Which columns of a tile a tap meets: [from, to), and the input column of the first of them. */
struct reach {
  int from, to;
  int64_t in_col;
};

ALWAYS_INLINE struct reach reach_of(const struct sramtile_conv_job* job, int64_t first, const int cols) {
  struct reach reach = {0, cols, first};
  int64_t last = first + (cols - 1) * STRIDE;
  for (; reach.in_col < 0 && reach.from < cols; reach.in_col += STRIDE) reach.from++;
  for (; last >= job->in_cols && reach.to > 0; last -= STRIDE) reach.to--;
  return reach;
}

/* The kernel columns that some column of a tile meets within the map. */
struct taps {
  int64_t first, end;
};

ALWAYS_INLINE struct taps taps_of(const struct sramtile_conv_job* job, int64_t left, const int cols) {
  struct taps taps = {0, job->kernel_cols};
  const int64_t width = (cols - 1) * STRIDE;
  /* The divisions are for the borders only. */
  if (left + width < 0) taps.first = least_multiple(-left - width, job->dilation_cols);
  if (left + (job->kernel_cols - 1) * job->dilation_cols >= job->in_cols) {
    taps.end = least_multiple(job->in_cols - left, job->dilation_cols);
  }
  return taps;
}

/* One tap of a tile for `count` input channels. Columns whose input lies outside the map are skipped. */
ALWAYS_INLINE void tap(vec* sums, const int cols, const int strips, const struct sramtile_conv_job* job, int64_t in_col,
                       const float* row, const float* w0, const float* w1, int64_t count) {
  const int64_t lanes = LANES;
  const int64_t step = STRIDE * lanes;
  if (in_col >= 0 && in_col + (cols - 1) * STRIDE < job->in_cols) {
    multiply(sums, cols, strips, 0, cols, row + in_col * lanes, step, w0, w1, lanes, count);
    return;
  }
  const struct reach reach = reach_of(job, in_col, cols);
  if (reach.from >= reach.to) return;
  const float* const x = row + reach.in_col * lanes;
  if (cols > 2 && reach.from == 1 && reach.to == cols) {
    multiply(sums, cols, strips, 1, cols, x, step, w0, w1, lanes, count);
  } else if (cols > 2 && reach.from == 0 && reach.to == cols - 1) {
    multiply(sums, cols, strips, 0, cols - 1, x, step, w0, w1, lanes, count);
  } else {
    vec spilled[2 * MAX_COLS];
#pragma GCC unroll 32
    for (int index = 0; index < strips * cols; index++) spilled[index] = sums[index];
    multiply_some(spilled, cols, strips, reach.from, reach.to, x, step, w0, w1, lanes, count);
#pragma GCC unroll 32
    for (int index = 0; index < strips * cols; index++) sums[index] = spilled[index];
  }
}

/* All input channels of the tile's group, in runs that lie in one block of the map and in one of the weights. */
ALWAYS_INLINE void dense_tile(const struct sramtile_conv_job* job, const struct tile* tile, const int cols,
                              const int strips) {
  const int64_t lanes = LANES;
  const int64_t taps = job->kernel_rows * job->kernel_cols;
  const int64_t left = tile->col * STRIDE - job->pad_left;
  const struct taps range = taps_of(job, left, cols);
  vec sums[2 * MAX_COLS];
  start_sums(sums, cols, strips, tile);
  int64_t lane = tile->input_lane;
  int64_t in_weights = 0; /* input channels done of the current block of weights */
  const float* block = tile->input;
  for (int64_t done = 0; done < job->ipg;) {
    const int64_t row_weights = least(job->ipg - done + in_weights, lanes); /* input channels of this weight block */
    const int64_t count = least(row_weights - in_weights, lanes - lane);
    const int64_t past = ((done - in_weights) * taps + in_weights) * lanes;
    for (int64_t row = tile->first_tap_row; row < tile->end_tap_row; row++) {
      const int64_t in_row = tile->row * job->stride_rows + row * job->dilation_rows - job->pad_top;
      const float* const x = block + in_row * job->in_row + lane;
      for (int64_t col = range.first; col < range.end; col++) {
        const int64_t weight = past + (row * job->kernel_cols + col) * row_weights * lanes;
        tap(sums, cols, strips, job, left + col * job->dilation_cols, x, tile->weights[0] + weight,
            tile->weights[strips - 1] + weight, count);
      }
    }
    done += count;
    lane += count;
    if (lane == lanes) {
      lane = 0;
      block += job->in_block;
    }
    in_weights = in_weights + count == lanes ? 0 : in_weights + count;
  }
  write_sums(sums, cols, strips, job, tile);
}

/* sums += x * w, lane by lane, for the columns [from, to). */
ALWAYS_INLINE void multiply_lanes(vec* sums, const int from, const int to, const float* x, const int64_t step, vec w) {
#pragma GCC unroll 16
  for (int col = from; col < to; col += 2) {
    sums[col] += w * load(x);
    if (col + 1 < to) sums[col + 1] += w * load(x + step);
    if (col + 2 < to) x += 2 * step;
    /* Keep it one running pointer: with all addresses computed beforehand the compiler runs out of registers. */
    __asm__("" : "+r"(x));
  }
}

NEVER_INLINE void multiply_some_lanes(vec* sums, int from, int to, const float* x, int64_t step, const vec* w) {
  for (int col = from; col < to; col++) sums[col] += *w * load(x + (col - from) * step);
}

ALWAYS_INLINE void depthwise_tap(vec* sums, const int cols, const struct sramtile_conv_job* job, int64_t in_col,
                                 const float* row, vec w) {
  const int64_t step = STRIDE * LANES;
  if (in_col >= 0 && in_col + (cols - 1) * STRIDE < job->in_cols) {
    multiply_lanes(sums, 0, cols, row + in_col * LANES, step, w);
    return;
  }
  const struct reach reach = reach_of(job, in_col, cols);
  const float* const x = row + reach.in_col * LANES;
  if (cols > 1 && reach.from == 1 && reach.to == cols) {
    multiply_lanes(sums, 1, cols, x, step, w);
  } else if (cols > 1 && reach.from == 0 && reach.to == cols - 1) {
    multiply_lanes(sums, 0, cols - 1, x, step, w);
  } else {
    vec spilled[MAX_COLS];
#pragma GCC unroll 16
    for (int col = 0; col < cols; col++) spilled[col] = sums[col];
    multiply_some_lanes(spilled, reach.from, reach.to, x, step, &w);
#pragma GCC unroll 16
    for (int col = 0; col < cols; col++) sums[col] = spilled[col];
  }
}

/* One input channel for each output channel: lane by lane. */
ALWAYS_INLINE void depthwise_tile(const struct sramtile_conv_job* job, const struct tile* tile, const int cols) {
  const int64_t lanes = LANES;
  const int64_t left = tile->col * STRIDE - job->pad_left;
  const struct taps range = taps_of(job, left, cols);
  const float* const block = tile->input + tile->input_lane;
  vec sums[2 * MAX_COLS];
  start_sums(sums, cols, 1, tile);
  for (int64_t row = tile->first_tap_row; row < tile->end_tap_row; row++) {
    const int64_t in_row = tile->row * job->stride_rows + row * job->dilation_rows - job->pad_top;
    for (int64_t col = range.first; col < range.end; col++) {
      depthwise_tap(sums, cols, job, left + col * job->dilation_cols, block + in_row * job->in_row,
                    load(tile->weights[0] + (row * job->kernel_cols + col) * lanes));
    }
  }
  write_sums(sums, cols, 1, job, tile);
}

#define TILE_FUNCTIONS(N)                                                                        \
  NEVER_INLINE void dense_1_##N(const struct sramtile_conv_job* job, const struct tile* tile) {  \
    dense_tile(job, tile, N, 1);                                                                 \
  }                                                                                              \
  NEVER_INLINE void dense_2_##N(const struct sramtile_conv_job* job, const struct tile* tile) {  \
    dense_tile(job, tile, N, 2);                                                                 \
  }                                                                                              \
  NEVER_INLINE void depthwise_##N(const struct sramtile_conv_job* job, const struct tile* tile) { \
    depthwise_tile(job, tile, N);                                                                \
  }
EACH_WIDTH(TILE_FUNCTIONS)

typedef void tile_function(const struct sramtile_conv_job* job, const struct tile* tile);
#define DENSE_1(N) dense_1_##N,
#define DENSE_2(N) dense_2_##N,
#define DEPTHWISE(N) depthwise_##N,
static tile_function* const DENSE_1_TILES[] = {NULL, EACH_WIDTH(DENSE_1)};
static tile_function* const DENSE_2_TILES[] = {NULL, EACH_WIDTH(DENSE_2)};
static tile_function* const DEPTHWISE_TILES[] = {NULL, EACH_WIDTH(DEPTHWISE)};

/* Where the sums of a tile start. Those of a phase are gathered first: kernels that step over others are slower. */
static void place_start(const struct sramtile_conv_job* job, struct tile* tile, int strips, int64_t width,
                        float* gathered) {
  tile->start_step = job->out_step == LANES ? LANES : GATHERED_STEP;
  for (int strip = 0; strip < strips; strip++) {
    const float* const start = job->start + tile->out[strip] + tile->col * job->out_step;
    float* const to = gathered + strip * MAX_COLS * GATHERED_STEP;
    tile->start[strip] = job->out_step == LANES ? start : to;
    for (int64_t col = 0; col < width && job->out_step != LANES; col++) {
      store(to + col * GATHERED_STEP, load(start + col * job->out_step));
    }
  }
}

/* All rows of one strip or two, each cut into tiles of nearly equal width. */
static void run_strips(const struct sramtile_conv_job* job, struct tile* tile, tile_function* const* functions,
                       int strips) {
  const int64_t tiles = (job->out_cols + MAX_COLS - 1) / MAX_COLS;
  const int64_t narrow = job->out_cols / tiles, wider = job->out_cols % tiles;
  float gathered[2 * MAX_COLS * GATHERED_STEP];
  int64_t place[2];
  for (int strip = 0; strip < strips; strip++) place[strip] = tile->out[strip];
  for (int64_t row = 0; row < job->out_rows; row++) {
    const int64_t top = row * job->stride_rows - job->pad_top;
    tile->row = row;
    tile->first_tap_row = least_multiple(-top, job->dilation_rows);
    tile->end_tap_row = least(least_multiple(job->in_rows - top, job->dilation_rows), job->kernel_rows);
    for (int strip = 0; strip < strips; strip++) tile->out[strip] = place[strip] + row * job->out_row;
    tile->col = 0;
    for (int64_t index = 0; index < tiles; index++) {
      const int64_t width = narrow + (index < wider);
      if (job->start != NULL) place_start(job, tile, strips, width, gathered);
      functions[width](job, tile);
      tile->col += width;
    }
  }
}

/* The tile's fields that depend on its strip alone. */
static void place_strip(const struct sramtile_conv_job* job, struct tile* tile, int index, int64_t channel) {
  const int64_t taps = job->kernel_rows * job->kernel_cols;
  const int64_t block = channel / LANES;
  const int64_t lane = channel % LANES;
  tile->weights[index] = job->weights + block * job->ipg * taps * LANES + lane;
  tile->bias[index] = job->bias == NULL ? NULL : job->bias + block * job->bias_block + lane;
  tile->out[index] = block * job->out_block + lane;
}

static void place_input(const struct sramtile_conv_job* job, struct tile* tile, int64_t channel) {
  tile->input = job->input + channel / LANES * job->in_block;
  tile->input_lane = channel % LANES;
}

/* A strip that one group or several share; returns how many strips it has done (two of one group go together). */
static int run_dense(const struct sramtile_conv_job* job, struct tile* tile, int64_t channel) {
  const int64_t channels = job->groups * job->opg;
  const int64_t first_group = channel / job->opg;
  const int64_t end = least(channel + VL, channels);
  const int pair = channel + VL < channels && (least(channel + 2 * VL, channels) - 1) / job->opg == first_group;
  for (int64_t group = first_group; group * job->opg < end; group++) {
    const int64_t after = (group + 1) * job->opg;
    place_input(job, tile, group * job->ipg);
    tile->first_lane = group == first_group ? 0 : group * job->opg - channel;
    tile->end_lane = after >= channels ? VL : least(after - channel, VL); /* past the last channel: anything */
    place_strip(job, tile, 0, channel);
    if (pair) place_strip(job, tile, 1, channel + VL);
    run_strips(job, tile, pair ? DENSE_2_TILES : DENSE_1_TILES, pair ? 2 : 1);
  }
  return pair ? 2 : 1;
}

void KERNELS(const struct sramtile_conv_job* job) {
  struct tile tile = {.first_lane = 0, .end_lane = VL};
  for (int64_t channel = 0; channel < job->groups * job->opg;) {
    if (job->ipg == 1 && job->opg == 1) {
      place_input(job, &tile, channel);
      place_strip(job, &tile, 0, channel);
      run_strips(job, &tile, DEPTHWISE_TILES, 1);
      channel += VL;
    } else {
      channel += (int64_t)run_dense(job, &tile, channel) * VL;
    }
  }
}
