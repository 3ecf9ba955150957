/* Sums of arrays and how much of them changed; see ds/weights/delta.h. */
#include "ds/weights/delta.h"

#include "ds/weights/array.h"
#include "ds/weights/kernel.h"

#define SAMPLED_RUNS 1024u

uint64_t delta_sum(const struct delta_array *array, uint64_t at, const void *bytes, uint64_t n)
{
	const struct delta_kernel *kernel = delta_kernel_get();
	const uint8_t *from = bytes;
	uint64_t sum = 0, run = at / DELTA_RUN;

	for (; n >= DELTA_RUN; n -= DELTA_RUN, from += DELTA_RUN)
		sum += kernel->sum(from) * delta_run_key(array->key, run++);
	if (n > 0) {
		uint8_t last[DELTA_RUN] = { 0 };

		memcpy(last, from, n);
		sum += kernel->sum(last) * delta_run_key(array->key, run);
	}
	return sum;
}

uint64_t delta_room(const struct delta_array *array, uint64_t changed)
{
	uint64_t blocks = array_blocks(array);

	return sizeof(struct delta_head) + counts_bytes(blocks) +
	       changed * (sizeof(uint16_t) + array->element_bytes) + min_u64(blocks, changed) * 14 +
	       DELTA_SPARE;
}

#define COUNT_DIFFERING(type) \
	for (uint64_t i = 0; i < n; i += sizeof(type)) { \
		type a, b; \
		memcpy(&a, old + i, sizeof(a)); \
		memcpy(&b, now + i, sizeof(b)); \
		count += a != b; \
	}

/* One loop for each width: a call of memcmp for each element would take half as long as a copy of all. */
static uint64_t count_differing(const uint8_t *old, const uint8_t *now, uint64_t n, uint32_t each)
{
	uint64_t count = 0;

	if (each == 1)
		COUNT_DIFFERING(uint8_t)
	else if (each == 2)
		COUNT_DIFFERING(uint16_t)
	else if (each == 4)
		COUNT_DIFFERING(uint32_t)
	else
		COUNT_DIFFERING(uint64_t)
	return count;
}

double delta_density(const struct delta_array *array, const void *old, const void *now)
{
	uint64_t runs = array_bytes(array) / DELTA_RUN, seen = array_bytes(array), count = 0;
	uint32_t each = array->element_bytes;

	if (seen == 0)
		return 0;
	if (runs <= SAMPLED_RUNS)
		return (double)count_differing(old, now, seen, each) / (double)array->elements;
	for (uint64_t i = 0; i < SAMPLED_RUNS; i++) {
		uint64_t at = (i * runs / SAMPLED_RUNS) * DELTA_RUN;

		count += count_differing((const uint8_t *)old + at, (const uint8_t *)now + at,
					 DELTA_RUN, each);
	}
	return (double)count * each / ((double)SAMPLED_RUNS * DELTA_RUN);
}
