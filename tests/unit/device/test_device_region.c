#include "device/region.h"

#include <errno.h>

#include "base/mem/alloc.h"
#include "base/rng.h"
#include "tests/support/test.h"

#define BASE UINT64_C(0x100000)
#define BYTES (64 * (uint64_t)REGION_ALIGN)

static struct region region;
static struct chunk chunk;

static int begin(void **state)
{
	(void)state;
	region = (struct region){ .class = TENSOR_ITERATION };
	assert_int_equal(region_add(&region, &chunk, BASE, BYTES), 0);
	return 0;
}

static int end(void **state)
{
	struct block *block = chunk.first;

	(void)state;
	assert_int_equal(region_check(&region), 0);
	while (block) {
		struct block *after = block->after;

		if (block->state == BLOCK_USED && block->streams == 0) {
			region_free(block);
			after = chunk.first; /* neighbours are gone */
		}
		block = after;
	}
	region_remove(&chunk);
	assert_int_equal(region_check(&region), 0);
	return 0;
}

static struct block *take(uint64_t units)
{
	struct block *block;

	assert_int_equal(region_alloc(&region, units * REGION_ALIGN, &block), 0);
	return block;
}

TEST_WITH(region_alloc__rounds_to_the_alignment, begin, end)
{
	struct block *one, *two;

	assert_int_equal(region_alloc(&region, 1, &one), 0);
	assert_int_equal(region_alloc(&region, 513, &two), 0);
	assert_int_equal(one->va, BASE);
	assert_int_equal(two->va, BASE + 512);
	assert_int_equal(two->bytes, 1024);
	assert_int_equal(region.used_bytes, 1536);
}

TEST_WITH(region_alloc__takes_the_smallest_block_that_fits, begin, end)
{
	struct block *large = take(10), *wall = take(1), *small = take(5), *end_wall = take(1);
	uint64_t va = small->va;

	region_free(large);
	region_free(small);
	assert_int_equal(take(5)->va, va);
	assert_int_equal(take(6)->va, BASE);
	assert_non_null(wall);
	assert_non_null(end_wall);
}

TEST_WITH(region_alloc__best_fit_within_one_bin, begin, end)
{
	struct block *nine = take(9), *wall = take(1), *eight = take(8), *end_wall = take(40);
	uint64_t va = eight->va;

	region_free(eight);
	region_free(nine); /* in front of it in their bin */
	assert_int_equal(take(8)->va, va);
	assert_int_equal(take(9)->va, BASE);
	assert_non_null(wall);
	assert_non_null(end_wall);
}

TEST_WITH(region_alloc__none_is_large_enough, begin, end)
{
	struct block *block;

	take(60);
	assert_int_equal(region_alloc(&region, 5 * REGION_ALIGN, &block), -EAGAIN);
	assert_int_equal(region_alloc(&region, 0, &block), -EINVAL);
	assert_int_equal(region_alloc(&region, UINT64_MAX, &block), -EINVAL);
	take(4);
	assert_int_equal(region_alloc(&region, 1, &block), -EAGAIN);
}

TEST_WITH(region_free__merges_with_both_neighbours, begin, end)
{
	struct block *a = take(10), *b = take(10), *c = take(10);

	region_free(a);
	region_free(c);
	region_free(b);
	assert_int_equal(chunk.first->bytes, BYTES);
	assert_int_equal(chunk.live, 0);
}

TEST_WITH(region_free__other_streams_put_it_in_limbo, begin, end)
{
	struct block *block = take(64);

	block->streams = 1 << 5;
	region_free(block);
	assert_int_equal(chunk.live, 0);
	assert_int_equal(chunk.limbo, 1);
	assert_int_equal(region_alloc(&region, 1, &block), -EAGAIN);
	region_end_limbo(chunk.first);
	assert_int_equal(chunk.limbo, 0);
	take(64);
}

TEST_WITH(region_alloc__no_memory_changes_nothing, begin, end)
{
	struct block *block;

	mem_fail_after(1);
	assert_int_equal(region_alloc(&region, 512, &block), -ENOMEM);
	mem_fail_after(0);
	assert_int_equal(chunk.first->bytes, BYTES);
	take(64);
}

TEST_WITH(region_alloc__random_blocks_never_overlap, begin, end)
{
	struct block *held[64] = { 0 };
	struct rng rng;

	rng_seed(&rng, test_seed("random blocks", 1), 0);
	for (int i = 0; i < 20000; i++) {
		struct block **slot = &held[rng_uniform_u64(&rng, 64)];

		if (*slot) {
			region_free(*slot);
			*slot = NULL;
		} else if (region_alloc(&region, 1 + rng_uniform_u64(&rng, 5000), slot)) {
			*slot = NULL;
		}
		assert_int_equal(region_check(&region), 0); /* that blocks tile the chunk */
	}
	for (int i = 0; i < 64; i++) {
		if (held[i])
			region_free(held[i]);
	}
	assert_int_equal(chunk.first->bytes, BYTES);
}

int main(void)
{
	return test_run(NULL, NULL);
}
