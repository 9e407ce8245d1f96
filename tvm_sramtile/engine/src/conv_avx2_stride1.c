/* Convolution kernels with AVX2 for 16 lanes and a column stride of 1. */
#if defined(__x86_64__)
#include "avx2.h"
#define KERNELS sramtile_conv_avx2_stride1
#define LANES 16
#define STRIDE 1
#include "conv_kernels.h"
SRAMTILE_TARGET_END
#endif
