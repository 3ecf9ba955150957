/* Chooses the kernel for this CPU; see ds/sumtree/kernel.h. */
#include "ds/sumtree/kernel.h"

#include "transport/barrier.h"

#include "base/os/cpu.h"

const struct sumtree_kernel *sumtree_kernel_get(void)
{
#if defined(__x86_64__) && !BARRIER_TSAN
	/* Vector loads are not C11 atomics, and ThreadSanitizer checks only these. */
	switch (cpu_level()) {
	case CPU_AVX512:
		return &sumtree_kernel_avx512;
	case CPU_AVX2:
		return &sumtree_kernel_avx2;
	case CPU_PLAIN:
		break;
	}
#endif
	return &sumtree_kernel_plain;
}
