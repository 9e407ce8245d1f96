/* Between planes of channels (NCHW) and channel-blocked maps: [channel][position] <-> [position][lane]. */
#include "machine.h"

typedef float dram_float __attribute__((aligned(1), may_alias));
typedef float sram_float __attribute__((may_alias));
typedef float four __attribute__((vector_size(16)));
typedef float dram_four __attribute__((vector_size(16), aligned(1), may_alias));
typedef float sram_four __attribute__((vector_size(16), aligned(4), may_alias));

#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
typedef int four_places __attribute__((vector_size(16)));
#define SHUFFLE(a, b, i, j, k, l) __builtin_shuffle(a, b, (four_places){i, j, k, l})
#endif

/* rows[i][j] <-> rows[j][i] */
static inline void transpose(four* rows) {
  const four a = SHUFFLE(rows[0], rows[1], 0, 4, 1, 5);
  const four b = SHUFFLE(rows[2], rows[3], 0, 4, 1, 5);
  const four c = SHUFFLE(rows[0], rows[1], 2, 6, 3, 7);
  const four d = SHUFFLE(rows[2], rows[3], 2, 6, 3, 7);
  rows[0] = SHUFFLE(a, b, 0, 1, 4, 5);
  rows[1] = SHUFFLE(a, b, 2, 3, 6, 7);
  rows[2] = SHUFFLE(c, d, 0, 1, 4, 5);
  rows[3] = SHUFFLE(c, d, 2, 3, 6, 7);
}

#if defined(__x86_64__)
static int has_avx512(void) {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif

/* `length` positions of `channels` planes to positions of `lanes` floats; lanes past the channels become zeros. */
void sramtile_blocked_from_planes(float* blocked, const void* planes, int64_t plane, int64_t length, int64_t channels,
                                  int64_t lanes) {
#if defined(__x86_64__)
  if (lanes == 16 && has_avx512()) {
    sramtile_blocked_from_planes_avx512(blocked, planes, plane, length, channels);
    return;
  }
#endif
  sram_float* const to = (sram_float*)blocked;
  const dram_float* const from = planes;
  const int64_t fast_lanes = lanes & ~INT64_C(3);
  const int64_t fast_length = length & ~INT64_C(3);
  for (int64_t position = 0; position < fast_length; position += 4) {
    for (int64_t lane = 0; lane < fast_lanes; lane += 4) {
      four rows[4] = {{0}};
      for (int64_t i = 0; i < 4; i++) {
        if (lane + i < channels) rows[i] = *(const dram_four*)(from + (lane + i) * plane + position);
      }
      transpose(rows);
      for (int64_t i = 0; i < 4; i++) *(sram_four*)(to + (position + i) * lanes + lane) = rows[i];
    }
  }
  for (int64_t position = 0; position < length; position++) {
    for (int64_t lane = position < fast_length ? fast_lanes : 0; lane < lanes; lane++) {
      to[position * lanes + lane] = lane < channels ? from[lane * plane + position] : 0.0f;
    }
  }
}

/* The way back; lanes past the channels are not read. */
void sramtile_planes_from_blocked(void* planes, const float* blocked, int64_t plane, int64_t length, int64_t channels,
                                  int64_t lanes) {
#if defined(__x86_64__)
  if (lanes == 16 && has_avx512()) {
    sramtile_planes_from_blocked_avx512(planes, blocked, plane, length, channels);
    return;
  }
#endif
  dram_float* const to = planes;
  const sram_float* const from = (const sram_float*)blocked;
  const int64_t fast_channels = channels & ~INT64_C(3);
  const int64_t fast_length = length & ~INT64_C(3);
  for (int64_t position = 0; position < fast_length; position += 4) {
    for (int64_t channel = 0; channel < fast_channels; channel += 4) {
      four rows[4];
      for (int64_t i = 0; i < 4; i++) rows[i] = *(const sram_four*)(from + (position + i) * lanes + channel);
      transpose(rows);
      for (int64_t i = 0; i < 4; i++) *(dram_four*)(to + (channel + i) * plane + position) = rows[i];
    }
  }
  for (int64_t position = 0; position < length; position++) {
    const int64_t first = position < fast_length ? fast_channels : 0;
    for (int64_t channel = first; channel < channels; channel++) {
      to[channel * plane + position] = from[position * lanes + channel];
    }
  }
}
