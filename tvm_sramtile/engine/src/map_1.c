/* Kernels of maps without vectors, for lanes that are no multiple of 4. */
#define VL 1
#define MAP_KERNELS sramtile_map_kernels_1
#include "map_kernels.h"
