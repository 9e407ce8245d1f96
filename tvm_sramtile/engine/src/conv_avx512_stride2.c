/* Convolution kernels with AVX-512 for 16 lanes and a column stride of 2. */
#if defined(__x86_64__)
#include "avx512.h"
#define KERNELS sramtile_conv_avx512_stride2
#define LANES 16
#define STRIDE 2
#include "conv_kernels.h"
SRAMTILE_TARGET_END
#endif
