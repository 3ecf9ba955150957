/*
 * gather_lanes.h - the loop of a gather, for CUDA and for C.
 *
 *   to[row.to ..] = from[row.from ..]   `bytes` bytes for each of n rows
 *
 * `lanes` lanes share the work: threads of a kernel, or one lane on a CPU. 1 << shift neighbouring lanes
 * copy a row together, so that neighbours read neighbouring units. A unit divides both addresses, all
 * offsets and bytes (gather_unit).
 */
#ifndef RLV_DEVICE_CUDA_GATHER_LANES_H
#define RLV_DEVICE_CUDA_GATHER_LANES_H

#ifdef __CUDACC__
#define GATHER_FN static __device__ __forceinline__
#define GATHER_ALIGN(n) __align__(n)
typedef unsigned char gather_u8;
typedef unsigned long long gather_u64;
#else
#include <stdint.h>
#define GATHER_FN static inline
#define GATHER_ALIGN(n) __attribute__((aligned(n)))
typedef uint8_t gather_u8;
typedef unsigned long long gather_u64;
#endif

struct gather_row {
	gather_u64 from, to; /* offsets in bytes */
};

struct GATHER_ALIGN(16) gather_unit_16 {
	gather_u64 low, high;
};

struct gather_work {
	gather_u8 *to;
	const gather_u8 *from;
	const struct gather_row *rows;
	gather_u64 n, bytes;
	unsigned unit; /* 16, 8, 4 or 1 */
	unsigned shift;
};

#define GATHER_COPY(type) \
	do { \
		gather_u64 units = work.bytes / sizeof(type); \
\
		for (gather_u64 at = lane >> work.shift; at < work.n; at += lanes >> work.shift) { \
			const struct gather_row row = work.rows[at]; \
			const type *from = (const type *)(const void *)(work.from + row.from); \
			type *to = (type *)(void *)(work.to + row.to); /* NOLINT: a type */ \
\
			for (gather_u64 i = lane & mask; i < units; i += mask + 1) \
				to[i] = from[i]; \
		} \
	} while (0)

/* The share of lane number `lane`; lanes is a multiple of 1 << shift. */
GATHER_FN void gather_lanes(const struct gather_work work, gather_u64 lane, gather_u64 lanes)
{
	gather_u64 mask = ((gather_u64)1 << work.shift) - 1;

	if (work.unit == 16)
		GATHER_COPY(struct gather_unit_16);
	else if (work.unit == 8)
		GATHER_COPY(gather_u64);
	else if (work.unit == 4)
		GATHER_COPY(unsigned);
	else
		GATHER_COPY(gather_u8);
}

#endif
