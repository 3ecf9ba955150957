/*
 * Prices of calls over a wire, where nothing has an address and nothing is done when it is started:
 * dependent phases, work requests and bytes, exactly as docs/wire-format.md has them. No limiter,
 * nobody else at work; what is posted and not waited for counts its requests, but no phase.
 *
 * The linker hands the library's transport_open to us (cmake/tests.cmake), so that every transport
 * of the store is wrapped.
 */
#include "tests/support/fixture/replay_fixture.h"
#include "tests/support/test.h"
#include "tests/support/fake/wire_transport.h"
#include "tests/support/wrap_open.h"

#include "wire/sumtree_layout.h"

#include <string.h>

#define BATCH 256u

static bool lockstep; /* the clock moves only in waits */

static int put_on_a_wire(struct transport **tr)
{
	*tr = wire_wrap(*tr);
	if (lockstep)
		wire_lockstep(*tr);
	return 0;
}

WRAP_TRANSPORT_OPEN(put_on_a_wire)

/*
 * Shape of a tree that is planned for a wire with 2^20 steps: a top of at most 1024 nodes, two levels
 * below.
 */
#define LEAVES 32 /* under a node of level 1 */
#define UPPER 40  /* under one of level 2 */
static const uint16_t remote_fanout[] = { LEAVES, UPPER, 0 };
#define TOP_NODES(slots) (((slots) + LEAVES * UPPER - 1) / (LEAVES * UPPER))

static struct rlv_stats minus(struct rlv_stats a, struct rlv_stats b)
{
	a.phases -= b.phases;
	a.reads -= b.reads;
	a.writes -= b.writes;
	a.cas -= b.cas;
	a.faa -= b.faa;
	a.read_bytes -= b.read_bytes;
	a.write_bytes -= b.write_bytes;
	a.blocks_claimed -= b.blocks_claimed;
	a.items -= b.items;
	return a;
}

/* -------- insert -------- */

/* Counts one append of n rows of a stream. */
static struct rlv_stats append(struct replay_fixture *fx, struct rlv_writer *writer, uint32_t n)
{
	struct rlv_stats before = replay_writer_stats(writer);

	replay_append_plain(fx, writer, 0, n);
	return minus(replay_writer_stats(writer), before);
}

/* Others see the first item, and that it is counted, when its append returns: nothing of the writer is waited for later. */
TEST(writer_append__first_items_are_counted)
{
	const struct rlv_table_opts opts = { .fanout = remote_fanout };
	struct replay_fixture fx;
	struct rlv_writer *writer;

	lockstep = true;
	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	while (append(&fx, writer, 1).items == 0)
		;
	assert_int_equal(replay_info(fx.table).views[0].inserted, 1);
	replay_end(&fx, &writer, NULL);
	lockstep = false;
}

/* phases: of a call that claims no block, and of each block claimed. */
static void expect_append_costs(const struct rlv_table_opts *opts, uint64_t claim_phases)
{
	struct replay_fixture fx;
	struct rlv_writer *writer;
	uint64_t plain = 0, row_bytes;

	replay_open(&fx, opts);
	row_bytes = replay_info(fx.table).row_bytes;
	writer = replay_writer(&fx, 1);
	for (uint64_t items = 0; items == 0;) /* whose sums it waits for */
		items = append(&fx, writer, 1).items;
	for (uint32_t i = 0; i < 400; i++) {
		uint32_t rows = 1 + i % 30;
		struct rlv_stats cost = append(&fx, writer, rows);
		uint64_t parts = 1 + cost.blocks_claimed; /* a block's end cuts the call in two */

		if (cost.phases > parts + cost.blocks_claimed * claim_phases)
			fail_msg("append %u: %llu phases for %llu blocks", i,
				 (unsigned long long)cost.phases,
				 (unsigned long long)cost.blocks_claimed);
		assert_true(cost.phases <= 1 + 5 * cost.blocks_claimed);
		if (cost.blocks_claimed)
			continue;
		plain++;
		assert_int_equal(cost.phases, 1);
		assert_int_equal(cost.reads, 0);
		assert_int_equal(cost.cas, cost.items);
		/* The pin, the rows, the end of the pin. */
		assert_int_equal(cost.writes, 3);
		assert_int_equal(cost.write_bytes, 16 + rows * row_bytes);
	}
	assert_true(plain > 200);
	replay_end(&fx, &writer, NULL);
}

TEST(writer_append__is_one_phase_and_four_for_each_block)
{
	const struct rlv_view views[] = { { .n_step = 3 },
					  { .selector = RLV_UNIFORM },
					  { .stack = 4 } };
	struct rlv_table_opts opts = { .views = views, .block = 64, .max_writers = 2 };

	for (opts.n_views = 1; opts.n_views <= 3; opts.n_views++)
		expect_append_costs(&opts, 4); /* 3, and the repeated head rows */
}

/* The rows that the last item needs are filled in, and only once. */
TEST(writer_end_episode__writes_three_rows_and_nothing_twice)
{
	const struct rlv_view view = { .selector = RLV_UNIFORM, .n_step = 3 };
	const struct rlv_table_opts opts = { .n_views = 1, .views = &view };
	const bool final[] = { false, true };
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_stats cost;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	for (uint32_t i = 0; i < 2; i++) {
		replay_append_episode(&fx, writer, 0, 7, RLV_TERMINATED, false);
		cost = replay_writer_stats(writer);
		assert_int_equal(replay_end_episode(&fx, writer, 0, final[i]), 0);
		cost = minus(replay_writer_stats(writer), cost);
		/* The rest are pins, which are smaller than a row. */
		assert_int_equal(cost.write_bytes / replay_info(fx.table).row_bytes, 3);
	}
	replay_append_plain(&fx, writer, 0, 5);
	assert_int_equal(replay_end_episode(&fx, writer, 0, false), 0);
	cost = replay_writer_stats(writer);
	assert_int_equal(replay_end_episode(&fx, writer, 0, false), 0);
	assert_int_equal(minus(replay_writer_stats(writer), cost).writes, 0);
	replay_end(&fx, &writer, NULL);
}

/* Additions: a word for each node over the items, on each level, and the size. */
TEST(writer_append__adds_once_to_each_node)
{
	const struct rlv_table_opts opts = { .capacity = 1 << 20,
					     .block = 256,
					     .fanout = remote_fanout };
	struct replay_fixture fx;
	struct rlv_writer *writer;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	append(&fx, writer, 7);
	for (uint32_t i = 0; i < 10; i++) {
		struct rlv_stats cost = append(&fx, writer, 8);

		assert_int_equal(cost.blocks_claimed, 0);
		assert_int_equal(cost.items, 8);
		assert_int_equal(cost.faa, 3 + 1); /* eight rows lie under one node of 32 */
	}
	replay_end(&fx, &writer, NULL);
}

/* -------- sample and update -------- */

struct learner {
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
};

static void open_learner_of(struct learner *l, const struct rlv_table_opts *opts,
			    const struct rlv_sampler_opts *how)
{
	replay_open(&l->fx, opts);
	l->writer = replay_writer(&l->fx, 1);
	for (uint32_t i = 0; i < 6; i++)
		replay_append_plain(&l->fx, l->writer, 0, 4000);
	l->sampler = replay_sampler(&l->fx, how);
	rlv_batch_release(l->sampler, replay_sample(l->sampler, BATCH)); /* min_size is reached */
}

/* A table of 2^20 steps planned for a wire, with some of them in. */
static void open_learner(struct learner *l, const struct rlv_sampler_opts *how, bool crc)
{
	const struct rlv_table_opts opts = {
		.capacity = 1 << 20,
		.fanout = remote_fanout,
		.row_crc = crc,
	};

	open_learner_of(l, &opts, how);
}

static void close_learner(struct learner *l)
{
	replay_end(&l->fx, &l->writer, &l->sampler);
}

/* The number of a key's node over so many leaves, with its shard above. */
static uint64_t node_of(uint64_t key, uint64_t leaves)
{
	return key >> 46 << 24 | (key & 0xffffff) / leaves;
}

/* Nodes that drawn leaves lie under, neighbours of one node once. */
static uint64_t nodes_over(const struct rlv_batch *batch, uint64_t leaves)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < batch->n; i++)
		n += i == 0 || node_of(batch->key[i], leaves) != node_of(batch->key[i - 1], leaves);
	return n;
}

static void expect_sample_cost(struct learner *l, uint64_t phases, bool second_look)
{
	struct rlv_table_info info = replay_info(l->fx.table);
	struct rlv_stats before = replay_sampler_stats(l->sampler), cost;
	const struct rlv_batch *batch = replay_sample(l->sampler, BATCH);
	uint64_t upper = nodes_over(batch, LEAVES * UPPER), lower = nodes_over(batch, LEAVES);
	uint64_t looks = second_look ? BATCH : 0;

	cost = minus(replay_sampler_stats(l->sampler), before);
	assert_int_equal(cost.phases, phases);
	/* Epoch; size and top; two levels; windows of two rows; leaves again. */
	assert_int_equal(cost.reads, 2 * info.shards + upper + lower + BATCH + looks);
	assert_int_equal(cost.read_bytes,
			 info.shards * (8 + 64 + 8 * TOP_NODES(info.slots / info.shards)) +
				 8 * UPPER * upper + 8 * LEAVES * lower +
				 BATCH * 2 * info.row_bytes + 8 * looks);
	assert_int_equal(cost.faa + cost.cas + cost.writes, 0);
	rlv_batch_release(l->sampler, batch);
}

TEST(sampler_sample__of_256_at_2_20_is_five_phases)
{
	struct learner l;

	open_learner(&l, NULL, false);
	for (int i = 0; i < 5; i++)
		expect_sample_cost(&l, 5, true);
	close_learner(&l);
}

/* The operations that the flush posted complete with the sample; that one is held. */
static uint64_t flush_and_sample(struct learner *l)
{
	assert_int_equal(rlv_sampler_flush(l->sampler), 0);
	rlv_batch_release(l->sampler, replay_sample(l->sampler, BATCH));
	return replay_info(l->fx.table).views[0].sampled;
}

/* Nobody waits for how many were sampled: an FAA for 16 calls, posted, and one for the rest. */
TEST(sampler_sample__of_16_calls_are_counted_at_once)
{
	struct rlv_stats before, cost;
	struct learner l;
	uint64_t sampled;

	open_learner(&l, NULL, false);
	sampled = flush_and_sample(&l);
	before = replay_sampler_stats(l.sampler);
	for (uint32_t i = 2; i <= 33; i++) {
		rlv_batch_release(l.sampler, replay_sample(l.sampler, BATCH));
		cost = minus(replay_sampler_stats(l.sampler), before);
		assert_int_equal(cost.faa, i / 16);
	}
	assert_int_equal(flush_and_sample(&l), sampled + 33 * BATCH);
	close_learner(&l);
}

TEST(sampler_sample__with_seals_is_four_phases)
{
	const struct rlv_sampler_opts how = { .verify = RLV_VERIFY_CRC };
	struct learner l;

	open_learner(&l, &how, true);
	for (int i = 0; i < 5; i++)
		expect_sample_cost(&l, 4, false);
	close_learner(&l);
}

static struct rlv_stats update(struct learner *l, const uint64_t *keys, uint32_t n)
{
	struct rlv_stats before = replay_sampler_stats(l->sampler);
	float td[BATCH];

	for (uint32_t i = 0; i < n; i++)
		td[i] = 0.001f * (float)i; /* below the running maximum */
	assert_int_equal(rlv_sampler_update(l->sampler, keys, td, n, NULL), 0);
	return minus(replay_sampler_stats(l->sampler), before);
}

TEST(sampler_update__is_one_phase_as_sampled_and_two_unseen)
{
	const struct rlv_sampler_opts how = { .batches = 2 };
	const struct rlv_batch *batch, *next;
	struct rlv_stats cost;
	struct learner l;
	uint64_t distinct = 1;

	open_learner(&l, &how, false);
	batch = replay_sample(l.sampler, BATCH);
	next = replay_sample(l.sampler, BATCH);
	for (uint32_t i = 1; i < BATCH; i++)
		distinct += batch->key[i] != batch->key[i - 1];
	cost = update(&l, batch->key, BATCH);
	assert_int_equal(cost.phases, 1);
	assert_int_equal(cost.cas, distinct);
	assert_int_equal(cost.writes, 2); /* the pin, and its end */
	assert_int_equal(cost.reads, 1);  /* the running maximum */
	assert_int_equal(cost.write_bytes + cost.read_bytes, 3 * 8);
	cost = update(&l, batch->key, BATCH); /* the words seen are old */
	assert_int_equal(cost.phases, 2);
	cost = update(&l, next->key + 1, 200); /* never seen together */
	assert_int_equal(cost.phases, 2);
	assert_true(cost.cas <= 400);
	rlv_batch_release(l.sampler, batch);
	rlv_batch_release(l.sampler, next);
	close_learner(&l);
}

/* A shard more is an epoch and a top more of a sample, and a pin and a maximum more of an update. */
TEST(sampler_sample_and_update__of_four_shards_cost)
{
	const struct rlv_table_opts opts = {
		.capacity = 4 << 17, .shards = 4, .fanout = remote_fanout, .block = 1024
	};
	const struct rlv_batch *batch;
	struct rlv_stats cost;
	struct learner l;
	uint64_t shards;

	open_learner_of(&l, &opts, NULL);
	for (int i = 0; i < 5; i++)
		expect_sample_cost(&l, 5, true);
	batch = replay_sample(l.sampler, BATCH);
	shards = nodes_over(batch, 1 << 24);
	assert_int_equal(shards, 4);
	cost = update(&l, batch->key, BATCH);
	assert_int_equal(cost.phases, 1);
	assert_int_equal(cost.writes, 2 * shards);
	assert_int_equal(cost.reads, shards);
	assert_int_equal(cost.write_bytes, 16 * shards);
	assert_int_equal(cost.read_bytes, 8 * shards);
	assert_int_equal(cost.faa, nodes_over(batch, LEAVES * UPPER) + nodes_over(batch, LEAVES));
	rlv_batch_release(l.sampler, batch);
	close_learner(&l);
}

TEST(sampler_sample__of_1024_is_five_phases_too)
{
	const struct rlv_sampler_opts how = { .batch_size = 1024 };
	struct learner l;

	open_learner(&l, &how, false);
	for (int i = 0; i < 5; i++) {
		struct rlv_stats before = replay_sampler_stats(l.sampler), cost;

		rlv_batch_release(l.sampler, replay_sample(l.sampler, 1024));
		cost = minus(replay_sampler_stats(l.sampler), before);
		assert_int_equal(cost.phases, 5);
	}
	close_learner(&l);
}

#define ROUNDS 40u

/* Other calls between two samples; counts their phases if wanted. */
struct between {
	uint64_t *updates; /* of each batch */
	uint64_t *inserts; /* one, of a step */
};

static void do_between(struct learner *l, const struct between *between,
		       const struct rlv_batch *batch, bool counts)
{
	if (between->updates)
		*between->updates += update(l, batch->key, BATCH).phases * counts;
	if (between->inserts) {
		struct rlv_stats cost = append(&l->fx, l->writer, 1);

		assert_int_equal(cost.items, 1);
		*between->inserts += cost.phases * counts;
	}
}

/* Phases of so many samples in steady state. */
static uint64_t phases_ahead(uint32_t depth, struct between between)
{
	const struct rlv_sampler_opts how = { .prefetch = depth };
	struct rlv_stats before = { 0 }, after;
	struct learner l;

	lockstep = true;
	open_learner(&l, &how, false);
	for (uint32_t i = 0; i < ROUNDS + 20; i++) {
		const struct rlv_batch *batch;

		if (i == 20)
			before = replay_sampler_stats(l.sampler);
		batch = replay_sample(l.sampler, BATCH);
		do_between(&l, &between, batch, i >= 20);
		rlv_batch_release(l.sampler, batch);
	}
	after = replay_sampler_stats(l.sampler);
	close_learner(&l);
	lockstep = false;
	return after.phases - before.phases;
}

/* Four that are under way travel together: five phases for all of them. */
TEST(sampler_sample__batches_ahead_share_their_phases)
{
	const struct between nothing = { .updates = NULL };

	assert_int_equal(phases_ahead(0, nothing), ROUNDS * 5);
	assert_int_equal(phases_ahead(1, nothing), ROUNDS * 5);
	assert_int_equal(phases_ahead(4, nothing), ROUNDS * 5 / 4);
}

/*
 * A phase of an update is also a phase of the prefetched batches. An update has a second phase if
 * an earlier batch holds the same item.
 */
TEST(sampler_update__shares_its_phases_with_batches_ahead)
{
	uint64_t updates = 0, all;
	const struct between update_each = { .updates = &updates };

	all = phases_ahead(0, update_each);
	assert_int_equal(updates, ROUNDS);
	assert_int_equal(all, ROUNDS * 5 + updates);
	updates = 0;
	assert_int_equal(phases_ahead(1, update_each), ROUNDS * 5);
	assert_in_range(updates, ROUNDS, 2 * ROUNDS);
	updates = 0;
	all = phases_ahead(4, update_each);
	assert_in_range(updates, ROUNDS, 2 * ROUNDS);
	assert_true(all <= updates + ROUNDS / 4);
}

/* Batches are under way all the time, and neither they nor the inserts wait for the other. */
TEST(writer_append__goes_between_the_phases_of_batches_ahead)
{
	uint64_t inserts = 0;
	const struct between insert = { .inserts = &inserts };

	assert_int_equal(phases_ahead(0, insert), ROUNDS * 5);
	assert_in_range(inserts, ROUNDS, ROUNDS + 5); /* one block at most */
	inserts = 0;
	assert_int_equal(phases_ahead(4, insert), ROUNDS * 5 / 4);
	assert_in_range(inserts, ROUNDS, ROUNDS + 5);
}

int main(void)
{
	return test_run(NULL, NULL);
}
