/*
 * cpu.h - the vector instructions of this CPU, detected once.
 *
 * A function with vector variants has one entry that looks at cpu_level() and one variant per
 * level; all variants give identical results. Variants live in files *_avx2.c and *_avx512.c,
 * which alone are compiled for those instructions.
 */
#ifndef RLV_BASE_OS_CPU_H
#define RLV_BASE_OS_CPU_H

#include <stdbool.h>

enum cpu_level {
	CPU_PLAIN,
	CPU_AVX2,   /* AVX2, BMI2, FMA */
	CPU_AVX512, /* AVX-512 F, DQ, BW, VL and all of CPU_AVX2 */
};

/* The highest level that CPU and kernel support, at most that of cpu_level_limit. Thread: any. */
enum cpu_level cpu_level(void);

/*
 * For tests and benches: cpu_level() is at most level from now on; CPU_AVX512 = no limit. Thread:
 * setup.
 */
void cpu_level_limit(enum cpu_level level);

/* "plain", "avx2", "avx512". Static. */
const char *cpu_level_name(enum cpu_level level);

/* True if the CPU has SSE4.2's crc32 instruction; false under the limit CPU_PLAIN. */
bool cpu_has_crc32(void);

/* True if the CPU has carry-less multiplication of 64-byte vectors; false below CPU_AVX512. */
bool cpu_has_vpclmul(void);

/* True if the CPU has cmpxchg16b; false under the limit CPU_PLAIN. */
bool cpu_has_cas16(void);

/*
 * True if the CPU has prefetchw, which fetches a line to be written; cpu_level_limit has no effect.
 */
bool cpu_has_prefetchw(void);

/* Fetches the line at `at` into the cache to be written; the caller has seen cpu_has_prefetchw().
   __builtin_prefetch would only fetch the line to read. */
static inline void cpu_prefetch_to_write(const void *at)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)at));
#else
	__builtin_prefetch(at, 1);
#endif
}

#endif
