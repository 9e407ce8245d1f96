/* Convolution kernels with AVX2 for lanes that are a multiple of 8, and any stride. */
#if defined(__x86_64__)
#include "avx2.h"
#define KERNELS sramtile_conv_avx2_any
#include "conv_kernels.h"
SRAMTILE_TARGET_END
#endif
