/*
 * kernel.h - private to ds/weights/: what deltas do to each byte of an array, a run at a time. All
 * variants give equal results; runs lie at any address.
 */
#ifndef RLV_DS_WEIGHTS_KERNEL_H
#define RLV_DS_WEIGHTS_KERNEL_H

#include <stdint.h>

#include "wire/delta_layout.h"

#include "base/bits.h"

#define DELTA_LINES (DELTA_RUN / CACHE_LINE)
#define DELTA_LINE_WORDS (CACHE_LINE / 4)

struct delta_kernel {
	/* Sets differ[i], for each line: a bit for each byte that differs. Returns a bit for each such line. */
	uint64_t (*compare)(const uint8_t *old, const uint8_t *now, uint64_t differ[DELTA_LINES]);
	/*
	 * Copies the lines, a bit each. Returns how much the sum of the words times their keys grows,
	 * modulo 2^64.
	 */
	uint64_t (*copy)(uint8_t *to, const uint8_t *from, uint64_t lines);
	/* The sum of the words times their keys. */
	uint64_t (*sum)(const uint8_t *run);
};

extern const struct delta_kernel delta_kernel_plain;
extern const struct delta_kernel delta_kernel_avx2;
extern const struct delta_kernel delta_kernel_avx512;

/* DELTA_KEY of each word of a run. */
extern const uint64_t delta_keys[DELTA_RUN_WORDS];

/* The variant of the kernel for this CPU. Thread: any. */
const struct delta_kernel *delta_kernel_get(void);

#endif
