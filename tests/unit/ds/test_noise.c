/*
 * Words of a region that nobody of ours writes, one at a time. Random ones: model/test_noise,
 * integration/test_noise.
 */
#include "tests/support/fixture/replay_fixture.h"
#include "tests/support/test.h"

#include "client/meta/embed.h"
#include "client/table/table.h"

#include "ds/part/slot.h"
#include "ds/sumtree/rebuild.h"
#include "ds/window/window.h"

#include "transport/barrier.h"

#include <errno.h>
#include <string.h>

#define ITEMS 500u
#define BATCH 128u

static struct replay_fixture fx;
static struct rlv_writer *writer;
static struct rlv_sampler *sampler;

static const struct rlv_view view = { .selector = RLV_PRIORITIZED, .n_step = 3, .alpha = 1 };
static const struct rlv_table_opts opts = { .size = sizeof(opts),
					    .columns = replay_obs_columns,
					    .n_columns = REPLAY_COLUMNS,
					    .n_views = 1,
					    .views = &view,
					    .capacity = 1024,
					    .shards = 1,
					    .max_clients = 8 };

static void fill(void)
{
	writer = replay_writer(&fx, 1);
	replay_append_plain(&fx, writer, 0, ITEMS);
	sampler = replay_sampler(&fx, NULL);
}

static int setup(void **state)
{
	(void)state;
	replay_open(&fx, &opts);
	fill();
	return 0;
}

/* Grants of the store itself, with all rights. */
static struct shard *the_shard(void)
{
	const struct embed *embed = (const struct embed *)fx.store->meta;

	return shard_of(embed->cat.objects[fx.table->desc.table_id]->attached[0]);
}

static struct rword64 *word_at(uint64_t off)
{
	return (struct rword64 *)(void *)(the_shard()->tree->base + off);
}

static uint64_t word_of(uint64_t off)
{
	return rword64_load_relaxed(word_at(off));
}

static void set(uint64_t off, uint64_t word)
{
	rword64_announce(word_at(off), word);
}

/* Sums are as the leaves are again, by the word that says that a rebuild is due. */
static void rebuild(void)
{
	const struct rebuild_opts how = { .owner = 8 };
	const struct process_id self = { .pid = 1 };
	struct rebuild_report report = { 0 };
	bool needed = false;

	replay_writer_done(&writer);
	assert_int_equal(part_rebuild_needed(&the_shard()->part, &needed), 0);
	assert_true(needed);
	assert_int_equal(slot_take(&the_shard()->part, 7, &self, 1), 0);
	replay_expect(sumtree_rebuild_until_clean(the_shard(), &how, 3, &report), 0, NULL);
	assert_int_equal(slot_release(&the_shard()->part, 7), 0);
}

static int teardown(void **state)
{
	(void)state;
	if (sampler)
		replay_sampler_done(&sampler);
	if (writer)
		replay_writer_done(&writer);
	replay_close(&fx);
	return 0;
}

#define CASE(name) TEST_WITH(name, setup, teardown)

/*
 * The leaf's window would begin before the rows. The sums exclude this leaf, so only some draws hit
 * it.
 */
CASE(sampler_sample__a_priority_on_slot_0_is_no_item)
{
	const struct rlv_batch *batch;

	set(shard_leaf_off(the_shard(), 0, 0), leaf_make(0, 1, LEAF_PRIORITY_MASK));
	for (int i = 0; i < 20; i++) {
		batch = replay_sample(sampler, BATCH);
		for (uint32_t k = 0; k < batch->n; k++)
			assert_true(key_slot(batch->key[k]) >= 3);
		rlv_batch_release(sampler, batch);
	}
	set(shard_leaf_off(the_shard(), 0, 0), leaf_make(0, 1, 0));
}

/* At the start of a later block, the rows before belong to another block. */
CASE(sampler_sample__a_priority_at_a_blocks_head_is_no_item)
{
	const uint32_t block = the_shard()->desc.block;
	const struct rlv_batch *batch;

	set(shard_leaf_off(the_shard(), 0, block + 2), leaf_make(0, 1, LEAF_PRIORITY_MASK));
	for (int i = 0; i < 20; i++) {
		batch = replay_sample(sampler, BATCH);
		for (uint32_t k = 0; k < batch->n; k++)
			assert_true(key_slot(batch->key[k]) % block >= 3);
		rlv_batch_release(sampler, batch);
	}
	set(shard_leaf_off(the_shard(), 0, block + 2), leaf_make(0, 1, 0));
}

/* A key with that generation would be refused by an update. */
CASE(sampler_sample__a_leaf_without_a_generation_is_no_item)
{
	const uint64_t off = shard_leaf_off(the_shard(), 0, 10);
	const uint64_t before = word_of(off);
	const struct rlv_batch *batch;

	set(off, leaf_make(0, 0, leaf_priority(before)));
	for (int i = 0; i < 20; i++) {
		batch = replay_sample(sampler, BATCH);
		for (uint32_t k = 0; k < batch->n; k++)
			assert_int_not_equal(key_gen(batch->key[k]), 0);
		rlv_batch_release(sampler, batch);
	}
	set(off, before);
}

/* Else every batch with that item would fail, and nobody would mend it. */
CASE(sampler_update__a_tag_of_no_epoch_is_mended)
{
	const float td[BATCH] = { 1 };
	struct rlv_update_result result;
	const struct rlv_batch *batch;
	uint64_t off;

	batch = replay_sample(sampler, BATCH);
	off = shard_leaf_off(the_shard(), 0, key_slot(batch->key[5]));
	set(off, word_of(off) ^ (uint64_t)2 << LEAF_TAG_SHIFT);
	replay_expect(rlv_sampler_update(sampler, batch->key, td, BATCH, &result), 0, NULL);
	assert_int_equal(result.stale, 0);
	assert_int_equal(leaf_tag(word_of(off)), 0);
	rlv_batch_release(sampler, batch);
	rebuild();
}

CASE(writer_append__claims_a_block_with_tags_of_no_epoch)
{
	for (uint32_t slot = 0; slot < the_shard()->desc.slots; slot++) {
		const uint64_t off = shard_leaf_off(the_shard(), 0, slot);

		set(off, word_of(off) ^ (uint64_t)2 << LEAF_TAG_SHIFT);
	}
	replay_append_plain(&fx, writer, 0, 2 * the_shard()->desc.block);
	rebuild();
}

CASE(rebuild__a_mode_that_is_none_begins_anew)
{
	const uint64_t off = shard_word_off(the_shard(), offsetof(struct shard_words, part.epoch));

	set(off, epoch_make(epoch_number(word_of(off)), (enum epoch_mode)3, 8));
	rebuild();
	assert_int_equal(word_of(off), epoch_make(1, EPOCH_NORMAL, 0));
}

CASE(table_info__sizes_are_bounded_by_the_table)
{
	static const uint64_t words[] = { UINT64_MAX, (uint64_t)1 << 63, INT64_MAX, 1u << 30 };
	const uint64_t off = the_shard()->desc.views[0].inner_off[0], before = word_of(off);
	const struct rlv_batch *batch;

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		int64_t slots = the_shard()->desc.slots;
		struct rlv_table_info info;

		set(off, words[i]);
		info = replay_info(fx.table);
		assert_in_range(info.views[0].items, 0, slots);
		batch = replay_sample(sampler, BATCH);
		assert_in_range(batch->table_size, 0, slots);
		rlv_batch_release(sampler, batch);
	}
	set(off, before);
}

/* The next table under its number goes on above its tickets, and soon there would be none above. */
CASE(table_drop__a_head_of_noise_leaves_tickets_for_the_next)
{
	const struct table_desc desc = the_shard()->desc;
	const uint64_t head = BLOCK_SEQ_MASK - 3 * (uint64_t)desc.blocks;

	replay_writer_done(&writer);
	replay_sampler_done(&sampler);
	set(shard_word_off(the_shard(), offsetof(struct shard_words, head)), head);
	replay_expect(rlv_table_drop(fx.store, "t"), 0, NULL);
	replay_expect(rlv_table_close(&fx.table), 0, NULL);
	replay_expect(rlv_table_create(fx.store, "t", &opts, &fx.table), 0, NULL);
	fill();
	for (uint32_t rows = 0; rows < 4 * desc.slots; rows += ITEMS)
		replay_append_plain(&fx, writer, 0, ITEMS);
	replay_verify(fx.table);
}

/* The first row of an item has a return; torn or random rows may have none. */
TEST(window_gather__rows_without_a_return_are_read_within)
{
	struct row {
		uint64_t after;
		struct row_tail tail;
	} rows[3] = { { 7, { .flags = 0 } }, { 8, { .flags = ROW_TRUNCATED } }, { 9, { 0 } } };
	uint64_t after = 0;
	const struct window_output output = {
		.kind = WINDOW_LAST, .bytes = 8, .out = (uint8_t *)&after, .item_bytes = 8
	};
	const struct window_plan plan = { .row_bytes = sizeof(struct row),
					  .tail_off = 8,
					  .stack = 1,
					  .future = 1,
					  .n_step = 2,
					  .has_obs = true,
					  .gamma = 1,
					  .n_outputs = 1,
					  .outputs = &output };
	const uint8_t *window = (const uint8_t *)&rows[1];
	const uint32_t at = 0;

	window_gather(&plan, &window, &at, 1);
	assert_int_equal(after, 8);
}

int main(void)
{
	return test_run(NULL, NULL);
}
