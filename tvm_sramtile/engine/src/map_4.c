/* Kernels of maps for the vectors of 16 bytes that every processor of these families has. */
#define VL 4
#define MAP_KERNELS sramtile_map_kernels_4
#include "map_kernels.h"
