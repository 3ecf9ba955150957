#include "ds/limiter/limiter.h"
#include "ds/ring/ring.h"

#include "tests/support/fixture/shard_fixture.h"
#include "tests/support/test.h"
#include "tests/support/fake/wire_transport.h"

#include "tests/support/fake/fault.h"

#include <errno.h>
#include <string.h>

#define ME 3u
#define OTHER 4u

static struct shard_fixture fx;
static struct shard_conn wire, faulty;
static struct access acc, other, remote, broken;
static struct ring_counters counters;

static struct transport *fault;

/* Over a wire nothing is done in place, so that every step can fail. */
static struct transport *break_it(struct transport *inner)
{
	assert_int_equal(fault_wrap(inner, NULL, &fault), 0);
	return wire_wrap(fault);
}

static void open_with(const struct shard_fixture_opts *opts)
{
	shard_fixture_open(&fx, opts);
	shard_fixture_connect(&fx, wire_wrap, &wire);
	shard_fixture_connect(&fx, break_it, &faulty);
	shard_fixture_access(fx.shard, ME, &acc);
	shard_fixture_access(fx.shard, OTHER, &other);
	shard_fixture_access(wire.shard, 5, &remote);
	shard_fixture_access(faulty.shard, 6, &broken);
	counters = (struct ring_counters){ 0 };
}

static int setup(void **state)
{
	struct shard_fixture_opts opts = { .views = 1 };

	(void)state;
	open_with(&opts);
	return 0;
}

static int setup_queue(void **state)
{
	struct limit_desc law;
	struct shard_fixture_opts opts = {
		.views = 2, .capacity = 372, .max_times_sampled = 1, .limit = &law
	};

	(void)state;
	assert_int_equal(limit_desc_init(&law, 1, 1, 0, 100), 0);
	open_with(&opts);
	return 0;
}

static int setup_counted(void **state)
{
	struct shard_fixture_opts opts = { .views = 2, .max_times_sampled = 3 };

	(void)state;
	open_with(&opts);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	access_close(&acc);
	access_close(&other);
	access_close(&remote);
	access_close(&broken);
	shard_fixture_disconnect(&faulty);
	shard_fixture_disconnect(&wire);
	shard_fixture_close(&fx);
	return 0;
}

static uint64_t load(uint64_t off)
{
	uint64_t word = 0;

	assert_int_equal(transport_load(fx.conn.tree, off, &word), 0);
	return word;
}

static void store(uint64_t off, uint64_t word)
{
	assert_int_equal(transport_store(fx.conn.tree, off, &word, 8), 0);
}

static uint64_t header(uint32_t block)
{
	return load(shard_header_off(fx.shard, block));
}

static uint64_t head(void)
{
	return load(shard_word_off(fx.shard, offsetof(struct shard_words, head)));
}

/* A claim in a call of its own. */
static int claim(struct access *by, struct block *blk)
{
	int rc, left;

	assert_int_equal(access_enter(by), 0);
	rc = ring_claim(by, blk, &counters);
	left = access_leave(by);
	return rc ? rc : left;
}

static void must_claim(struct access *by, struct block *blk)
{
	if (claim(by, blk))
		fail_msg("claim: %s", error_last());
}

#define CASE(name) TEST_WITH(name, setup, teardown)

/* -------- claim -------- */

CASE(ring_claim__opens_the_header_of_its_ticket)
{
	struct block blk;

	must_claim(&acc, &blk);
	assert_int_equal(blk.seq, 1000);
	assert_int_equal(blk.index, 1000 % fx.desc.blocks);
	assert_int_equal(blk.gen, 1 + 1000 / fx.desc.blocks);
	assert_int_equal(blk.first, blk.index * 32);
	assert_int_equal(blk.used, 0);
	assert_true(header(blk.index) == block_make(true, ME, 1000));
	assert_int_equal(head(), 1001);
	assert_int_equal(counters.claimed, 1);
}

CASE(ring_claim__sets_every_leaf_of_every_view)
{
	struct shard_fixture_opts opts = { .views = 3 };
	struct block blk;

	teardown(state);
	open_with(&opts);
	must_claim(&acc, &blk);
	for (uint32_t v = 0; v < 3; v++)
		for (uint32_t i = 0; i < 32; i++)
			assert_true(load(shard_leaf_off(fx.shard, v, blk.first + i)) ==
				    leaf_make(0, blk.gen, 0));
	assert_int_equal(load(shard_leaf_off(fx.shard, 0, blk.first + 32)), 0);
}

CASE(ring_claim__takes_old_items_out_of_the_sums)
{
	for (uint32_t i = 0; i < 2 * fx.desc.blocks; i++)
		shard_fixture_fill_block(&acc, 100);
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
	assert_int_equal(counters.skipped, 0);
}

CASE(ring_claim__partial_access_is_refused)
{
	struct shard_fixture_opts opts = { .views = 2 };
	struct access one;
	struct block blk;

	teardown(state);
	open_with(&opts);
	assert_int_equal(access_open(&one, fx.shard, 7, 1), 0);
	assert_int_equal(claim(&one, &blk), -EINVAL);
	access_close(&one);
}

/* The writer draws another ticket and leaves the open block alone. */
CASE(ring_claim__never_takes_an_open_block)
{
	uint32_t index = 1000 % fx.desc.blocks;
	uint64_t theirs = block_make(true, OTHER, 1000 - fx.desc.blocks);
	struct block blk;

	store(shard_header_off(fx.shard, index), theirs);
	must_claim(&acc, &blk);
	assert_int_equal(blk.seq, 1001);
	assert_int_equal(counters.skipped, 1);
	assert_true(header(index) == theirs);
}

CASE(ring_claim__never_goes_back_behind_a_newer_lap)
{
	uint32_t index = 1000 % fx.desc.blocks;
	uint64_t newer = block_make(false, OTHER, 1000 + fx.desc.blocks);

	struct block blk;

	store(shard_header_off(fx.shard, index), newer);
	must_claim(&acc, &blk);
	assert_int_equal(blk.seq, 1001);
	assert_true(header(index) == newer);
}

CASE(ring_claim__all_open_is_back_pressure)
{
	struct block blk;

	for (uint32_t i = 0; i < fx.desc.blocks; i++)
		store(shard_header_off(fx.shard, i), block_make(true, OTHER, i));
	assert_int_equal(claim(&acc, &blk), -EAGAIN);
	assert_int_equal(counters.skipped, fx.desc.blocks);
	assert_int_equal(head(), 1000 + fx.desc.blocks);
	assert_int_equal(counters.claimed, 0);
}

/* The expected header may be old: the CAS returns the current one. */
CASE(ring_claim__a_header_that_changed_meanwhile)
{
	struct block mine, theirs;

	must_claim(&acc, &mine);
	must_claim(&other, &theirs);
	assert_int_equal(ring_close(&mine), 0);
	assert_int_equal(ring_close(&theirs), 0);
	acc.next_ticket = 5; /* a bad guess */
	must_claim(&acc, &mine);
	assert_int_equal(mine.seq, 1002);
	assert_int_equal(ring_close(&mine), 0);
}

CASE(ring_claim__goes_round_the_end_of_the_ring)
{
	struct block blk;

	for (uint32_t i = 0; i < 3 * fx.desc.blocks; i++) {
		must_claim(&remote, &blk);
		assert_int_equal(blk.seq, 1000 + i);
		assert_int_equal(ring_close(&blk), 0);
	}
	assert_int_equal(counters.skipped, 0);
}

/* -------- cost -------- */

static void count_phases(const struct shard_conn *conn, struct access *by, uint64_t phases)
{
	struct block blk;
	uint64_t before;

	for (uint32_t i = 0; i < fx.desc.blocks + 2; i++) {
		before = conn->tr->stats.phases;
		assert_int_equal(access_enter(by), 0);
		assert_int_equal(ring_claim(by, &blk, &counters), 0);
		assert_int_equal(access_leave(by), 0);
		assert_int_equal(ring_close(&blk), 0);
		assert_int_equal(conn->tr->stats.phases - before, phases);
	}
}

CASE(ring_claim__takes_no_round_trip_in_place)
{
	count_phases(&fx.conn, &acc, 0);
}

CASE(ring_claim__takes_three_phases_over_a_wire)
{
	struct shard_fixture_opts opts = { .max_times_sampled = 3 };

	count_phases(&wire, &remote, 3);
	for (opts.views = 2; opts.views <= 3; opts.views++) {
		teardown(state);
		open_with(&opts);
		count_phases(&wire, &remote, 3);
	}
}

TEST_WITH(ring_claim__of_a_queue_takes_four_phases_over_a_wire, setup_queue, teardown)
{
	uint32_t claims = fx.desc.blocks - 1;
	struct block blk;
	uint64_t before;

	for (uint32_t i = 0; i < claims; i++) {
		before = wire.tr->stats.phases;
		must_claim(&remote, &blk);
		assert_int_equal(ring_close(&blk), 0);
		assert_int_equal(wire.tr->stats.phases - before, 4);
	}
}

/* -------- lost answers -------- */

static void lose_ticket(struct access *by, enum fault_unknown how)
{
	struct fault_plan plan = { .unknown_rate = 65536, .unknown = how };
	struct fault_plan none = { 0 };
	struct block blk = { .acc = NULL };
	uint64_t first = head();

	assert_int_equal(access_enter(by), 0);
	fault_set(fault, &plan);
	assert_int_equal(ring_claim(by, &blk, &counters), -EIO);
	fault_set(fault, &none);
	assert_int_equal(access_leave(by), 0);
	assert_null(blk.acc);
	assert_true(head() <= first + 1);
	assert_false(block_is_open(header((uint32_t)(first % fx.desc.blocks))));
}

CASE(ring_claim__lost_ticket_holds_nothing)
{
	struct block blk;

	lose_ticket(&broken, FAULT_UNKNOWN_DONE);
	assert_int_equal(head(), 1001);
	lose_ticket(&broken, FAULT_UNKNOWN_NOT_DONE);
	assert_int_equal(head(), 1001);
	must_claim(&broken, &blk);
}

/*
 * Whatever answer is lost and whether it was done: no block stays open that nobody holds, the shard
 * is dirty if a leaf may have changed, and the next claim goes on.
 */
CASE(ring_claim__any_lost_answer)
{
	uint64_t seed = test_seed("ring_claim__any_lost_answer", 7), lost = 0;
	int rc;

	for (uint32_t i = 0; i < 300; i++) {
		struct fault_plan plan = { .seed = seed + i, .unknown_rate = 3000 };
		struct fault_plan none = { 0 };
		struct block blk;

		assert_int_equal(access_enter(&broken), 0);
		fault_set(fault, &plan);
		rc = ring_claim(&broken, &blk, &counters);
		fault_set(fault, &none);
		if (!rc)
			rc = ring_close(&blk);
		else
			lost++;
		assert_true(rc == 0 || rc == -EIO);
		assert_int_equal(access_leave(&broken), 0);
	}
	assert_true(lost > 0);
	rc = access_flush(&broken); /* of a close, and of additions in calls before */
	assert_true(rc == 0 || rc == -EIO);
	for (uint32_t b = 0; b < fx.desc.blocks; b++)
		assert_false(block_is_open(header(b)));
}

CASE(ring_claim__any_failed_call_holds_nothing)
{
	struct fault_plan none = { 0 };
	struct block blk;
	uint32_t failed = 0;
	int rc = -1;

	for (uint64_t n = 1; rc; n++) {
		struct fault_plan plan = { .fail_at = n, .fail_code = -ECONNRESET };

		assert_int_equal(access_enter(&broken), 0);
		fault_set(fault, &plan);
		rc = ring_claim(&broken, &blk, &counters);
		fault_set(fault, &none);
		failed += rc == -ECONNRESET;
		assert_int_equal(access_leave(&broken), 0);
		assert_true(rc == 0 || rc == -ECONNRESET);
	}
	assert_true(failed > 4);
	assert_int_equal(ring_close(&blk), 0);
	assert_int_equal(access_flush(&broken), 0);
	for (uint32_t b = 0; b < fx.desc.blocks; b++)
		assert_false(block_is_open(header(b)));
}

/* -------- close -------- */

CASE(ring_close__closes_its_ticket)
{
	struct block blk;

	must_claim(&acc, &blk);
	assert_int_equal(ring_close(&blk), 0);
	assert_null(blk.acc);
	assert_true(header(blk.index) == block_make(false, ME, 1000));
}

CASE(ring_close__fenced)
{
	struct block blk;

	must_claim(&acc, &blk);
	store(shard_header_off(fx.shard, blk.index), block_make(true, OTHER, 1000 + 99));
	assert_int_equal(ring_close(&blk), -EOWNERDEAD);
	assert_null(blk.acc);
	assert_true(header(blk.index) == block_make(true, OTHER, 1000 + 99));
}

CASE(ring_close__over_a_wire_is_done_by_the_next_call)
{
	struct block blk;
	uint32_t index;

	must_claim(&remote, &blk);
	index = blk.index;
	assert_int_equal(ring_close(&blk), 0);
	assert_null(blk.acc);
	assert_int_equal(access_flush(&remote), 0);
	assert_true(header(index) == block_make(false, 5, 1000));
}

CASE(ring_close__fenced_over_a_wire_is_told_by_the_next_call)
{
	struct block blk;

	must_claim(&remote, &blk);
	store(shard_header_off(fx.shard, blk.index), block_make(true, OTHER, 1000 + 99));
	assert_int_equal(ring_close(&blk), 0);
	assert_int_equal(access_flush(&remote), -EOWNERDEAD);
	assert_int_equal(access_enter(&remote), -EOWNERDEAD);
}

CASE(ring_close__connection_lost_is_told_by_a_later_call)
{
	struct fault_plan plan = { .cut_at = 1 };
	struct block blk;

	must_claim(&broken, &blk);
	fault_set(fault, &plan);
	assert_int_equal(ring_close(&blk), 0);
	assert_int_equal(access_flush(&broken), -ECONNRESET);
	fault_set(fault, NULL);
	assert_true(block_is_open(header((uint32_t)(1000 % fx.desc.blocks))));
}

/* The answer of a close may be lost: it is made again. */
CASE(ring_close__lost_answers_over_a_wire)
{
	enum fault_unknown how[] = { FAULT_UNKNOWN_DONE, FAULT_UNKNOWN_NOT_DONE };
	struct block blk;

	for (uint32_t i = 0; i < 200; i++) {
		struct fault_plan plan = { .seed = i,
					   .unknown_rate = 20000,
					   .unknown = how[i % 2] };
		uint32_t index;
		int rc;

		must_claim(&broken, &blk);
		index = blk.index;
		fault_set(fault, &plan);
		assert_int_equal(ring_close(&blk), 0);
		rc = access_flush(&broken);
		fault_set(fault, NULL);
		assert_true(rc == 0 || rc == -EIO); /* four lost in a row */
		assert_true(rc == -EIO || !block_is_open(header(index)));
	}
}

/* -------- rows -------- */

CASE(ring_row__in_place)
{
	struct block blk;

	must_claim(&acc, &blk);
	assert_ptr_equal(ring_row(&blk, 5),
			 fx.conn.rows->base + 4096 + (uint64_t)(blk.first + 5) * fx.desc.row_bytes);
}

CASE(ring_write__over_a_wire)
{
	uint64_t rows[3 * 64 / 8], back[3 * 64 / 8];
	struct block blk;
	struct transport_io io = { .region = fx.conn.rows, .dst = back };

	must_claim(&remote, &blk);
	assert_null(ring_row(&blk, 0));
	for (size_t i = 0; i < sizeof(rows) / 8; i++)
		rows[i] = i * 0x0101010101ull + 1;
	assert_int_equal(ring_write(&blk, 7, rows, 3), 0);
	io.off = 4096 + (uint64_t)(blk.first + 7) * fx.desc.row_bytes;
	io.len = 3 * fx.desc.row_bytes;
	assert_true(io.len <= sizeof(back));
	assert_int_equal(transport_read(fx.conn.tr, &io, 1), 0);
	assert_memory_equal(rows, back, io.len);
}

CASE(ring_write__outside_of_the_block)
{
	uint64_t row[8] = { 0 };
	struct block blk;

	must_claim(&acc, &blk);
	assert_int_equal(ring_write(&blk, 32, row, 1), -EINVAL);
	assert_int_equal(ring_write(&blk, 31, row, 2), -EINVAL);
	assert_int_equal(ring_write(&blk, 0, row, UINT32_MAX), -EINVAL);
	assert_int_equal(ring_write(&blk, 31, row, 1), 0);
}

/* -------- queues and counts -------- */

static void take_all(uint32_t first)
{
	struct leaf_op ops[31];

	for (uint32_t i = 0; i < 31; i++) {
		uint64_t word = load(shard_leaf_off(fx.shard, 0, first + 1 + i));

		ops[i] = (struct leaf_op){ .slot = first + 1 + i, .gen = leaf_gen(word) };
	}
	assert_int_equal(access_enter(&other), 0);
	assert_int_equal(
		sumtree_consume(&fx.shard->trees[0], &other.epoch, ops, 31, other.deltas[0]), 0);
	assert_int_equal(access_leave(&other), 0);
}

TEST_WITH(ring_claim__queue_keeps_what_nobody_took, setup_queue, teardown)
{
	uint32_t first = 0, kept = 1000 % fx.desc.blocks;
	uint64_t before;
	struct block blk;

	for (uint32_t i = 0; i < fx.desc.blocks; i++) {
		uint32_t at = shard_fixture_fill_block(&acc, 1);

		first = i ? first : at;
	}
	before = header(kept);
	assert_int_equal(claim(&acc, &blk), -EAGAIN);
	assert_int_equal(counters.skipped, fx.desc.blocks);
	assert_true(header(kept) == before);
	take_all(first);
	must_claim(&acc, &blk);
	assert_int_equal(blk.index, kept);
	assert_int_equal(ring_close(&blk), 0);
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
}

TEST_WITH(ring_claim__resets_the_counts, setup_counted, teardown)
{
	struct block blk;
	uint64_t off;

	off = fx.desc.views[0].counts_off + (uint64_t)(1000 % fx.desc.blocks) * 32 * 8;
	for (uint32_t i = 0; i < 32; i++)
		store(off + i * 8, count_make(77, i));
	must_claim(&acc, &blk);
	for (uint32_t i = 0; i < 32; i++)
		assert_true(load(off + i * 8) == count_make(blk.gen, 0));
}

TEST_WITH(ring_claim__counts_with_lost_answers, setup_counted, teardown)
{
	uint64_t seed = test_seed("ring_claim__counts_with_lost_answers", 3);

	for (uint32_t i = 0; i < 100; i++) {
		struct fault_plan plan = { .seed = seed + i, .unknown_rate = 1000 };
		struct fault_plan none = { 0 };
		struct block blk;
		int rc;

		assert_int_equal(access_enter(&broken), 0);
		fault_set(fault, &plan);
		rc = ring_claim(&broken, &blk, &counters);
		fault_set(fault, &none);
		assert_int_equal(access_leave(&broken), 0);
		if (rc)
			continue;
		for (uint32_t k = 0; k < 32; k++)
			assert_true(load(fx.desc.views[0].counts_off + (blk.first + k) * 8ull) ==
				    count_make(blk.gen, 0));
		assert_int_equal(ring_close(&blk), 0);
	}
}

int main(void)
{
	return test_run(NULL, NULL);
}
