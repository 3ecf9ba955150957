/* Chooses the kernel for this CPU, and the keys; see ds/weights/kernel.h. */
#include "ds/weights/kernel.h"

#include "base/os/cpu.h"

const struct delta_kernel *delta_kernel_get(void)
{
#if defined(__x86_64__)
	switch (cpu_level()) {
	case CPU_AVX512:
		return &delta_kernel_avx512;
	case CPU_AVX2:
		return &delta_kernel_avx2;
	case CPU_PLAIN:
		break;
	}
#endif
	return &delta_kernel_plain;
}

#define KEYS_4(w) DELTA_KEY(w), DELTA_KEY((w) + 1), DELTA_KEY((w) + 2), DELTA_KEY((w) + 3)
#define KEYS_16(w) KEYS_4(w), KEYS_4((w) + 4), KEYS_4((w) + 8), KEYS_4((w) + 12)
#define KEYS_64(w) KEYS_16(w), KEYS_16((w) + 16), KEYS_16((w) + 32), KEYS_16((w) + 48)
#define KEYS_256(w) KEYS_64(w), KEYS_64((w) + 64), KEYS_64((w) + 128), KEYS_64((w) + 192)

_Alignas(CACHE_LINE) const uint64_t delta_keys[DELTA_RUN_WORDS] = {
	KEYS_256(0),
	KEYS_256(256),
	KEYS_256(512),
	KEYS_256(768),
};
