/* Convolution kernels with AVX-512 for 16 lanes, and any stride. */
#if defined(__x86_64__)
#include "avx512.h"
#define KERNELS sramtile_conv_avx512_any
#define LANES 16
#include "conv_kernels.h"
SRAMTILE_TARGET_END
#endif
