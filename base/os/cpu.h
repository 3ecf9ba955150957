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

/* The highest level that CPU and kernel support, no higher than the limit. Thread: any. */
enum cpu_level cpu_level(void);

/* For tests and benches: never go above level. CPU_AVX512 lifts the limit. Thread: setup. */
void cpu_level_limit(enum cpu_level level);

/* "plain", "avx2", "avx512". Static. */
const char *cpu_level_name(enum cpu_level level);

/* SSE4.2's crc32 instruction, under the same limit (CPU_PLAIN = use the table). */
bool cpu_has_crc32(void);

/* cmpxchg16b, under the same limit. */
bool cpu_has_cas16(void);

/* prefetchw, which fetches a line to be written. */
bool cpu_has_prefetchw(void);

#endif
