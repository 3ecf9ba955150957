/* Powers of arrays for CPU_PLAIN; see priority_kernel.h. */
#include "ds/replay/priority_kernel.h"

PRIORITY_KERNEL(priority_kernel_plain);
