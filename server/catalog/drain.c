/*
 * drain.c - shards that leave their node. No new block is claimed in a draining shard. It leaves
 * when the other shards have taken in as many items as it held: by then its items would have been
 * overwritten.
 *
 *   FILLING   until then, or until it is empty; and until no block is open in it
 *   HANDING   control shard only: its words were handed over; until clients know
 *   LEAVING   it is GONE; until clients know; then its memory is freed
 *
 * Dead or stopped clients are waited for no longer than the catalog's patience: when they return
 * they read the region's state word.
 */
#include "server/catalog/catalog.h"

#include <errno.h>

#include "wire/region.h"

#include "base/log.h"

/* -------- phases -------- */

static uint64_t taken_in(struct catalog_table *table)
{
	uint64_t items = 0;

	for (uint32_t s = 0; s < table->n_shards; s++)
		if (catalog_shard_view(table, s) == RELIVE__SHARD_STATE__SHARD_ACTIVE)
			items += table->kind->taken_in(table->attached[s], &table->shards[s].seen);
	return items;
}

/* Clients must adopt the current layout before the next phase. */
static void announce(const struct catalog *cat, const struct catalog_table *table,
		     struct shard_drain *drain)
{
	drain->announced = table->layout;
	drain->announced_at = clock_now_ns(cat->clock);
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
	announce(cat, table, drain);
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
	const struct object_kind *kind = table->kind;
	struct part *part = table->attached[s];
	uint64_t items = 0;
	bool is_open;
	int ret = kind->items(part, &items);

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
	ret = kind->is_open(part, &is_open);
	if (ret || is_open)
		return ret;
	ret = kind->hand_over ? kind->hand_over(cat, table, s) : 0;
	if (ret <= 0)
		return ret ? ret : leave(cat, table, s);
	drain->phase = DRAIN_HANDING;
	announce(cat, table, drain);
	return 0;
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
	ret = table->kind->handed(table, s);
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
