/* Kernels of maps with AVX-512, for lanes that are a multiple of 16. */
#if defined(__x86_64__)
#include "map_job.h"
#include "avx512.h"
#define MAP_KERNELS sramtile_map_kernels_avx512
#include "map_kernels.h"
SRAMTILE_TARGET_END
#endif
