/* Convolution kernels with AVX-512 for 16 lanes and a column stride of 1. */
#if defined(__x86_64__)
#include "avx512.h"
#define KERNELS sramtile_conv_avx512_stride1
#define LANES 16
#define STRIDE 1
#include "conv_kernels.h"
SRAMTILE_TARGET_END
#endif
