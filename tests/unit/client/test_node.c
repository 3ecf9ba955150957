/*
 * Loss and return of memory nodes as one handle sees them: its open shards, a sampler's trees, a
 * writer's next block, and the limiter.
 */
#include "tests/support/fixture/nodes_fixture.h"
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

#define BATCH 64
#define SHORT_NS (20 * CLOCK_NS_PER_MS)

static const struct rlv_view plain_view = { .n_step = 1 };
static const struct replay_look plain_look = { 1, 1, 0.99 };

static struct rlv_sampler *open_sampler(struct nodes_fixture *nx)
{
	const struct rlv_sampler_opts opts = { .batch_size = 256 };

	return replay_sampler(&nx->fx, &opts);
}

/* Draws a batch, checks every byte; how many items of each shard it has. */
static void draw(struct nodes_fixture *nx, struct rlv_sampler *sampler, uint32_t n,
		 uint32_t per_shard[NODES_SHARDS])
{
	const struct rlv_batch *batch = replay_sample(sampler, n);

	assert_int_equal(batch->n, n);
	replay_check_batch(&nx->fx.oracle, &plain_view, &plain_look, batch);
	memset(per_shard, 0, NODES_SHARDS * sizeof(*per_shard));
	for (uint32_t i = 0; i < batch->n; i++)
		per_shard[batch->key[i] >> 46 & 1023]++;
	rlv_batch_release(sampler, batch);
}

static void open_filled(struct nodes_fixture *nx, const struct nodes_opts *opts,
			struct rlv_writer **writer)
{
	nodes_open(nx, opts);
	*writer = replay_writer(&nx->fx, 1);
	for (uint32_t i = 0; i < 30; i++)
		replay_append_plain(&nx->fx, *writer, 0, 100);
}

static struct rlv_shard_info shard_info(struct nodes_fixture *nx, uint32_t shard)
{
	struct rlv_shard_info shards[NODES_SHARDS];
	size_t n = NODES_SHARDS;

	assert_int_equal(rlv_table_shards(nx->fx.table, shards, sizeof(shards[0]), &n), 0);
	assert_int_equal(n, nx->n_shards);
	assert_int_equal(shards[shard].shard, shard);
	return shards[shard];
}

/* -------- opening -------- */

TEST(table_open__one_node_of_three_is_enough)
{
	const struct nodes_opts opts = { .reach = NODES_WIRE };
	struct nodes_fixture nx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	struct rlv_table *again;
	uint32_t per_shard[NODES_SHARDS];

	open_filled(&nx, &opts, &writer);
	nodes_cut(&nx, 0, 1);
	nodes_cut(&nx, 2, 1);
	nodes_move_control(&nx, 1);
	assert_int_equal(rlv_table_open(nx.fx.store, "t", &again), 0);
	assert_int_equal(rlv_table_close(&again), 0);
	sampler = open_sampler(&nx);
	draw(&nx, sampler, BATCH, per_shard);
	assert_int_equal(per_shard[1], BATCH);
	assert_int_equal(replay_info(nx.fx.table).shards_up, 1);
	assert_int_equal(shard_info(&nx, 0).state, RLV_SHARD_DOWN);
	assert_int_equal(shard_info(&nx, 1).state, RLV_SHARD_ACTIVE);
	assert_string_equal(shard_info(&nx, 2).node, "n2");
	nodes_end(&nx, &writer, &sampler);
}

TEST(table_open__no_node_at_all_is_an_error)
{
	const struct nodes_opts opts = { .nodes = 2 };
	struct nodes_fixture nx;
	struct rlv_table *again = NULL;

	nodes_open(&nx, &opts);
	nx.fx.store->timeout_ns = SHORT_NS;
	nx.nodes[0].reachable = nx.nodes[1].reachable = false;
	replay_expect(rlv_table_open(nx.fx.store, "t", &again), -EHOSTDOWN, "shards");
	assert_null(again);
	nx.nodes[0].reachable = nx.nodes[1].reachable = true;
	nodes_close(&nx);
}

TEST(table_open__waits_for_a_node_that_comes_back)
{
	const struct nodes_opts opts = { .nodes = 2 };
	struct nodes_fixture nx;
	struct rlv_table *again;

	nodes_open(&nx, &opts);
	nx.fx.store->timeout_ns = -1; /* as long as it takes */
	nx.nodes[0].reachable = nx.nodes[1].reachable = false;
	nx.back_at = nx.opens + 4;
	assert_int_equal(rlv_table_open(nx.fx.store, "t", &again), 0);
	assert_int_equal(nx.opens, nx.back_at);
	assert_int_equal(rlv_table_close(&again), 0);
	nodes_close(&nx);
}

/* Includes nodes that were never reached since the table was opened here. */
TEST(table_shards__says_where_a_shard_that_is_down_was_last)
{
	const struct nodes_opts opts = { .reach = NODES_WIRE };
	struct rlv_shard_info shards[NODES_SHARDS];
	struct nodes_fixture nx;
	struct rlv_writer *writer;
	struct rlv_table *again;
	size_t n = NODES_SHARDS;

	open_filled(&nx, &opts, &writer);
	nodes_cut(&nx, 0, 1);
	nodes_cut(&nx, 2, 1);
	nodes_move_control(&nx, 1);
	assert_int_equal(rlv_table_open(nx.fx.store, "t", &again), 0);
	assert_int_equal(rlv_table_shards(again, shards, sizeof(shards[0]), &n), 0);
	assert_int_equal(shards[0].state, RLV_SHARD_DOWN);
	assert_string_equal(shards[0].address, "node:0");
	assert_int_equal(shards[1].state, RLV_SHARD_ACTIVE);
	assert_string_equal(shards[1].address, "node:1");
	assert_int_equal(shards[2].state, RLV_SHARD_DOWN);
	assert_string_equal(shards[2].address, "node:2");
	assert_int_equal(rlv_table_close(&again), 0);
	nodes_end(&nx, &writer, NULL);
}

/* -------- samplers -------- */

TEST(sample__goes_on_over_the_nodes_that_are_left)
{
	struct nodes_opts opts = { .reach = NODES_WIRE };
	uint32_t per_shard[NODES_SHARDS];
	struct nodes_fixture nx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	struct rlv_stats stats;
	uint64_t lost;

	open_filled(&nx, &opts, &writer);
	replay_writer_done(&writer); /* waits for the last additions */
	sampler = open_sampler(&nx);
	draw(&nx, sampler, BATCH, per_shard);
	assert_true(per_shard[0] && per_shard[1] && per_shard[2]);
	lost = nodes_items(&nx, 1, 0);
	nodes_cut(&nx, 1, 1);
	for (uint32_t i = 0; i < 20; i++) {
		draw(&nx, sampler, BATCH, per_shard);
		assert_int_equal(per_shard[1], 0);
	}
	stats = replay_sampler_stats(sampler);
	assert_int_equal(stats.items_lost, lost);
	assert_int_equal(stats.shards_lost, 1);
	replay_info(nx.fx.table);
	replay_sampler_done(&sampler);
	nodes_close(&nx);
}

TEST(sample__takes_back_a_node_that_returns)
{
	struct nodes_opts opts = { .reach = NODES_WIRE };
	uint32_t per_shard[NODES_SHARDS];
	struct nodes_fixture nx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;

	open_filled(&nx, &opts, &writer);
	sampler = open_sampler(&nx);
	nodes_cut(&nx, 1, 1);
	draw(&nx, sampler, BATCH, per_shard);
	nodes_return(&nx, 1);
	do
		draw(&nx, sampler, BATCH, per_shard);
	while (!per_shard[1]);
	assert_int_equal(replay_sampler_stats(sampler).items_lost, 0);
	nodes_end(&nx, &writer, &sampler);
}

/* Requests on the old connection must not land after those on the new one. */
TEST(sample__connects_anew_in_the_place_of_what_it_had)
{
	struct nodes_opts opts = { .reach = NODES_WIRE };
	uint32_t per_shard[NODES_SHARDS];
	struct nodes_fixture nx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	uint64_t had;

	open_filled(&nx, &opts, &writer);
	sampler = open_sampler(&nx);
	had = nx.nodes[1].link;
	assert_int_equal(nx.nodes[1].replaced, 0);
	nodes_cut(&nx, 1, 1);
	draw(&nx, sampler, BATCH, per_shard);
	nodes_return(&nx, 1);
	do
		draw(&nx, sampler, BATCH, per_shard);
	while (!per_shard[1]);
	assert_int_equal(nx.nodes[1].replaced, had);
	nodes_end(&nx, &writer, &sampler);
}

/* A node that dies is seen by its connection alone: the very call that meets it goes on. */
TEST(sample__needs_no_word_of_the_server_to_go_on)
{
	struct nodes_opts opts = { .reach = NODES_WIRE };
	uint32_t per_shard[NODES_SHARDS];
	struct nodes_fixture nx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;

	open_filled(&nx, &opts, &writer);
	sampler = open_sampler(&nx);
	nx.server_away = true;
	nodes_cut(&nx, 1, 1);
	draw(&nx, sampler, BATCH, per_shard);
	assert_int_equal(per_shard[1], 0);
	assert_int_equal(per_shard[0] + per_shard[2], BATCH);
	nx.server_away = false;
	nodes_end(&nx, &writer, &sampler);
}

/* In a steady state no call asks the server. */
TEST(sample_append_and_update__ask_the_server_nothing)
{
	struct nodes_opts opts = { .reach = NODES_WIRE };
	const struct rlv_batch *batch;
	struct nodes_fixture nx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	uint64_t before;
	float td[BATCH];

	open_filled(&nx, &opts, &writer);
	sampler = open_sampler(&nx);
	before = nx.refreshes;
	nx.server_away = true; /* every request fails */
	for (uint32_t i = 0; i < 50; i++) {
		replay_append_plain(&nx.fx, writer, 0, 40);
		batch = replay_sample(sampler, BATCH);
		for (uint32_t k = 0; k < BATCH; k++)
			td[k] = 0.01f * (float)(i + k);
		assert_int_equal(rlv_sampler_update(sampler, batch->key, td, BATCH, NULL), 0);
		rlv_batch_release(sampler, batch);
	}
	assert_int_equal(nx.refreshes, before);
	assert_true(replay_writer_stats(writer).blocks_claimed > 4);
	nx.server_away = false;
	nodes_end(&nx, &writer, &sampler);
}

TEST(sample__asks_the_server_seldom)
{
	struct nodes_opts opts = { .reach = NODES_WIRE };
	uint32_t per_shard[NODES_SHARDS];
	struct nodes_fixture nx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	uint64_t before;

	open_filled(&nx, &opts, &writer);
	sampler = open_sampler(&nx);
	before = nx.refreshes;
	for (uint32_t i = 0; i < 50; i++)
		draw(&nx, sampler, BATCH, per_shard);
	assert_int_equal(nx.refreshes, before);
	nodes_cut(&nx, 1, 1);
	for (uint32_t i = 0; i < 200; i++)
		draw(&nx, sampler, BATCH, per_shard);
	assert_true(nx.refreshes - before > 0);
	assert_true(nx.refreshes - before < 100);
	nodes_end(&nx, &writer, &sampler);
}

TEST(sample__all_nodes_gone_is_an_error_until_one_is_back)
{
	struct nodes_opts opts = { .nodes = 2, .reach = NODES_WIRE };
	uint32_t per_shard[NODES_SHARDS];
	const struct rlv_batch *batch;
	struct nodes_fixture nx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;

	open_filled(&nx, &opts, &writer);
	sampler = open_sampler(&nx);
	draw(&nx, sampler, BATCH, per_shard);
	nodes_cut(&nx, 0, 1);
	nodes_cut(&nx, 1, 1);
	replay_expect(rlv_sampler_sample(sampler, 8, 0, &batch), -EHOSTDOWN, "shards");
	replay_expect(rlv_sampler_sample(sampler, 8, 20000000, &batch), -EHOSTDOWN, "shards");
	nodes_return(&nx, 1);
	assert_int_equal(rlv_sampler_sample(sampler, 8, -1, &batch), 0);
	rlv_batch_release(sampler, batch);
	nodes_return(&nx, 0);
	nodes_end(&nx, &writer, &sampler);
}

/* -------- prices over a wire -------- */

static uint64_t sample_phases(struct rlv_sampler *sampler)
{
	uint64_t before = replay_sampler_stats(sampler).phases;

	rlv_batch_release(sampler, replay_sample(sampler, BATCH));
	return replay_sampler_stats(sampler).phases - before;
}

/* Whatever the number of nodes: tops, levels, rows, and the leaves again or their seals. No columns, no
   rows. */
TEST(sample__phases_do_not_grow_with_the_nodes)
{
	const struct rlv_sampler_opts by_leaf = { .batch_size = BATCH };
	const struct rlv_sampler_opts by_crc = { .batch_size = BATCH, .verify = RLV_VERIFY_CRC };
	const char *const none = NULL;
	const struct rlv_sampler_opts keys = { .batch_size = BATCH, .columns = &none };
	struct nodes_opts opts = { .reach = NODES_WIRE, .table = { .row_crc = 1 } };
	struct nodes_fixture nx;
	struct rlv_writer *writer;
	struct rlv_sampler *leaf, *crc, *bare;

	for (opts.nodes = 1; opts.nodes <= NODES_MAX; opts.nodes++) {
		uint32_t levels;

		open_filled(&nx, &opts, &writer);
		replay_writer_done(&writer);
		levels = nx.desc.tree.levels;
		leaf = replay_sampler(&nx.fx, &by_leaf);
		crc = replay_sampler(&nx.fx, &by_crc);
		bare = replay_sampler(&nx.fx, &keys);
		sample_phases(leaf); /* min_size is asked for once */
		sample_phases(crc);
		sample_phases(bare);
		for (uint32_t i = 0; i < 5; i++) {
			assert_int_equal(sample_phases(leaf), 3 + levels);
			assert_int_equal(sample_phases(crc), 2 + levels);
			assert_int_equal(sample_phases(bare), 1 + levels);
		}
		replay_sampler_done(&leaf);
		replay_sampler_done(&crc);
		replay_sampler_done(&bare);
		nodes_close(&nx);
	}
}

TEST(sample__rows_that_are_torn_are_drawn_anew)
{
	const struct rlv_sampler_opts by_crc = { .batch_size = 256, .verify = RLV_VERIFY_CRC };
	struct nodes_opts opts = { .nodes = 1, .reach = NODES_WIRE, .table = { .row_crc = 1 } };
	uint32_t per_shard[NODES_SHARDS];
	struct nodes_fixture nx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	uint8_t *rows;

	open_filled(&nx, &opts, &writer);
	replay_writer_done(&writer);
	rows = nx.shards[0]->rows->base;
	for (uint32_t slot = 0; slot < nx.desc.slots; slot += 10)
		rows[shard_row_off(nx.shards[0], slot) + 1] ^= 1;
	sampler = replay_sampler(&nx.fx, &by_crc);
	for (uint32_t i = 0; i < 10; i++)
		draw(&nx, sampler, 256, per_shard);
	assert_true(replay_sampler_stats(sampler).redraws > 100);
	replay_sampler_done(&sampler);
	for (uint32_t slot = 0; slot < nx.desc.slots; slot += 10)
		rows[shard_row_off(nx.shards[0], slot) + 1] ^= 1;
	nodes_close(&nx);
}

TEST(sampler_open__crc_needs_rows_that_carry_it)
{
	const struct nodes_opts opts = { .nodes = 1, .table = { .row_crc = 2 } };
	struct rlv_sampler_opts how = RLV_SAMPLER_OPTS_INIT;
	struct rlv_sampler *sampler = NULL;
	struct nodes_fixture nx;

	nodes_open(&nx, &opts);
	how.verify = RLV_VERIFY_CRC;
	replay_expect(rlv_sampler_open(nx.fx.table, &how, &sampler), -EINVAL, "verify");
	how.verify = 7;
	replay_expect(rlv_sampler_open(nx.fx.table, &how, &sampler), -EINVAL, "verify");
	assert_null(sampler);
	nodes_close(&nx);
}

/* -------- updates -------- */

TEST(update__of_items_on_a_lost_node_is_counted)
{
	struct nodes_opts opts = { .reach = NODES_WIRE };
	struct rlv_update_result result;
	const struct rlv_batch *batch;
	struct nodes_fixture nx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	uint32_t there = 0;
	float td[BATCH];

	open_filled(&nx, &opts, &writer);
	sampler = open_sampler(&nx);
	batch = replay_sample(sampler, BATCH);
	for (uint32_t i = 0; i < BATCH; i++) {
		there += (batch->key[i] >> 46 & 1023) == 1;
		td[i] = 0.5f;
	}
	assert_true(there > 0 && there < BATCH);
	nodes_cut(&nx, 1, 1);
	/* Once while it breaks, once when it is known. */
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(rlv_sampler_update(sampler, batch->key, td, BATCH, &result), 0);
		assert_true(result.stale > 0 && result.stale <= there);
		assert_true(result.updated > 0);
	}
	assert_int_equal(replay_sampler_stats(sampler).updates_lost, 2 * result.stale);
	rlv_batch_release(sampler, batch);
	nodes_cut(&nx, 0, 1);
	nodes_cut(&nx, 2, 1);
	assert_int_equal(rlv_sampler_update(sampler, batch->key, td, 1, &result), 0);
	assert_int_equal(result.updated, 0);
	assert_int_equal(result.stale, 1);
	for (uint32_t n = 0; n < 3; n++)
		nodes_return(&nx, n);
	nodes_end(&nx, &writer, &sampler);
}

/* -------- many shards -------- */

/* A call that fails in a table that is being dropped says so, whichever shard says so first. */
TEST(sample__from_a_table_of_many_shards_that_is_being_dropped)
{
	const struct nodes_opts opts = { .table = { .shards = 12, .capacity = 49152 } };
	const struct rlv_batch *batch;
	struct nodes_fixture nx;
	struct rlv_sampler *sampler;

	nodes_open(&nx, &opts);
	sampler = open_sampler(&nx);
	assert_int_equal(rlv_sampler_sample(sampler, 1, 0, &batch), -ENODATA);
	assert_int_equal(part_set_state(&nx.shards[11]->part, REGION_DROPPED), 0);
	assert_int_equal(rlv_sampler_sample(sampler, 1, 0, &batch), -ESTALE);
	assert_int_equal(part_set_state(&nx.shards[11]->part, REGION_LIVE), 0);
	nodes_end(&nx, NULL, &sampler);
}

int main(void)
{
	return test_run(NULL, NULL);
}
