#include "base/os/cpu.h"

#include <stdatomic.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#ifndef RLV_CPU_LEVEL /* -DRLV_CPU_LEVEL=CPU_AVX2 builds a library to measure that kernel */
#define RLV_CPU_LEVEL CPU_AVX512
#endif

/* All relaxed: each word stands alone, and asking the CPU twice gives the same answer. */
static _Atomic int found_level = -1;
static _Atomic int level_limit = RLV_CPU_LEVEL;

enum cpu_level cpu_level(void)
{
	int level = atomic_load_explicit(&found_level, memory_order_relaxed);
	int limit = atomic_load_explicit(&level_limit, memory_order_relaxed);

	if (level < 0) {
		level = CPU_PLAIN;
#if defined(__x86_64__)
		if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") &&
		    __builtin_cpu_supports("fma"))
			level = CPU_AVX2;
		if (level == CPU_AVX2 && __builtin_cpu_supports("avx512f") &&
		    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
		    __builtin_cpu_supports("avx512vl"))
			level = CPU_AVX512;
#endif
		atomic_store_explicit(&found_level, level, memory_order_relaxed);
	}
	return (enum cpu_level)(level < limit ? level : limit);
}

void cpu_level_limit(enum cpu_level level)
{
	atomic_store_explicit(&level_limit, (int)level, memory_order_relaxed);
}

/* Bits of register c: of leaf 1, and of the first extended one. */
enum { CPUID_CMPXCHG16B = 13, CPUID_SSE42 = 20, CPUID_PREFETCHW = 8 };

static bool may_more_than_plain(void)
{
	return atomic_load_explicit(&level_limit, memory_order_relaxed) != CPU_PLAIN;
}

/*
 * True if CPUID sets that bit of ECX for the leaf. *found caches the answer (-1 = not asked): in a
 * guest each CPUID leaves to the host, for microseconds.
 */
static bool cpuid_has(_Atomic int *found, unsigned leaf, unsigned bit)
{
	int has = atomic_load_explicit(found, memory_order_relaxed);
	unsigned c = 0;

	if (has < 0) {
#if defined(__x86_64__)
		unsigned a, b, d;

		(void)__get_cpuid(leaf, &a, &b, &c, &d);
#else
		(void)leaf;
#endif
		has = (c >> bit & 1) != 0;
		atomic_store_explicit(found, has, memory_order_relaxed);
	}
	return has;
}

bool cpu_has_crc32(void)
{
	static _Atomic int found = -1;

	return may_more_than_plain() && cpuid_has(&found, 1, CPUID_SSE42);
}

bool cpu_has_vpclmul(void)
{
#if defined(__x86_64__)
	return cpu_level() == CPU_AVX512 && cpu_has_crc32() && __builtin_cpu_supports("vpclmulqdq");
#else
	return false;
#endif
}

bool cpu_has_cas16(void)
{
	static _Atomic int found = -1;

	return may_more_than_plain() && cpuid_has(&found, 1, CPUID_CMPXCHG16B);
}

bool cpu_has_prefetchw(void)
{
	static _Atomic int found = -1;

	return cpuid_has(&found, 0x80000001, CPUID_PREFETCHW);
}

const char *cpu_level_name(enum cpu_level level)
{
	static const char *const names[] = { "plain", "avx2", "avx512" };

	return names[level];
}
