/*
 * drain.c - shards that leave their node: no block is claimed there any more, and when the
 * others have taken in as many items as it held, which is when its items would have been
 * overwritten, it goes.
 *
 *   FILLING   until that, or until it holds nothing, and no block is open there
 *   HANDING   only if it is the control shard: its words are another's now; until clients know
 *   LEAVING   it is GONE; until clients know; then its memory is freed
 *
 * Clients that are dead or stopped are not waited for longer than the catalog's patience: they find
 * the region's state when they come back.
 */
#include "server/catalog/catalog.h"

#include <errno.h>
#include <string.h>

#include "wire/region.h"

#include "base/bits.h"
#include "base/log.h"

#define HEADERS_AT_ONCE 256u

/* -------- measures -------- */

/* Items of the view that has most. */
static int count_items(struct shard *shard, uint64_t *items_out)
{
	uint64_t most = 0;

	for (uint32_t v = 0; v < shard->desc.n_views; v++) {
		uint64_t items;
		int ret = catalog_shard_items(shard, v, &items);

		if (ret)
			return ret;
		most = max_u64(most, items);
	}
	*items_out = most;
	return 0;
}

static int count_open_blocks(struct shard *shard, uint32_t *open_out)
{
	uint32_t blocks = shard->desc.blocks, open = 0;

	for (uint32_t first = 0; first < blocks; first += HEADERS_AT_ONCE) {
		uint32_t n = blocks - first < HEADERS_AT_ONCE ? blocks - first : HEADERS_AT_ONCE;
		uint64_t headers[HEADERS_AT_ONCE] = { 0 };
		struct transport_io io = { .region = shard->tree,
					   .off = shard_header_off(shard, first),
					   .dst = headers,
					   .len = n * 8 };
		int ret = transport_read(shard->tree->tr, &io, 1);

		if (ret)
			return ret;
		for (uint32_t i = 0; i < n; i++)
			open += block_is_open(headers[i]);
	}
	*open_out = open;
	return 0;
}

/* Rows of the blocks that were claimed in a shard since the last look. */
static uint64_t rows_claimed(struct catalog_table *table, uint32_t s)
{
	struct catalog_shard *place = &table->shards[s];
	const struct shard *shard = table->attached[s];
	uint64_t head = 0, before = place->head;

	if (transport_load(shard->tree, shard_word_off(shard, offsetof(struct shard_words, head)),
			   &head))
		return 0;
	place->head = (head & BLOCK_SEQ_MASK) + 1; /* 0 = not known */
	return before ? (place->head - before) * table->desc.block : 0;
}

static uint64_t taken_in(struct catalog_table *table)
{
	uint64_t rows = 0;

	for (uint32_t s = 0; s < table->n_shards; s++)
		if (catalog_shard_view(table, s) == RELIVE__SHARD_STATE__SHARD_ACTIVE)
			rows += rows_claimed(table, s);
	return rows;
}

/* -------- phases -------- */

static int hand_over(struct catalog *cat, struct catalog_table *table, uint32_t s)
{
	struct shard_drain *drain = &table->shards[s].drain;
	uint32_t to = catalog_control_pick(table, s);
	int ret;

	if (to == table->n_shards)
		return error_set(-EAGAIN, "no other shard is there");
	catalog_control_read(table);
	memcpy(drain->handed, table->words, sizeof(drain->handed));
	ret = catalog_control_move(cat, table, to, table->words);
	if (ret)
		return ret;
	drain->phase = DRAIN_HANDING;
	drain->announced = table->layout;
	drain->announced_at = clock_now_ns(cat->clock);
	return 0;
}

static int leave(struct catalog *cat, struct catalog_table *table, uint32_t s)
{
	struct shard_drain *drain = &table->shards[s].drain;
	int ret;

	table->shards[s].state = RELIVE__SHARD_STATE__SHARD_GONE;
	ret = catalog_table_put_shard(cat->store, table, s);
	if (ret) {
		table->shards[s].state = RELIVE__SHARD_STATE__SHARD_DRAINING;
		return ret;
	}
	catalog_shard_end(table, s, RELIVE__SHARD_STATE__SHARD_GONE);
	catalog_refresh(cat, table);
	drain->phase = DRAIN_LEAVING;
	drain->announced = table->layout;
	drain->announced_at = clock_now_ns(cat->clock);
	return 0;
}

static void free_shard(struct catalog *cat, struct catalog_table *table, uint32_t s)
{
	log_info("table %s shard %u: drained from node %s", table->desc.name, s,
		 table->shards[s].node->name);
	catalog_retire_shard(cat, table, s, REGION_ORPHANED);
	table->shards[s].drain = (struct shard_drain){ .phase = DRAIN_FILLING };
}

static int fill(struct catalog *cat, struct catalog_table *table, uint32_t s, uint64_t taken)
{
	struct shard_drain *drain = &table->shards[s].drain;
	struct shard *shard = table->attached[s];
	uint32_t open = 0;
	uint64_t items = 0;
	int ret = count_items(shard, &items);

	if (ret)
		return ret;
	if (!drain->begun) {
		drain->items = items;
		drain->begun = true;
	} else {
		drain->taken += taken;
	}
	if (items && drain->taken < drain->items)
		return 0;
	ret = count_open_blocks(shard, &open);
	if (ret || open)
		return ret;
	return s == table->control ? hand_over(cat, table, s) : leave(cat, table, s);
}

static int drain_step(struct catalog *cat, struct catalog_table *table, uint32_t s, uint64_t taken)
{
	struct shard_drain *drain = &table->shards[s].drain;
	int ret;

	if (drain->phase == DRAIN_FILLING)
		return fill(cat, table, s, taken);
	if (!catalog_is_known(cat, drain->announced, drain->announced_at))
		return 0;
	if (drain->phase == DRAIN_LEAVING) {
		free_shard(cat, table, s);
		return 0;
	}
	ret = catalog_control_settle(table, s);
	return ret ? ret : leave(cat, table, s);
}

static bool is_draining(const struct catalog_table *table, uint32_t s)
{
	const struct catalog_shard *shard = &table->shards[s];

	return shard->drain.phase == DRAIN_LEAVING ||
	       catalog_shard_view(table, s) == RELIVE__SHARD_STATE__SHARD_DRAINING;
}

void catalog_drain_tick(struct catalog *cat, struct catalog_table *table)
{
	uint64_t taken = UINT64_MAX;

	for (uint32_t s = 0; s < table->n_shards; s++) {
		if (!is_draining(table, s))
			continue;
		if (taken == UINT64_MAX)
			taken = taken_in(table);
		if (drain_step(cat, table, s, taken))
			log_warn("drain table %s shard %u: %s", table->desc.name, s, error_last());
	}
}

int catalog_drain(struct catalog *cat, struct catalog_table *table, uint32_t s)
{
	struct catalog_shard *shard = &table->shards[s];
	int ret;

	shard->state = RELIVE__SHARD_STATE__SHARD_DRAINING;
	shard->drain = (struct shard_drain){ .phase = DRAIN_FILLING };
	ret = catalog_table_put_shard(cat->store, table, s);
	if (ret) {
		shard->state = RELIVE__SHARD_STATE__SHARD_ACTIVE;
		return ret;
	}
	log_info("table %s shard %u: drains from node %s", table->desc.name, s, shard->node->name);
	catalog_refresh(cat, table);
	return 0;
}
