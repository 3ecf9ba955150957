/*
 * nodes.c - updates tables when memory nodes join and leave.
 */
#include "server/catalog/catalog.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "wire/region.h"

#include "base/log.h"

#define SLICE_NS (20 * (uint64_t)CLOCK_NS_PER_MS) /* time slice in one turn of the loop */

/* -------- all shards of a node -------- */

typedef void (*shard_fn)(struct catalog *cat, const struct catalog_arrival *arrival,
			 struct catalog_table *table, uint32_t s);

/* Includes shards that are LOST or GONE. */
static void each_of(struct catalog *cat, const struct catalog_arrival *arrival, shard_fn fn)
{
	for (uint32_t id = 1; id <= TABLE_MAX_ID; id++) {
		struct catalog_table *table = cat->tables[id];

		for (uint32_t s = 0; table && s < table->n_shards; s++)
			if (table->shards[s].node == arrival->node)
				fn(cat, arrival, table, s);
	}
}

static void each_shard_of(struct catalog *cat, const struct catalog_arrival *arrival, shard_fn fn)
{
	for (uint32_t id = 1; id <= TABLE_MAX_ID; id++) {
		struct catalog_table *table = cat->tables[id];

		for (uint32_t s = 0; table && s < table->n_shards; s++)
			if (table->shards[s].node == arrival->node && !table->lost[s])
				fn(cat, arrival, table, s);
	}
}

uint32_t catalog_shards_of(const struct catalog *cat, const struct node *node,
			   struct catalog_leaving *leaving_out)
{
	struct catalog_leaving leaving = { 0 };
	uint32_t n = 0;

	for (uint32_t id = 1; id <= TABLE_MAX_ID; id++) {
		const struct catalog_table *table = cat->tables[id];

		for (uint32_t s = 0; table && s < table->n_shards; s++) {
			const struct catalog_shard *shard = &table->shards[s];
			const struct shard_drain *drain = &shard->drain;

			/* A GONE shard counts until its memory is freed. */
			if (shard->node != node || (table->lost[s] && !table->attached[s]))
				continue;
			n++;
			leaving.items_begin += drain->items;
			leaving.items_left +=
				drain->items > drain->taken ? drain->items - drain->taken : 0;
		}
	}
	if (leaving_out)
		*leaving_out = leaving;
	return n;
}

/* Shards of tables must be detached before. */
static void leave_memory(struct catalog *cat, struct node *node)
{
	catalog_provision_detach(cat, node);
	node_close_transport(node);
}

/* -------- lost -------- */

static void lose(struct catalog *cat, const struct catalog_arrival *arrival,
		 struct catalog_table *table, uint32_t s)
{
	(void)arrival;
	log_error("table %s shard %u: lost with the memory of node %s", table->desc.name, s,
		  table->shards[s].node->name);
	if (table->attached[s] && part_set_state(table->attached[s], REGION_ORPHANED))
		log_warn("orphan table %s shard %u: %s", table->desc.name, s, error_last());
	catalog_table_detach(table, s);
	catalog_shard_end(table, s, RELIVE__SHARD_STATE__SHARD_LOST);
	if (catalog_table_put_shard(cat->store, table, s)) /* it is lost again after a restart */
		log_warn("table %s shard %u: %s", table->desc.name, s, error_last());
	if (table->auto_shards)
		catalog_spread_soon(table);
}

void catalog_node_lost(struct catalog *cat, struct node *node)
{
	const struct catalog_arrival gone = { .node = node };

	each_shard_of(cat, &gone, lose);
	leave_memory(cat, node);
}

/* -------- attach -------- */

/*
 * Starts recovery of a shard that no client has; clients get it when it is sound. Until then it
 * counts as not attached. Recovery runs in time slices, so that other requests are served in
 * between.
 */
static int begin_recovery(const struct catalog *cat, struct catalog_table *table, uint32_t s)
{
	struct catalog_shard *place = &table->shards[s];
	int ret = table->kind->recover_begin(cat, table, s, &place->recovery);

	if (ret)
		return ret;
	place->recovering = table->attached[s];
	table->attached[s] = NULL;
	return 0;
}

static int recover_slice(struct catalog *cat, struct catalog_table *table, uint32_t s)
{
	struct catalog_shard *place = &table->shards[s];
	uint64_t now = clock_now_ns(clock_monotonic());
	char found[KIND_TEXT_BYTES] = "";
	int ret;

	if (cat->slice_until == 0)
		cat->slice_until = now + SLICE_NS;
	if (now >= cat->slice_until)
		return -EAGAIN;
	ret = table->kind->recover_go_on(place->recovery, cat->slice_until, found);
	if (ret == -EAGAIN)
		return ret;
	table->attached[s] = place->recovering;
	place->recovering = NULL;
	table->kind->recover_end(&place->recovery);
	if (ret)
		return ret;
	log_info("recover table %s shard %u: %s%s", table->desc.name, s, found,
		 place->life.marked ? ", all rows read" : "");
	return part_set_sound(table->attached[s], &place->life);
}

/*
 * The node restarted. If another process kept the pool mapped, the shard is in use and left alone;
 * otherwise its superblock says which recovery is needed (wire/region.h).
 */
static int renew_life(struct catalog *cat, struct catalog_table *table, uint32_t s)
{
	struct catalog_shard *place = &table->shards[s];
	int ret = 0;

	if (!place->recovering) {
		ret = part_life(table->attached[s], &place->life);
		if (ret == 0 && !place->life.is_sound)
			ret = begin_recovery(cat, table, s);
	}
	if (ret == 0 && place->recovering)
		ret = recover_slice(cat, table, s);
	if (ret)
		return ret;
	place->incarnation = place->node->incarnation;
	return catalog_table_put_shard(cat->store, table, s);
}

static int attach(struct catalog *cat, struct catalog_table *table, uint32_t s)
{
	struct catalog_shard *place = &table->shards[s];
	int ret = place->recovering ? 0 : catalog_table_attach(table, s);

	if (ret == 0 && place->incarnation != place->node->incarnation)
		ret = renew_life(cat, table, s);
	if (ret == 0)
		ret = slots_read(&table->slots, s, cat->ops->on_holder, cat->ctx);
	if (ret == 0)
		ret = part_rebuild_needed(table->attached[s], &place->drift);
	return ret;
}

/* Region of the shard whose file is damaged; 0 = none. */
static uint32_t find_cut(const struct catalog_shard *place, const struct part *part)
{
	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++) {
		const struct region *region = part ? part->regions.at[role] : NULL;

		/* relaxed: set by the thread that meets the failure, i.e. this one */
		if (node_is_broken(place->node, place->ids[role]) ||
		    (region && atomic_load_explicit(&region->broken, memory_order_relaxed)))
			return place->ids[role];
	}
	return 0;
}

/*
 * True if a file of the shard's regions was truncated or cannot be read, as reported by the node or
 * met by this server. The shard is not used until its node registers again.
 */
static bool is_broken(struct catalog_table *table, uint32_t s)
{
	struct catalog_shard *place = &table->shards[s];
	const struct part *part = place->recovering ? place->recovering : table->attached[s];
	uint32_t cut = place->broken ? 0 : find_cut(place, part);

	if (cut) {
		place->broken = true;
		log_error("table %s shard %u is down: the file of its region %u on node %s was "
			  "cut short, or cannot be read",
			  table->desc.name, s, cut, place->node->name);
		catalog_table_detach(table, s);
	}
	return place->broken;
}

/* A client that left while the shard was away may have left a call half done. */
static int join(struct catalog_table *table, uint32_t s)
{
	int ret = slots_join(&table->slots, s);

	if (ret == 0)
		ret = part_rebuild_needed(table->attached[s], &table->shards[s].drift);
	table->shards[s].joined = ret == 0;
	return ret;
}

/* Damage is permanent: clients that open the table get the error. */
static void refuse(struct catalog_table *table, uint32_t s, int code)
{
	table->shards[s].refused = true;
	table->refusal = error_prefix(code, "table %s shard %u: ", table->desc.name, s);
	snprintf(table->refusal_text, sizeof(table->refusal_text), "%s", error_last());
}

static void take_up(struct catalog *cat, struct catalog_table *table, uint32_t s)
{
	struct catalog_shard *place = &table->shards[s];
	int ret = table->attached[s] ? 0 : attach(cat, table, s);

	if (ret == 0 && !place->joined)
		ret = join(table, s);
	/* Retry later: an orphan slot is unsettled, or the node was unreachable */
	if (ret == 0 || ret == -EAGAIN)
		return;
	log_error("attach table %s shard %u: %s", table->desc.name, s, error_last());
	if (ret == -EBADMSG || ret == -EPROTO)
		refuse(table, s, ret);
	catalog_table_detach(table, s);
}

static void leave_shard(struct catalog *cat, const struct catalog_arrival *arrival,
			struct catalog_table *table, uint32_t s)
{
	(void)cat;
	(void)arrival;
	catalog_table_detach(table, s);
}

void catalog_attach_tick(struct catalog *cat, struct catalog_table *table)
{
	for (uint32_t s = 0; s < table->n_shards; s++) {
		const struct catalog_shard *place = &table->shards[s];
		struct catalog_arrival again = { .node = place->node };

		if (table->lost[s] || !place->node->up)
			continue;
		if (place->node->tr && place->node->tr->broken) {
			log_warn("node %s: our connection to its memory broke", place->node->name);
			each_shard_of(cat, &again, leave_shard);
			leave_memory(cat, place->node);
		}
		if (!is_broken(table, s) && !place->joined && !place->refused)
			take_up(cat, table, s);
	}
}

/* -------- a node comes -------- */

static void node_up_shard(struct catalog *cat, const struct catalog_arrival *arrival,
			  struct catalog_table *table, uint32_t s)
{
	struct catalog_shard *place = &table->shards[s];
	const struct node *node = arrival->node;

	place->refused = false;
	if (!catalog_regions_of_shard(arrival, table, s) ||
	    (place->incarnation != node->incarnation && !node->persistent)) {
		lose(cat, arrival, table, s);
		return;
	}
	place->broken = false;
	if (!is_broken(table, s))
		take_up(cat, table, s);
}

/* Detaches the shards, which are attached to the node's earlier incarnation. */
static void leave_life(struct catalog *cat, const struct catalog_arrival *arrival,
		       struct catalog_table *table, uint32_t s)
{
	if (arrival->node->persistent)
		catalog_table_detach(table, s);
	else
		lose(cat, arrival, table, s);
}

/* Last state word of a freed region: ORPHANED if its table exists, else DROPPED. */
static uint32_t last_state_of(const struct catalog *cat, const Relive__NodeRegion *region)
{
	bool table_is_there = region->object <= TABLE_MAX_ID && cat->tables[region->object];

	return table_is_there ? REGION_ORPHANED : REGION_DROPPED;
}

static bool is_given_up(const struct catalog *cat, const struct catalog_arrival *arrival, size_t i)
{
	enum region_owner owner;

	if (catalog_region_owner(cat, arrival, i, &owner) == 0)
		return owner == OWNER_NONE;
	log_warn("region %u of node %s: %s", arrival->regions[i]->region, arrival->news->name,
		 error_last());
	return false;
}

static void free_regions(struct catalog *cat, const struct catalog_arrival *arrival)
{
	struct node *node = arrival->node;

	for (size_t i = 0; node->up && i < arrival->n_regions; i++) {
		const Relive__NodeRegion *region = arrival->regions[i];

		if (!is_given_up(cat, arrival, i))
			continue;
		log_info("free region %u of node %s: given up", region->region, node->name);
		catalog_retire_region(cat, node, region->region, last_state_of(cat, region));
	}
}

void catalog_node_up(struct catalog *cat, const struct catalog_arrival *arrival)
{
	struct node *node = arrival->node;

	cat->slice_until = 0;
	memset(node->broken, 0, sizeof(node->broken));
	for (size_t i = 0; i < arrival->n_regions; i++)
		if (arrival->regions[i]->broken)
			node_note_broken(node, arrival->regions[i]->region);
	if (arrival->replaced && node->tr) {
		each_shard_of(cat, arrival, leave_life);
		leave_memory(cat, node);
	}
	each_shard_of(cat, arrival, node_up_shard);
	free_regions(cat, arrival);
	for (uint32_t id = 1; id <= TABLE_MAX_ID; id++) {
		struct catalog_table *table = cat->tables[id];

		if (table && (table->auto_shards || table->spread_due))
			catalog_spread_soon(table);
	}
}

/* -------- a node goes -------- */

/* Only a single opener may open a file pool; connections of other transports have ended. Mapped
   memory stays: clients read the state word there. */
void catalog_node_down(struct catalog *cat, struct node *node)
{
	const struct catalog_arrival gone = { .node = node };

	if (!node->persistent && node_is_mapped(node))
		return;
	each_shard_of(cat, &gone, leave_shard);
	leave_memory(cat, node);
}

/* -------- a node is forgotten -------- */

static void leave_nowhere(struct catalog *cat, const struct catalog_arrival *arrival,
			  struct catalog_table *table, uint32_t s)
{
	(void)cat;
	(void)arrival;
	catalog_table_detach(table, s);
	table->shards[s].node = NULL;
	table->shards[s].drain = (struct shard_drain){ .phase = DRAIN_FILLING };
}

int catalog_node_forget(struct catalog *cat, const struct node *node)
{
	const struct catalog_arrival gone = { .node = (struct node *)node };
	uint32_t n = 0;

	for (uint32_t id = 1; id <= TABLE_MAX_ID; id++)
		for (uint32_t s = 0; cat->tables[id] && s < cat->tables[id]->n_shards; s++)
			n += cat->tables[id]->shards[s].node == node && !cat->tables[id]->lost[s];
	if (n)
		return error_set(-EBUSY,
				 "memory node %s is down and holds %u shards, which come back with "
				 "it: start it again, then drain it (relive node drain)",
				 node->name, n);
	if (catalog_provision_uses(cat, node))
		return error_set(-EBUSY,
				 "memory node %s: a table is being made there: ask again "
				 "in a second",
				 node->name);
	(void)catalog_retire_tick(cat); /* a down node's pending retirements are dropped */
	each_of(cat, &gone, leave_nowhere);
	return 0;
}
