/* Convolution kernels without vectors, for lanes that are no multiple of 4. */
#define VL 1
#define KERNELS sramtile_conv_1
#define MAX_COLS 4
#define EACH_WIDTH(X) X(1) X(2) X(3) X(4)
#include "conv_kernels.h"
