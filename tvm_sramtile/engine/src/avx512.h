/* Parameters of conv_kernels.h for x86-64 with AVX-512: 32 registers of 16 floats. SRAMTILE_TARGET_END must follow. */
#include <immintrin.h>

#include "conv_job.h"
#include "target.h"

SRAMTILE_TARGET("avx512f,avx2,fma")
#define VL 16
#define MAX_COLS 14
#define EACH_WIDTH(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#define VECTOR_MAX _mm512_max_ps
#define VECTOR_MIN _mm512_min_ps
