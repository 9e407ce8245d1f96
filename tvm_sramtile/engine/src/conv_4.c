/* Convolution kernels for the vectors of 16 bytes that every processor of these families has. */
#define VL 4
#define KERNELS sramtile_conv_4
#if defined(__aarch64__) /* 32 registers, otherwise 16 */
#define MAX_COLS 14
#define EACH_WIDTH(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#else
#define MAX_COLS 6
#define EACH_WIDTH(X) X(1) X(2) X(3) X(4) X(5) X(6)
#endif
#include "conv_kernels.h"
