/* Parameters of conv_kernels.h for x86-64 with AVX2: 16 registers of 8 floats. SRAMTILE_TARGET_END must follow. */
#include <immintrin.h>

#include "conv_job.h"
#include "target.h"

SRAMTILE_TARGET("avx2,fma")
#define VL 8
#define MAX_COLS 6
#define EACH_WIDTH(X) X(1) X(2) X(3) X(4) X(5) X(6)
#define VECTOR_MAX _mm256_max_ps
#define VECTOR_MIN _mm256_min_ps
