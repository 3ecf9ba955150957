#include "base/os/cpu.h"

#include <stdatomic.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* All relaxed: each word stands alone, and asking the CPU twice gives the same answer. */
static _Atomic int found_level = -1;
static _Atomic int level_limit = CPU_AVX512;

static enum cpu_level find_level(void)
{
#if defined(__x86_64__)
	if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi2") ||
	    !__builtin_cpu_supports("fma"))
		return CPU_PLAIN;
	if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512dq") ||
	    !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl"))
		return CPU_AVX2;
	return CPU_AVX512;
#else
	return CPU_PLAIN;
#endif
}

enum cpu_level cpu_level(void)
{
	int level = atomic_load_explicit(&found_level, memory_order_relaxed);
	int limit = atomic_load_explicit(&level_limit, memory_order_relaxed);

	if (level < 0) {
		level = (int)find_level();
		atomic_store_explicit(&found_level, level, memory_order_relaxed);
	}
	return (enum cpu_level)(level < limit ? level : limit);
}

void cpu_level_limit(enum cpu_level level)
{
	atomic_store_explicit(&level_limit, (int)level, memory_order_relaxed);
}

#if defined(__x86_64__)

static bool may_more_than_plain(void)
{
	return atomic_load_explicit(&level_limit, memory_order_relaxed) != CPU_PLAIN;
}

bool cpu_has_crc32(void)
{
	return may_more_than_plain() && __builtin_cpu_supports("sse4.2");
}

/* A bit of register c of a CPUID leaf. Asked once: in a guest each CPUID leaves it, for microseconds. */
static bool cpuid_has(_Atomic int *found, unsigned leaf, unsigned bit)
{
	int has = atomic_load_explicit(found, memory_order_relaxed);
	unsigned a, b, c = 0, d;

	if (has < 0) {
		has = __get_cpuid(leaf, &a, &b, &c, &d) && c & bit;
		atomic_store_explicit(found, has, memory_order_relaxed);
	}
	return has;
}

bool cpu_has_cas16(void)
{
	static _Atomic int found = -1;

	return may_more_than_plain() && cpuid_has(&found, 1, bit_CMPXCHG16B);
}

bool cpu_has_prefetchw(void)
{
	static _Atomic int found = -1;

	return cpuid_has(&found, 0x80000001, bit_PRFCHW);
}

#else

bool cpu_has_crc32(void)
{
	return false;
}

bool cpu_has_cas16(void)
{
	return false;
}

bool cpu_has_prefetchw(void)
{
	return false;
}

#endif

const char *cpu_level_name(enum cpu_level level)
{
	static const char *const names[] = { "plain", "avx2", "avx512" };

	return names[level];
}
