/*
 * yardstick.h - current memory performance of the machine, measured beside each window.
 */
#ifndef RLV_BENCH_HARNESS_YARDSTICK_H
#define RLV_BENCH_HARNESS_YARDSTICK_H

#include <stddef.h>
#include <stdint.h>

#include "base/mem/alloc.h"
#include "base/error.h"

struct yardstick {
	struct pages memory; /* as large as the measured data, at most 1 GiB */
	struct pages target;
	size_t next; /* next offset in memory to copy */
};

/* Allocates memory to read, of the size of the largest table (footprint, at most 1 GiB), and a
   target of the largest batch (at most 256 MiB) to copy to; touches all pages. -ENOMEM. */
int yardstick_open(struct yardstick *yardstick, uint64_t footprint, uint64_t batch,
		   enum page_kind kind) RLV_MUST_CHECK;
void yardstick_close(struct yardstick *yardstick);

/* ns per load of a random 64 B line of the memory; the loads are independent. */
double yardstick_line_ns(const void *memory, uint64_t bytes, uint64_t seed);

/* GB/s of memcpy in pieces of batch bytes, in sequence from the yardstick's memory into
   `targets` buffers in turn, for ns, or one piece if ns is 0. */
double yardstick_memcpy_gbps(struct yardstick *yardstick, uint64_t batch, uint32_t targets,
			     int64_t ns);

/* Keeps the compiler from removing a benchmark's computation. */
static inline void yardstick_use(const void *memory)
{
	__asm__ volatile("" : : "r"(memory) : "memory");
}
static inline void yardstick_use_u64(uint64_t value)
{
	__asm__ volatile("" : : "r"(value));
}

#endif
