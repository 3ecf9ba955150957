/*
 * A rebuilder whose n-th call fails, for every n, or that loses answers: the next rebuilder ends
 * with exact sums.
 */
#include "tests/support/fixture/shard_fixture.h"
#include "tests/support/test.h"

#include "tests/support/fake/fault.h"

#include "ds/replay/settle.h"
#include "ds/sumtree/rebuild.h"

#include <errno.h>

#define FIRST 8u
#define SECOND 9u

static struct shard_fixture fx;
static struct access acc;
static struct transport *faulty;

static struct transport *wrap(struct transport *inner)
{
	assert_int_equal(fault_wrap(inner, NULL, &faulty), 0);
	return faulty;
}

static int setup(void **state)
{
	struct shard_fixture_opts opts = { .capacity = 512 };

	(void)state;
	shard_fixture_open_filled(&fx, &opts, 12, &acc);
	shard_fixture_take_slot(fx.shard, FIRST);
	shard_fixture_take_slot(fx.shard, SECOND);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	access_close(&acc);
	shard_fixture_close(&fx);
	return 0;
}

/* Drift of the array in force, and the mark that it needs. */
static void break_sums(void)
{
	const struct sumtree *tree = &fx.shard->trees[0];
	uint64_t junk = 77;

	assert_int_equal(epoch_refresh(&acc.epoch), 0);
	assert_int_equal(transport_store(fx.conn.tree,
					 tree->inner_off[acc.epoch.number & 1] + tree->level_off[1],
					 &junk, sizeof(junk)),
			 0);
	assert_int_equal(part_mark_dirty(&fx.shard->part), 0);
}

static void finish(uint32_t owner)
{
	struct rebuild_opts opts = { .owner = owner };
	struct rebuild_report report = { 0 };

	assert_int_equal(sumtree_rebuild_until_clean(fx.shard, &opts, 3, &report), 0);
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
}

/* Runs the first rebuilder until its n-th call fails. True if it failed. */
static bool fail_at(struct shard_conn *conn, uint64_t n)
{
	struct fault_plan plan = { .fail_at = n };
	struct rebuild_opts opts = { .owner = FIRST };
	struct rebuild_report report = { 0 };
	int rc;

	break_sums();
	fault_set(faulty, &plan);
	rc = sumtree_rebuild_until_clean(conn->shard, &opts, 3, &report);
	fault_set(faulty, NULL);
	assert_true(rc == 0 || rc == -ETIMEDOUT);
	return rc != 0;
}

#define CASE(f) TEST_WITH(f, setup, teardown)

CASE(rebuild_pass__fails_anywhere_and_another_takes_over)
{
	struct shard_conn conn;
	uint64_t n = 1;

	shard_fixture_connect(&fx, wrap, &conn);
	for (; fail_at(&conn, n); n++) {
		shard_fixture_fill_block(&acc, 5 + n); /* in the mode that it was left in */
		assert_int_equal(shard_settle(fx.shard, FIRST, NULL), 0);
		finish(SECOND);
		shard_fixture_take_slot(fx.shard, FIRST);
	}
	assert_true(n > 10);
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
	shard_fixture_disconnect(&conn);
}

CASE(rebuild_pass__fails_anywhere_and_goes_on_itself)
{
	struct shard_conn conn;
	uint64_t n = 1;

	shard_fixture_connect(&fx, wrap, &conn);
	for (; fail_at(&conn, n); n++) {
		shard_fixture_fill_block(&acc, 5 + n);
		finish(FIRST);
	}
	assert_true(n > 10);
	shard_fixture_disconnect(&conn);
}

/* Each atomic may lose its answer, done or not: the pass that lost one is followed by another. */
CASE(rebuild_pass__lost_answers_ask_for_another_pass)
{
	uint64_t seed = test_seed("lost answers", 11), lost = 0;
	struct rebuild_opts opts = { .owner = FIRST };
	struct shard_conn conn;

	shard_fixture_connect(&fx, wrap, &conn);
	for (uint32_t i = 0; i < 40; i++) {
		struct fault_plan plan = { .seed = seed + i, .unknown_rate = 65536 / 300 };
		struct rebuild_report report = { 0 };

		break_sums();
		fault_set(faulty, &plan);
		assert_int_equal(sumtree_rebuild_until_clean(conn.shard, &opts, 1000, &report), 0);
		fault_set(faulty, NULL);
		lost += report.lost_answers;
		assert_int_equal(shard_fixture_problems(fx.shard), 0);
	}
	assert_true(lost > 20);
	shard_fixture_disconnect(&conn);
}

/* The settling of a dead client is cut anywhere and done again. */
CASE(fence_settle__fails_anywhere_and_is_done_again)
{
	struct shard_conn conn;
	int rc = -ETIMEDOUT;

	shard_fixture_connect(&fx, wrap, &conn);
	for (uint64_t n = 1; rc; n++) {
		struct fault_plan plan = { .fail_at = n };
		struct ring_counters counters = { 0 };
		struct access dead;
		struct block blk;

		shard_fixture_take_slot(fx.shard, 3);
		shard_fixture_access(fx.shard, 3, &dead);
		assert_int_equal(access_enter(&dead), 0);
		assert_int_equal(ring_claim(&dead, &blk, &counters), 0);
		access_close(&dead); /* it dies with a block open and deltas in hand */
		fault_set(faulty, &plan);
		rc = shard_settle(conn.shard, 3, NULL);
		fault_set(faulty, NULL);
		assert_true(rc == 0 || rc == -ETIMEDOUT);
		assert_int_equal(shard_settle(fx.shard, 3, NULL), 0);
		finish(SECOND);
	}
	shard_fixture_disconnect(&conn);
}

/* Clients that lose answers mark the shard themselves, or are fenced: exact after the rebuild. */
CASE(rebuild_pass__after_clients_that_lost_answers)
{
	uint64_t seed = test_seed("clients that lose answers", 12);
	struct shard_conn conn;

	shard_fixture_connect(&fx, wrap, &conn);
	for (uint32_t i = 0; i < 60; i++) {
		struct fault_plan plan = { .seed = seed + i, .unknown_rate = 65536 / 40 };
		struct ring_counters counters = { 0 };
		struct access client;
		struct block blk;
		int rc;

		shard_fixture_take_slot(fx.shard, 3);
		shard_fixture_access(conn.shard, 3, &client);
		fault_set(faulty, &plan);
		rc = access_enter(&client);
		if (!rc)
			rc = ring_claim(&client, &blk, &counters);
		if (!rc) {
			shard_fixture_write_rows(&blk);
			rc = shard_fixture_publish(&blk, 1 + i);
		}
		fault_set(faulty, NULL);
		assert_true(rc == 0 || rc == -EIO);
		if (rc) /* a client marks the shard after its leaves lost an answer */
			assert_int_equal(part_mark_dirty(&fx.shard->part), 0);
		if (i % 2) /* the others die in the middle of the call */
			assert_int_equal(access_leave(&client), 0);
		access_close(&client);
		assert_int_equal(shard_settle(fx.shard, 3, NULL), 0);
		finish(SECOND);
	}
	shard_fixture_disconnect(&conn);
}

int main(void)
{
	return test_run(NULL, NULL);
}
