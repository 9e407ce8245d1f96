/* Convolution kernels for x86-64 with AVX2: 16 registers of 8 floats. */
#include "conv_job.h"
#include "target.h"

#if defined(__x86_64__)
SRAMTILE_TARGET("avx2,fma")
#define VL 8
#define KERNELS sramtile_conv_avx2_8
#define MAX_COLS 6
#define EACH_WIDTH(X) X(1) X(2) X(3) X(4) X(5) X(6)
#include "conv_kernels.h"
SRAMTILE_TARGET_END
#endif
