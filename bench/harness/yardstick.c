#include "bench/harness/yardstick.h"

#include <string.h>

#include "base/bits.h"
#include "base/os/clock.h"

#define MOST_BYTES (UINT64_C(1) << 30)
#define MOST_TARGET (UINT64_C(256) << 20)
#define LINES 65536
#define UNROLL 8

int yardstick_open(struct yardstick *yardstick, uint64_t footprint, uint64_t batch,
		   enum page_kind kind)
{
	uint64_t target = min_u64(max_u64(batch, 4096), MOST_TARGET);
	int ret;

	memset(yardstick, 0, sizeof(*yardstick));
	footprint = min_u64(max_u64(footprint, UINT64_C(1) << 20), MOST_BYTES);
	ret = pages_alloc(max_u64(footprint, target), kind, &yardstick->memory);
	if (ret == 0)
		ret = pages_alloc(target, kind, &yardstick->target);
	if (ret) {
		yardstick_close(yardstick);
		return ret;
	}
	memset(yardstick->memory.ptr, 1, yardstick->memory.bytes);
	memset(yardstick->target.ptr, 1, yardstick->target.bytes);
	yardstick->random = 1;
	return 0;
}

void yardstick_close(struct yardstick *yardstick)
{
	pages_free(&yardstick->memory);
	pages_free(&yardstick->target);
}

double yardstick_line_ns(struct yardstick *yardstick, uint64_t footprint)
{
	const uint64_t *words = yardstick->memory.ptr;
	uint64_t lines = min_u64(footprint, yardstick->memory.bytes) / CACHE_LINE;
	uint64_t start = clock_now_ns(clock_monotonic()), x = yardstick->random, sum = 0;
	/* Addresses come from a counter, so that no load waits for another. */
	const uint64_t step = 0x9e3779b97f4a7c15;

	for (uint32_t i = 0; i < LINES; i += UNROLL) {
		for (uint32_t j = 0; j < UNROLL; j++) {
			x += step;

			uint64_t line =
				(uint64_t)(((unsigned __int128)(x ^ (x >> 29) * step) * lines) >>
					   64);

			sum += words[line * (CACHE_LINE / sizeof(*words))];
		}
	}
	/* The sum must not be optimised away. */
	yardstick->random = x ^ (sum == 0);
	return (double)(clock_now_ns(clock_monotonic()) - start) / LINES;
}

double yardstick_memcpy_gbps(struct yardstick *yardstick, uint64_t batch, uint32_t targets,
			     int64_t ns)
{
	const uint8_t *from = yardstick->memory.ptr;
	uint8_t *to = yardstick->target.ptr;
	uint64_t start = clock_now_ns(clock_monotonic()), now, copied = 0, turn = 0;

	batch = min_u64(batch, yardstick->target.bytes / targets);
	if (batch == 0)
		return 0;
	do {
		if (yardstick->next + batch > yardstick->memory.bytes)
			yardstick->next = 0;
		memcpy(to + turn++ % targets * batch, from + yardstick->next, batch);
		/* The copy must not be optimised away. */
		__asm__ volatile("" : : "r"(to) : "memory");
		yardstick->next += batch;
		copied += batch;
		now = clock_now_ns(clock_monotonic());
	} while (now - start < (uint64_t)ns);
	return (double)copied / (double)(now - start);
}
