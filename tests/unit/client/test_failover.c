/* Writers whose memory node is lost, and the limiter's counts afterwards. */
#include "tests/support/fixture/nodes_fixture.h"
#include "tests/support/test.h"

#include "client/writer/append.h"

#include "ds/part/slot.h"

#include <errno.h>
#include <string.h>

#define SEEN_MAX 8192
#define BATCHES 20
#define PENDING 4 /* rows whose windows the last row has not completed, and one more */

static const struct rlv_view three_step = { .n_step = 3, .stack = 2, .selector = RLV_UNIFORM };
static const struct replay_look three_look = { 2, 3, 0.99 };

/* Rows of a stream that were drawn; every byte of each batch is checked. */
static void draw_all(struct nodes_fixture *nx, uint32_t stream, bool seen[SEEN_MAX])
{
	const struct rlv_sampler_opts opts = { .batch_size = 256, .independent = true };
	struct rlv_sampler *sampler = replay_sampler(&nx->fx, &opts);

	memset(seen, 0, SEEN_MAX);
	for (uint32_t b = 0; b < BATCHES; b++) {
		const struct rlv_batch *batch = replay_sample(sampler, 256);

		replay_check_batch(&nx->fx.oracle, &three_step, &three_look, batch);
		for (uint32_t i = 0; i < batch->n; i++) {
			uint64_t row = replay_batch_id(batch, i) - replay_id(stream, 0);

			if (row < nx->fx.oracle.streams[stream].n)
				seen[row] = true;
		}
		rlv_batch_release(sampler, batch);
	}
	replay_sampler_done(&sampler);
}

/* The writer ends: so do the episodes that its streams were in. */
static void end_writer(struct nodes_fixture *nx, struct rlv_writer **writer, uint32_t streams)
{
	replay_writer_done(writer);
	for (uint32_t stream = 0; stream < streams; stream++)
		replay_oracle_end(&nx->fx.oracle, stream);
}

/* Fails unless each item of the stream from row `from` on was drawn. */
static void expect_seen(struct nodes_fixture *nx, uint32_t stream, size_t from)
{
	static bool seen[SEEN_MAX];

	draw_all(nx, stream, seen);
	for (size_t row = from; row < nx->fx.oracle.streams[stream].n; row++)
		if (replay_is_item(&nx->fx.oracle, stream, row, &three_step) && !seen[row])
			fail_msg("row %zu of stream %u is nowhere", row, stream);
}

static void open_table(struct nodes_fixture *nx, enum nodes_reach reach, uint32_t nodes)
{
	const struct nodes_opts opts = {
		.nodes = nodes,
		.reach = reach,
		.table = { .views = &three_step, .n_views = 1, .block = 32, .capacity = 3000 },
	};

	nodes_open(nx, &opts);
}

static uint32_t open_blocks(const struct nodes_fixture *nx, uint32_t s)
{
	struct shard *shard = nx->shards[s];
	uint32_t n = 0;

	for (uint32_t b = 0; b < shard->desc.blocks; b++) {
		uint64_t header;

		assert_int_equal(transport_load(shard->tree, shard_header_off(shard, b), &header),
				 0);
		n += block_is_open(header);
	}
	return n;
}

/* The shard in which the only writer's only stream has its block. */
static uint32_t open_shard(const struct nodes_fixture *nx)
{
	uint32_t s = 0;

	while (s < nx->n_shards && !open_blocks(nx, s))
		s++;
	assert_true(s < nx->n_shards);
	return s;
}

static void lose(struct nodes_fixture *nx, uint32_t node)
{
	if (node == nx->control)
		nodes_move_control(nx, (node + 1) % nx->n_shards);
	nodes_lose(nx, node);
}

/* -------- episodes -------- */

/*
 * No row is missing, neither those that were unpublished when the writer lost the node, nor later
 * ones.
 */
static void check_whole(uint32_t before, uint64_t at_call)
{
	struct nodes_fixture nx;
	struct rlv_writer *writer;
	uint32_t node;
	size_t from = before;

	open_table(&nx, NODES_WIRE, 3);
	writer = replay_writer(&nx.fx, 1);
	for (uint32_t i = 0; i < before; i++)
		replay_append_plain(&nx.fx, writer, 0, 1);
	node = open_shard(&nx);
	if (node == nx.control)
		nodes_move_control(&nx, (node + 1) % 3);
	nodes_cut(&nx, node, at_call);
	for (uint32_t i = 0; i < 200; i++) {
		replay_append_plain(&nx.fx, writer, 0, 1);
		if (!replay_writer_stats(writer).shards_lost)
			from = nx.fx.oracle.streams[0].n;
	}
	assert_int_equal(replay_writer_stats(writer).shards_lost, 1);
	end_writer(&nx, &writer, 1);
	expect_seen(&nx, 0, from >= PENDING ? from - PENDING + 1 : 0);
	nodes_close(&nx);
}

TEST(append__node_cut_at_any_call_keeps_later_steps)
{
	for (uint32_t before = 1; before < 70; before += 17)
		for (uint64_t call = 1; call < 14; call += 3)
			check_whole(before, call);
}

TEST(append__rows_of_open_windows_move_along)
{
	struct nodes_fixture nx;
	struct rlv_writer *writer;

	for (uint32_t reach = NODES_IN_PLACE; reach <= NODES_WIRE; reach++)
		for (uint32_t before = 3; before < 40; before += 3) {
			open_table(&nx, reach, 2);
			writer = replay_writer(&nx.fx, 1);
			for (uint32_t i = 0; i < before; i++)
				replay_append_plain(&nx.fx, writer, 0, 1);
			lose(&nx, open_shard(&nx));
			replay_append_episode(&nx.fx, writer, 0, 20, RLV_TERMINATED, false);
			assert_int_equal(replay_writer_stats(writer).shards_lost, 1);
			end_writer(&nx, &writer, 1);
			expect_seen(&nx, 0, before >= PENDING ? before - PENDING + 1 : 0);
			nodes_close(&nx);
		}
}

TEST(append_vector__streams_of_a_lost_node_go_on_elsewhere)
{
	struct nodes_fixture nx;
	struct rlv_writer *writer;
	uint64_t items = 0;

	open_table(&nx, NODES_WIRE, 3);
	writer = replay_writer(&nx.fx, 4);
	for (uint32_t i = 0; i < 10; i++)
		assert_int_equal(replay_append_vector(&nx.fx, writer, 4, NULL, NULL), 0);
	nodes_move_control(&nx, 0);
	nodes_cut(&nx, 2, 2);
	for (uint32_t i = 0; i < 30; i++)
		assert_int_equal(replay_append_vector(&nx.fx, writer, 4, NULL, NULL), 0);
	nodes_cut(&nx, 2, 1);
	assert_int_equal(replay_writer_stats(writer).shards_lost, 1);
	assert_true(replay_writer_stats(writer).items_lost > 0);
	end_writer(&nx, &writer, 4);
	for (uint32_t stream = 0; stream < 4; stream++)
		expect_seen(&nx, stream, 12);
	for (uint32_t s = 0; s < 2; s++)
		items += nodes_items(&nx, s, 0);
	assert_true(items >= 4 * 27);
	nodes_close(&nx);
}

/* -------- coming back -------- */

TEST(append__blocks_left_behind_are_closed_when_the_node_returns)
{
	struct nodes_fixture nx;
	struct rlv_writer *writer;
	uint64_t asked;
	uint32_t node;

	open_table(&nx, NODES_WIRE, 2);
	writer = replay_writer(&nx.fx, 1);
	replay_append_plain(&nx.fx, writer, 0, 10);
	node = open_shard(&nx);
	nodes_move_control(&nx, 1 - node);
	nodes_cut(&nx, node, 1);
	replay_append_plain(&nx.fx, writer, 0, 10);
	assert_int_equal(open_blocks(&nx, node), 1);
	nodes_return(&nx, node);
	asked = nx.refreshes;
	while (nx.refreshes == asked) /* the server is asked again soon */
		replay_append_plain(&nx.fx, writer, 0, 1);
	assert_true(writer->h.set.parts[node] != NULL);
	replay_writer_done(&writer);
	assert_int_equal(open_blocks(&nx, node), 0);
	nodes_close(&nx);
}

TEST(handles__that_were_fenced_take_another_slot)
{
	const struct rlv_batch *batch;
	struct nodes_fixture nx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;

	open_table(&nx, NODES_WIRE, 2);
	writer = replay_writer(&nx.fx, 1);
	sampler = replay_sampler(&nx.fx, NULL);
	replay_append_plain(&nx.fx, writer, 0, 100);
	for (uint32_t n = 0; n < 2; n++)
		nodes_cut(&nx, n, 1);
	nodes_fence_all(&nx);
	for (uint32_t n = 0; n < 2; n++)
		nodes_return(&nx, n);
	replay_append_plain(&nx.fx, writer, 0, 100);
	replay_expect(rlv_sampler_sample(sampler, 64, 10 * CLOCK_NS_PER_S, &batch), 0, NULL);
	rlv_batch_release(sampler, batch);
	replay_sampler_done(&sampler);
	end_writer(&nx, &writer, 1);
	expect_seen(&nx, 0, 100 - PENDING + 1);
	nodes_close(&nx);
}

/* The number of one may be another's by the time that the first one asks for a new slot. */
TEST(handles__that_were_fenced_leave_each_other_alone)
{
	struct rlv_writer *writers[2];
	struct nodes_fixture nx;
	struct slot_info info;

	open_table(&nx, NODES_WIRE, 2);
	for (uint32_t i = 0; i < 2; i++)
		writers[i] = replay_writer(&nx.fx, 1);
	for (uint32_t n = 0; n < 2; n++)
		nodes_cut(&nx, n, 1);
	nodes_fence_all(&nx);
	for (uint32_t n = 0; n < 2; n++)
		nodes_return(&nx, n);
	replay_append_plain(&nx.fx, writers[1], 0, 100);
	replay_append_plain(&nx.fx, writers[0], 0, 100);
	for (uint32_t i = 0; i < 2 * 2; i++) {
		assert_int_equal(slot_read(&nx.shards[i / 2]->part, i % 2, &info), 0);
		assert_int_equal(info.state, SLOT_LIVE);
		assert_int_equal(info.lease, nx.lease);
	}
	for (uint32_t i = 0; i < 2; i++)
		replay_writer_done(&writers[i]);
	nodes_close(&nx);
}

/* -------- where blocks go -------- */

static uint64_t claimed(struct nodes_fixture *nx, uint32_t s)
{
	uint64_t head;

	assert_int_equal(
		transport_load(nx->shards[s]->tree,
			       shard_word_off(nx->shards[s], offsetof(struct shard_words, head)),
			       &head),
		0);
	return head;
}

TEST(append__draining_shards_get_no_new_block)
{
	struct nodes_fixture nx;
	struct rlv_writer *writer;
	uint64_t before;

	open_table(&nx, NODES_WIRE, 3);
	writer = replay_writer(&nx.fx, 1);
	replay_append_plain(&nx.fx, writer, 0, 200);
	nodes_set(&nx, 1, RLV_SHARD_DRAINING, 0);
	replay_append_plain(&nx.fx, writer, 0, 1);
	before = claimed(&nx, 1);
	assert_true(before > 0);
	replay_append_plain(&nx.fx, writer, 0, 1000);
	assert_int_equal(claimed(&nx, 1), before);
	nodes_end(&nx, &writer, NULL);
}

TEST(append__new_shards_take_their_weight)
{
	struct nodes_fixture nx;
	struct rlv_writer *writer;

	open_table(&nx, NODES_IN_PLACE, 2);
	nodes_set(&nx, 1, RLV_SHARD_GONE, 0);
	writer = replay_writer(&nx.fx, 1);
	replay_append_plain(&nx.fx, writer, 0, 300);
	assert_int_equal(claimed(&nx, 1), 0);
	nodes_set(&nx, 1, RLV_SHARD_ACTIVE, 250);
	nx.ramp_ns = UINT64_MAX;
	nodes_set(&nx, 1, RLV_SHARD_ACTIVE, 250);
	while (claimed(&nx, 1) == 0)
		replay_append_plain(&nx.fx, writer, 0, 28);
	for (uint32_t i = 0; i < 100; i++)
		replay_append_plain(&nx.fx, writer, 0, 29); /* a block less its head rows */
	assert_in_range(claimed(&nx, 1), 19, 22);
	nodes_end(&nx, &writer, NULL);
}

/* -------- the limiter -------- */

static const struct rlv_view bounded_view = {
	.n_step = 1,
	.limiter = { .min_size = 1, .samples_per_insert = 1, .min_diff = -1000, .max_diff = 100 },
};

TEST(limiter__without_its_shard_bounded_views_wait)
{
	const struct nodes_opts opts = {
		.nodes = 2,
		.table = { .views = &bounded_view, .n_views = 1, .block = 32 },
	};
	struct rlv_writer_opts how = RLV_WRITER_OPTS_INIT;
	struct rlv_table_info info;
	struct nodes_fixture nx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;
	struct replay_put put = { .n = 1 };

	nodes_open(&nx, &opts);
	how.timeout_ns = CLOCK_NS_PER_S / 4;
	assert_int_equal(rlv_writer_open(nx.fx.table, &how, &writer), 0);
	nodes_time(&nx, &writer->h); /* else it may be late before it waits */
	sampler = replay_sampler(&nx.fx, NULL);
	replay_append_plain(&nx.fx, writer, 0, 60);
	rlv_batch_release(sampler, replay_sample(sampler, 20));
	nodes_cut(&nx, 0, 1);
	replay_expect(replay_append(&nx.fx, writer, &put), -EHOSTDOWN, "counts");
	replay_expect(rlv_sampler_sample(sampler, 8, 0, &batch), -EHOSTDOWN, "counts");
	nodes_move_control(&nx, 1);
	nodes_lose(&nx, 0);
	assert_int_equal(rlv_sampler_sample(sampler, 8, -1, &batch), 0);
	rlv_batch_release(sampler, batch);
	fake_clock_advance(&nx.clock, 2 * (uint64_t)CLOCK_NS_PER_S); /* the writer may ask again */
	/* 60 items less the one that is not complete, 28 sampled, 100 ahead at most. */
	for (put.n = 1; replay_append(&nx.fx, writer, &put) == 0;)
		;
	info = replay_info(nx.fx.table);
	assert_int_equal(info.control, 1);
	assert_int_equal(info.views[0].sampled, 28);
	assert_int_equal(info.views[0].inserted, 128);
	replay_sampler_done(&sampler);
	replay_expect(rlv_writer_close(&writer), 0, NULL);
	nodes_close(&nx);
}

TEST(limiter__without_its_shard_new_handles_of_views_without_bounds_go_on)
{
	struct nodes_fixture nx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;

	open_table(&nx, NODES_IN_PLACE, 2);
	writer = replay_writer(&nx.fx, 1);
	replay_append_plain(&nx.fx, writer, 0, 300);
	nodes_set(&nx, 0, RLV_SHARD_DOWN, 0);
	sampler = replay_sampler(&nx.fx, NULL);
	rlv_batch_release(sampler, replay_sample(sampler, 20));
	replay_sampler_done(&sampler);
	nodes_set(&nx, 0, RLV_SHARD_ACTIVE, META_WEIGHT_FULL);
	nodes_end(&nx, &writer, NULL);
}

/* Behind a lost shard no tree has the number of its shard: updates must not go by that. */
TEST(sampler_update__of_shards_around_a_lost_one)
{
	const struct nodes_opts opts = { .nodes = 4 };
	const float td[2] = { 1000, 1000 };
	const struct rlv_batch *batch;
	struct nodes_fixture nx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	uint64_t leaf;

	nodes_open(&nx, &opts);
	writer = replay_writer(&nx.fx, 1);
	for (uint32_t i = 0; i < 40; i++)
		replay_append_plain(&nx.fx, writer, 0, 8);
	lose(&nx, 1);
	sampler = replay_sampler(&nx.fx, NULL);
	batch = replay_sample(sampler, 2);
	while (key_shard(batch->key[0]) + key_shard(batch->key[1]) != 2 ||
	       key_shard(batch->key[0]) == key_shard(batch->key[1])) { /* 0 and 2 */
		rlv_batch_release(sampler, batch);
		batch = replay_sample(sampler, 2);
	}
	assert_int_equal(rlv_sampler_update(sampler, batch->key, td, 2, NULL), 0);
	for (uint32_t i = 0; i < 2; i++) {
		const struct shard *shard = nx.shards[key_shard(batch->key[i])];
		uint64_t off = shard_leaf_off(shard, 0, key_slot(batch->key[i]));

		assert_int_equal(transport_load(shard->tree, off, &leaf), 0);
		assert_true(leaf_priority(leaf) > 10 * nx.desc.views[0].scale);
	}
	rlv_batch_release(sampler, batch);
	nodes_end(&nx, &writer, &sampler);
}

int main(void)
{
	return test_run(NULL, NULL);
}
