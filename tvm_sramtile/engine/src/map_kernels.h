/* The kernels of POOL, RESIZE and ELTWISE, a template: included once for each vector width and processor.
 *
 * The file that includes it defines VL, what vector.h takes, and MAP_KERNELS, the name of the table of its functions.
 * Lanes are a multiple of VL; all lanes of a block are computed, those past the last channel too.
 */
#include "map_job.h"
#include "vector.h"
#include "functions.h"
#include "pool_kernel.h"
#include "resize_kernel.h"
#include "eltwise_kernel.h"

const struct sramtile_map_kernels MAP_KERNELS = {run_pool, run_resize, run_eltwise};
