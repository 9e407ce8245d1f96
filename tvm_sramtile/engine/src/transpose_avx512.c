/* The copies of transpose.c for 16 lanes on x86-64 with AVX-512: 16 channels by 16 positions in registers. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "machine.h"
#include "target.h"

SRAMTILE_TARGET("avx512f,avx2,fma")

enum { SIZE = 16 };

/* rows[i][j] <-> rows[j][i]: first within quarters of four floats, then the quarters. */
static inline __attribute__((always_inline)) void transpose(__m512* rows) {
  __m512 pairs[SIZE];
#pragma GCC unroll 16
  for (int i = 0; i < SIZE; i += 4) {
    const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(rows[i], rows[i + 1]));
    const __m512d b = _mm512_castps_pd(_mm512_unpackhi_ps(rows[i], rows[i + 1]));
    const __m512d c = _mm512_castps_pd(_mm512_unpacklo_ps(rows[i + 2], rows[i + 3]));
    const __m512d d = _mm512_castps_pd(_mm512_unpackhi_ps(rows[i + 2], rows[i + 3]));
    pairs[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    pairs[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    pairs[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    pairs[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    const __m512 a = _mm512_shuffle_f32x4(pairs[i], pairs[i + 4], 0x88);
    const __m512 b = _mm512_shuffle_f32x4(pairs[i + 8], pairs[i + 12], 0x88);
    const __m512 c = _mm512_shuffle_f32x4(pairs[i], pairs[i + 4], 0xdd);
    const __m512 d = _mm512_shuffle_f32x4(pairs[i + 8], pairs[i + 12], 0xdd);
    rows[i] = _mm512_shuffle_f32x4(a, b, 0x88);
    rows[i + 4] = _mm512_shuffle_f32x4(c, d, 0x88);
    rows[i + 8] = _mm512_shuffle_f32x4(a, b, 0xdd);
    rows[i + 12] = _mm512_shuffle_f32x4(c, d, 0xdd);
  }
}

static __mmask16 first(int64_t count) { return count < SIZE ? (__mmask16)((1u << count) - 1u) : (__mmask16)0xffffu; }

void sramtile_blocked_from_planes_avx512(float* blocked, const void* planes, int64_t plane, int64_t length,
                                         int64_t channels) {
  const uint8_t* const from = planes;
  for (int64_t position = 0; position < length; position += SIZE) {
    const __mmask16 positions = first(length - position);
    __m512 rows[SIZE];
#pragma GCC unroll 16
    for (int64_t i = 0; i < SIZE; i++) {
      const __mmask16 wanted = i < channels ? positions : (__mmask16)0;
      rows[i] = _mm512_maskz_loadu_ps(wanted, from + (i < channels ? i * plane + position : 0) * SRAMTILE_ELEM_BYTES);
    }
    transpose(rows);
#pragma GCC unroll 16
    for (int64_t i = 0; i < SIZE; i++) {
      if (position + i < length) _mm512_storeu_ps(blocked + (position + i) * SIZE, rows[i]);
    }
  }
}

/* Positions up to the next cache line of the first plane: a store to two lines costs twice. */
static int64_t positions_to_line(const uint8_t* to) {
  return SIZE - (int64_t)((uintptr_t)to / SRAMTILE_ELEM_BYTES % SIZE);
}

void sramtile_planes_from_blocked_avx512(void* planes, const float* blocked, int64_t plane, int64_t length,
                                         int64_t channels) {
  uint8_t* const to = planes;
  int64_t count = positions_to_line(to);
  for (int64_t position = 0; position < length; position += count, count = SIZE) {
    const int64_t left = length - position;
    if (count > left) count = left;
    const __mmask16 positions = first(count);
    __m512 rows[SIZE];
#pragma GCC unroll 16
    for (int64_t i = 0; i < SIZE; i++) {
      rows[i] = i < count ? _mm512_loadu_ps(blocked + (position + i) * SIZE) : _mm512_setzero_ps();
    }
    transpose(rows);
#pragma GCC unroll 16
    for (int64_t i = 0; i < SIZE; i++) {
      if (i < channels) _mm512_mask_storeu_ps(to + (i * plane + position) * SRAMTILE_ELEM_BYTES, positions, rows[i]);
    }
  }
}

SRAMTILE_TARGET_END
#endif
