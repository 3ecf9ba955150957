#include "tests/support/fixture/shard_fixture.h"
#include "tests/support/test.h"

#include "ds/limiter/balance.h"
#include "ds/limiter/limiter.h"

#include <errno.h>

#define CLIENT 1u

static struct shard_fixture fx;
static struct access acc;
static struct limiter lim;
static uint32_t first; /* slot of the first item */
static uint32_t items;

/* A queue with the items of one block, which nobody has counted: their writer died too early. */
static int setup(void **state)
{
	static const struct limit_desc queue = {
		.min_size = 1, .spi = 1 << LIMIT_SPI_BITS, .min_diff = 0, .max_diff = 128 << 16
	};
	struct shard_fixture_opts opts = { .views = 1, .limit = &queue };

	(void)state;
	shard_fixture_open(&fx, &opts);
	shard_fixture_take_slot(fx.shard, CLIENT);
	shard_fixture_access(fx.shard, CLIENT, &acc);
	first = shard_fixture_fill_block(&acc, 1) + fx.desc.window_max - 1;
	items = fx.desc.block - fx.desc.window_max + 1;
	limiter_init(&lim, fx.shard, 0, CLIENT);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	access_close(&acc);
	shard_fixture_close(&fx);
	return 0;
}

static int64_t balance(void)
{
	int64_t moved = 1234;

	assert_int_equal(balance_view(&fx.shard, 1, 0, &moved), 0);
	return moved;
}

static void expect_words(uint64_t inserted, uint64_t sampled)
{
	struct limiter_words words;

	assert_int_equal(limiter_read(&lim, &words), 0);
	assert_int_equal(words.ins_committed, inserted);
	assert_int_equal(words.ins_admitted, inserted);
	assert_int_equal(words.smp_committed, sampled);
	assert_int_equal(words.smp_admitted, sampled);
}

static void take(uint32_t n)
{
	struct leaf_op ops[8] = { 0 };

	for (uint32_t i = 0; i < n; i++) {
		uint64_t word = 0;

		assert_int_equal(
			transport_load(fx.conn.tree, shard_leaf_off(fx.shard, 0, first + i), &word),
			0);
		ops[i] = (struct leaf_op){ .slot = first + i, .gen = leaf_gen(word) };
	}
	assert_int_equal(access_enter(&acc), 0);
	assert_int_equal(sumtree_consume(&fx.shard->trees[0], &acc.epoch, ops, n, acc.deltas[0]),
			 0);
	assert_int_equal(access_leave(&acc), 0);
}

#define CASE(f) TEST_WITH(f, setup, teardown)

CASE(balance__counts_items_that_their_writer_did_not)
{
	assert_int_equal(balance(), -(int64_t)items);
	expect_words(items, 0);
	assert_int_equal(limiter_try_sample(&lim, items), 0);
}

CASE(balance__counts_items_that_the_dead_took)
{
	(void)balance();
	take(5);
	assert_int_equal(balance(), 5);
	expect_words(items, 5);
}

CASE(balance__what_is_right_stays)
{
	(void)balance();
	assert_int_equal(balance(), 0);
	expect_words(items, 0);
}

/* Admissions that a kill returned twice. */
CASE(balance__takes_slack_away)
{
	uint64_t old;

	(void)balance();
	assert_int_equal(transport_faa_word(fx.shard->part.limits,
					    shard_limits_off(fx.shard, 0) +
						    offsetof(struct view_limits, ins_admitted),
					    (uint64_t)-7, &old),
			 0);
	assert_int_equal(balance(), 0);
	expect_words(items, 0);
}

CASE(balance__somebody_in_a_call_gives_eagain)
{
	int64_t moved = 1234;

	assert_int_equal(limiter_try_insert(&lim, 3), 0);
	assert_int_equal(balance_view(&fx.shard, 1, 0, &moved), -EAGAIN);
	assert_int_equal(moved, 1234);
	assert_int_equal(limiter_commit_insert(&lim, 3, 0), 0);
	assert_int_equal(balance(), -(int64_t)items);
}

CASE(balance__sums_that_wait_for_a_rebuild_give_eagain)
{
	int64_t moved;

	assert_int_equal(part_mark_dirty(&fx.shard->part), 0);
	assert_int_equal(balance_view(&fx.shard, 1, 0, &moved), -EAGAIN);
}

TEST(balance_applies__to_queues_only)
{
	struct view_desc view = { .max_times_sampled = 1, .limit = { .spi = 1 << LIMIT_SPI_BITS } };

	assert_true(balance_applies(&view));
	view.limit.max_diff = INT64_MAX;
	assert_false(balance_applies(&view));
	view.limit.max_diff = 0;
	view.max_times_sampled = 2;
	assert_false(balance_applies(&view));
}

int main(void)
{
	return test_run(NULL, NULL);
}
