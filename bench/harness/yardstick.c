#include "bench/harness/yardstick.h"

#include <string.h>

#include "base/bits.h"
#include "bench/harness/time.h"

#define LINES 65536
#define UNROLL 8

int yardstick_open(struct yardstick *yardstick, uint64_t footprint, uint64_t batch,
		   enum page_kind kind)
{
	uint64_t target = min_u64(max_u64(batch, 4096), UINT64_C(256) << 20);
	int ret;

	memset(yardstick, 0, sizeof(*yardstick));
	footprint = min_u64(max_u64(footprint, UINT64_C(1) << 20), UINT64_C(1) << 30);
	ret = pages_alloc(max_u64(footprint, target), kind, &yardstick->memory);
	if (ret == 0)
		ret = pages_alloc(target, kind, &yardstick->target);
	if (ret) {
		yardstick_close(yardstick);
		return ret;
	}
	memset(yardstick->memory.ptr, 1, yardstick->memory.bytes);
	memset(yardstick->target.ptr, 1, yardstick->target.bytes);
	return 0;
}

void yardstick_close(struct yardstick *yardstick)
{
	pages_free(&yardstick->memory);
	pages_free(&yardstick->target);
}

double yardstick_line_ns(const void *memory, uint64_t bytes, uint64_t seed)
{
	const uint64_t *words = memory;
	/* Addresses come from a counter, so that no load depends on another. */
	const uint64_t step = 0x9e3779b97f4a7c15;
	uint64_t lines = bytes / CACHE_LINE, start = time_wall_ns(), x = seed * LINES * step,
		 sum = 0;

	for (uint32_t i = 0; i < LINES; i += UNROLL) {
		for (uint32_t j = 0; j < UNROLL; j++) {
			x += step;

			uint64_t line =
				(uint64_t)(((unsigned __int128)(x ^ (x >> 29) * step) * lines) >>
					   64);

			sum += words[line * (CACHE_LINE / sizeof(*words))];
		}
	}
	yardstick_use_u64(sum);
	return (double)(time_wall_ns() - start) / LINES;
}

double yardstick_memcpy_gbps(struct yardstick *yardstick, uint64_t batch, uint32_t targets,
			     int64_t ns)
{
	const uint8_t *from = yardstick->memory.ptr;
	uint8_t *to = yardstick->target.ptr;
	uint64_t start = time_wall_ns(), now, copied = 0, turn = 0;

	batch = min_u64(batch, yardstick->target.bytes / targets);
	if (batch == 0)
		return 0;
	do {
		if (yardstick->next + batch > yardstick->memory.bytes)
			yardstick->next = 0;
		memcpy(to + turn++ % targets * batch, from + yardstick->next, batch);
		yardstick_use(to);
		yardstick->next += batch;
		copied += batch;
		now = time_wall_ns();
	} while (now - start < (uint64_t)ns);
	return (double)copied / (double)(now - start);
}
