/*
 * The gather's loop over random plans, each element against the plan itself: with one lane, as on a CPU,
 * and with the lanes of a kernel one after another, as a GPU runs them in any order.
 */
#include "tests/support/test.h"

#include <string.h>

#include "base/rng.h"
#include "device/cuda/gather.h"

#define SOURCE_BYTES 65536u
#define TARGET_BYTES 32768u
#define ROWS 64u
#define UNTOUCHED 0xee

static _Alignas(16) uint8_t source[SOURCE_BYTES + 16], target[TARGET_BYTES + 16],
	expected[TARGET_BYTES + 16];

/* Rows whose bytes and offsets are multiples of unit, none over another; expected gets their bytes. */
static struct gather_work random_work(struct rng *rng, struct gather_row rows[ROWS])
{
	uint64_t unit = (uint64_t)1 << rng_uniform_u64(rng, 5);
	uint64_t bytes = unit * (1 + rng_uniform_u64(rng, TARGET_BYTES / ROWS / unit));
	uint64_t shift = rng_uniform_u64(rng, 2) * unit % 16;
	struct gather_work work = {
		target + shift, source + shift, rows, 1 + rng_uniform_u64(rng, ROWS), bytes, 1, 0
	};

	memset(target, UNTOUCHED, sizeof(target));
	memset(expected, UNTOUCHED, sizeof(expected));
	for (uint64_t i = 0; i < work.n; i++) {
		rows[i].to = (work.n - 1 - i) * bytes;
		rows[i].from = unit * rng_uniform_u64(rng, (SOURCE_BYTES - bytes) / unit + 1);
		for (uint64_t byte = 0; byte < bytes; byte++)
			expected[shift + rows[i].to + byte] = source[shift + rows[i].from + byte];
	}
	gather_fit(&work, rows);
	assert_true(work.unit >= (unit > 4 ? unit : unit > 2 ? 4 : 1));
	return work;
}

TEST(gather__copies_each_element_of_random_plans)
{
	struct gather_row rows[ROWS];
	unsigned units = 0;
	struct rng rng;

	rng_seed(&rng, test_seed("gather", 7), 0);
	for (size_t i = 0; i < sizeof(source); i++)
		source[i] = (uint8_t)(i * 131 + i / 251);
	for (int round = 0; round < 4000; round++) {
		struct gather_work work = random_work(&rng, rows);

		units |= work.unit;
		gather_on_cpu(work);
		assert_memory_equal(target, expected, sizeof(target));

		memset(target, UNTOUCHED, sizeof(target));
		for (gather_u64 lanes = (gather_u64)1 << (work.shift + rng_uniform_u64(&rng, 3)),
				lane = lanes;
		     lane > 0; lane--)
			gather_lanes(work, lane - 1, lanes);
		assert_memory_equal(target, expected, sizeof(target));
	}
	assert_int_equal(units, 16 | 8 | 4 | 1); /* every loop ran */
}

int main(void)
{
	return test_run(NULL, NULL);
}
