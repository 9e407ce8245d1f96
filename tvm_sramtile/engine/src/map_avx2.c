/* Kernels of maps with AVX2, for lanes that are a multiple of 8. */
#if defined(__x86_64__)
#include "map_job.h"
#include "avx2.h"
#define MAP_KERNELS sramtile_map_kernels_avx2
#include "map_kernels.h"
SRAMTILE_TARGET_END
#endif
