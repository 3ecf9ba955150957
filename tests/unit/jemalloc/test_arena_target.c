/*
 * The arena where a daemon uses it: messages of a verbs target, over the fake of rdma-core.
 */
#include "base/jemalloc/arena.h"

#include "base/mem/chunk.h"

#include "tests/support/fake/fake_verbs_pair.h"
#include "tests/support/test.h"
#include "tests/support/gauge.h"

static uint32_t taken, given_back;
static uint32_t index_of_last;

static void *counted_alloc(void *ctx, size_t align, size_t bytes)
{
	void *ptr = arena_hooks.alloc(ctx, align, bytes);

	taken += ptr && chunk_find(ptr, bytes, &index_of_last);
	return ptr;
}

static void counted_free(void *ctx, void *ptr, size_t bytes)
{
	given_back += ptr != NULL;
	arena_hooks.free(ctx, ptr, bytes);
}

TEST(target__messages_lie_in_the_arena)
{
	static const struct alloc_hooks hooks = { counted_alloc, counted_free,
						  (void *)&arena_chunks };
	static struct fake_pair pair = { .buffers = &hooks };
	struct target_stats before, after;
	uint64_t word = 7;

	fake_verbs_begin();
	fake_pair_listen(&pair);
	pair.tg->ops->stats(pair.tg, &before);
	assert_int_equal(fake_pair_connect(&pair), 0);
	assert_int_equal(transport_store(pair.region, 64, &word, 8), 0);
	assert_int_equal(*fake_pair_word(&pair, 64), 7);
	pair.tg->ops->stats(pair.tg, &after);
	assert_int_equal(taken, 1); /* for the link */
	assert_int_equal(given_back, 0);
	assert_int_equal(gauge_of(after, "mrs"),
			 gauge_of(before, "mrs")); /* its chunk is registered already */
	transport_close(&pair.tr);
	transport_target_close(&pair.tg);
	fake_verbs_end();
	assert_int_equal(given_back, 1);
}

int main(void)
{
	return test_run(NULL, NULL);
}
