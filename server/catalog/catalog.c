#include "server/catalog/catalog.h"

#include <errno.h>
#include <string.h>

#include "wire/region.h"

#include "base/bits.h"
#include "base/log.h"

#define TICK_NS (100 * (uint64_t)CLOCK_NS_PER_MS)
#define IDLE_NS ((uint64_t)CLOCK_NS_PER_S)
#define READING_NS ((uint64_t)CLOCK_NS_PER_S) /* interval between two readings of limiter words */
#define GRACE_NS (3 * (uint64_t)CLOCK_NS_PER_S)
#define WEIGHT_FIRST 100u /* of RELIVE__SHARD_WEIGHT__SHARD_WEIGHT_FULL */

/* -------- find -------- */

struct catalog_table *catalog_find(const struct catalog *cat, const char *name)
{
	for (uint32_t id = 1; id <= TABLE_MAX_ID; id++)
		if (cat->tables[id] && strcmp(cat->tables[id]->desc.name, name) == 0)
			return cat->tables[id];
	return NULL;
}

struct catalog_table *catalog_find_same(const struct catalog *cat, uint32_t id, const uint8_t *uuid,
					size_t uuid_len)
{
	struct catalog_table *table = id <= TABLE_MAX_ID ? cat->tables[id] : NULL;

	if (table && uuid_len == sizeof(table->desc.uuid) &&
	    memcmp(table->desc.uuid, uuid, uuid_len) == 0)
		return table;
	return NULL;
}

uint32_t catalog_count(const struct catalog *cat)
{
	uint32_t n = 0;

	for (uint32_t id = 1; id <= TABLE_MAX_ID; id++)
		n += cat->tables[id] != NULL;
	return n;
}

/* -------- load -------- */

struct doomed {
	struct catalog *cat;
	bool ids[TABLE_MAX_ID + 1];
};

static int load_table(void *ctx, const struct statedb_table *stored)
{
	struct doomed *doomed = ctx;
	struct catalog *cat = doomed->cat;
	uint32_t id = stored->desc.table_id;
	struct catalog_table *table;
	int ret = table_desc_check(&stored->desc);

	if (ret == 0 && (id == 0 || id > TABLE_MAX_ID || stored->control >= TABLE_MAX_SHARDS))
		ret = error_set(-EBADMSG, "table id %u, control shard %u", id, stored->control);
	if (ret)
		return error_prefix(ret, "state database: ");
	if (stored->state != STORE_TABLE_LIVE) {
		doomed->ids[id] = true;
		return 0;
	}
	table = catalog_table_new(&stored->desc);
	cat->tables[id] = table;
	if (!table)
		return -ENOMEM;
	table->control = stored->control;
	table->auto_shards = stored->auto_shards;
	table->n_shards = table->slots.n_parts = stored->desc.n_shards;
	return 0;
}

static bool is_stored_state(uint32_t state)
{
	return catalog_state_is_usable(state) || state == RELIVE__SHARD_STATE__SHARD_LOST ||
	       state == RELIVE__SHARD_STATE__SHARD_GONE;
}

static int load_shard(void *ctx, const struct statedb_shard *stored)
{
	struct doomed *doomed = ctx;
	struct catalog *cat = doomed->cat;
	struct catalog_table *table =
		stored->table_id <= TABLE_MAX_ID ? cat->tables[stored->table_id] : NULL;
	struct catalog_shard *shard;

	if (!table)
		return 0;
	if (stored->shard >= TABLE_MAX_SHARDS || !is_stored_state(stored->state))
		return error_set(-EBADMSG, "state database: shard %u of table %s", stored->shard,
				 table->desc.name);
	if (stored->shard >= table->n_shards)
		table->n_shards = table->slots.n_parts = stored->shard + 1;
	shard = &table->shards[stored->shard];
	shard->node = nodes_find(cat->nodes, stored->node);
	shard->incarnation = stored->incarnation;
	memcpy(shard->ids, stored->regions, sizeof(shard->ids));
	shard->state = stored->state;
	return 0;
}

/* Clients are assumed to know the layout that the store has. */
static void finish_table(struct catalog *cat, struct catalog_table *table)
{
	for (uint32_t s = 0; s < table->n_shards; s++) {
		struct catalog_shard *shard = &table->shards[s];

		if (shard->state != RELIVE__SHARD_STATE__SHARD_GONE && !shard->node)
			shard->state = RELIVE__SHARD_STATE__SHARD_LOST;
		if (shard->state == RELIVE__SHARD_STATE__SHARD_LOST ||
		    shard->state == RELIVE__SHARD_STATE__SHARD_GONE)
			table->lost[s] = true;
		shard->announced = shard->state;
	}
	table->layout = cat->layout;
	if (table->auto_shards)
		catalog_spread_soon(table);
}

int catalog_load(struct catalog *cat)
{
	struct doomed doomed = { .cat = cat };
	uint64_t last = 0;
	int ret = statedb_each_table(cat->store, load_table, &doomed);

	statedb_ids(cat->store, &cat->ids);
	if (ret == 0)
		ret = statedb_each_shard(cat->store, load_shard, &doomed);
	if (ret == 0)
		ret = statedb_number(cat->store, "last_table", &last);
	if (ret == 0)
		ret = statedb_number(cat->store, "layout", &cat->layout);
	cat->last_id = (uint32_t)last;
	cat->grace_until = clock_now_ns(cat->clock) + GRACE_NS;
	/* Forget half-created tables; their regions are freed when the nodes register. */
	for (uint32_t id = 1; ret == 0 && id <= TABLE_MAX_ID; id++)
		if (doomed.ids[id])
			ret = statedb_table_delete(cat->store,
						   id); /* keeps its provisioning records */
	for (uint32_t id = 1; ret == 0 && id <= TABLE_MAX_ID; id++)
		if (cat->tables[id])
			finish_table(cat, cat->tables[id]);
	return ret;
}

void catalog_fini(struct catalog *cat)
{
	catalog_provision_forget_all(cat);
	catalog_retire_forget(cat);
	for (uint32_t id = 1; id <= TABLE_MAX_ID; id++) {
		catalog_table_free(cat->tables[id]);
		cat->tables[id] = NULL;
	}
}

/* -------- drop -------- */

int catalog_drop(struct catalog *cat, const char *name)
{
	struct catalog_table *table = catalog_find(cat, name);
	struct catalog_provisioning *provisioning;
	int ret;

	if (!table)
		return error_set(-ENOENT, "no table %.64s in this store", name);
	provisioning = catalog_provision_of(cat, table);
	if (table->kind->drop)
		table->kind->drop(cat, table);
	ret = catalog_give_up_table(cat, table);
	if (ret)
		return ret;
	if (provisioning) {
		catalog_retire_shard(cat, table, provisioning->first, REGION_DROPPED);
		catalog_provision_abandon(provisioning);
	}
	catalog_retire_table(cat, table);
	cat->tables[table->desc.table_id] = NULL;
	log_info("drop table %s id %u", table->desc.name, table->desc.table_id);
	catalog_table_free(table);
	return 0;
}

/* -------- layouts for clients -------- */

/* A version lost in a restart would hide later changes from clients that know a newer one. */
void catalog_changed(struct catalog *cat, struct catalog_table *table)
{
	table->layout = ++cat->layout;
	if (statedb_number_put(cat->store, "layout", cat->layout))
		log_error("table %s: layout: %s", table->desc.name, error_last());
}

void catalog_refresh(struct catalog *cat, struct catalog_table *table)
{
	bool changed = false;

	for (uint32_t s = 0; s < table->n_shards; s++) {
		struct catalog_shard *shard = &table->shards[s];
		uint32_t view = catalog_shard_view(table, s);

		changed |= shard->announced != view;
		shard->announced = view;
	}
	if (changed)
		catalog_changed(cat, table);
}

static bool is_in_grace(const struct catalog *cat)
{
	return clock_now_ns(cat->clock) < cat->grace_until;
}

uint64_t catalog_newest_layout(const struct catalog *cat)
{
	return is_in_grace(cat) ? 0 : cat->layout;
}

bool catalog_is_known(const struct catalog *cat, uint64_t layout, uint64_t since)
{
	return cat->ops->all_know(cat->ctx, layout) ||
	       clock_now_ns(cat->clock) >= since + cat->patience_ns;
}

uint32_t catalog_weight(const struct catalog *cat, const struct catalog_shard *shard,
			uint64_t *ramp_ns_out)
{
	const uint32_t full = RELIVE__SHARD_WEIGHT__SHARD_WEIGHT_FULL;
	uint64_t ramp = cat->ramp_ns ? cat->ramp_ns : CATALOG_RAMP_NS;
	uint64_t age = clock_now_ns(cat->clock) - shard->since;

	if (shard->since == 0 || age >= ramp) {
		*ramp_ns_out = 0;
		return full;
	}
	*ramp_ns_out = ramp - age;
	return WEIGHT_FIRST +
	       (uint32_t)((double)(full - WEIGHT_FIRST) * (double)age / (double)ramp);
}

int catalog_grant(struct catalog_table *table, uint32_t s, const struct catalog_guest *guest,
		  struct catalog_grants *out)
{
	const struct catalog_shard *place = &table->shards[s];
	struct node_wish wish = { .asker = guest->asker, .client_id = guest->client_id };
	int first = 0;

	for (uint32_t at = REGION_TREE; at < PART_PLACES; at++) {
		uint32_t role = part_grant_of((enum part_access)guest->access, guest->owner, at,
					      &wish.range, &wish.rights);
		int ret = 0;

		out->places[at] = (struct region_grant){ .bytes = 0 };
		wish.range.region = place->ids[role];
		if (role)
			ret = node_grant(place->node, &wish, &out->places[at]);
		if (ret && (first == 0 || first == -EAGAIN))
			first = ret;
	}
	return first;
}

/* -------- upkeep -------- */

/* True if there is more to do soon. */
static bool keep_up(struct catalog *cat, struct catalog_table *table)
{
	bool busy;

	catalog_attach_tick(cat, table);
	if (is_in_grace(cat))
		return true;
	if (table->kind->tick)
		table->kind->tick(cat, table);
	busy = catalog_spread_tick(cat, table);
	catalog_drain_tick(cat, table);
	catalog_refresh(cat, table);
	for (uint32_t s = 0; s < table->n_shards; s++)
		busy |= table->shards[s].drain.phase != DRAIN_FILLING ||
			table->shards[s].state == RELIVE__SHARD_STATE__SHARD_DRAINING;
	return busy;
}

uint64_t catalog_tick(struct catalog *cat)
{
	uint64_t now = clock_now_ns(cat->clock);
	bool reading = now >= cat->next_reading, busy = false, recovers = false;

	if (now < cat->next_tick)
		return cat->next_tick;
	cat->slice_until = 0;
	for (uint32_t id = 1; id <= TABLE_MAX_ID; id++) {
		if (!cat->tables[id])
			continue;
		if (reading && cat->tables[id]->kind->look)
			cat->tables[id]->kind->look(cat->tables[id]);
		busy |= keep_up(cat, cat->tables[id]);
		recovers |= catalog_table_is_recovering(cat->tables[id]);
	}
	if (reading)
		cat->next_reading = now + READING_NS;
	busy |= catalog_retire_tick(cat);
	cat->next_tick = now + (busy ? TICK_NS : IDLE_NS);
	if (recovers)
		cat->next_tick = now;
	return cat->next_tick;
}
