/*
 * spread.c - carries out the decisions of placement.h: adds shards on nodes that have too few,
 * drains shards of nodes that have too many or are draining.
 */
#include "server/catalog/catalog.h"

#include <errno.h>

#include "base/bits.h"
#include "base/log.h"

/* A node that could not take a shard may be able to soon. */
#define AGAIN_FIRST_NS ((uint64_t)CLOCK_NS_PER_S)
#define AGAIN_LAST_NS (64 * (uint64_t)CLOCK_NS_PER_S)

static uint32_t active_shards(const struct catalog_table *table, const struct node *node)
{
	uint32_t n = 0;

	for (uint32_t s = 0; table && s < table->n_shards; s++)
		n += table->shards[s].node == node &&
		     table->shards[s].state == RELIVE__SHARD_STATE__SHARD_ACTIVE;
	return n;
}

uint32_t catalog_places(const struct catalog *cat, const struct catalog_table *table,
			struct placement_node places[NODES_MAX], struct node *nodes[NODES_MAX])
{
	uint32_t n = 0;

	for (struct node *node = cat->nodes->first; node; node = node->next) {
		uint64_t used = min_u64(node->used_bytes, node->pool_bytes);

		nodes[n] = node;
		places[n++] = (struct placement_node){
			.shards = active_shards(table, node),
			.free = node->pool_bytes - used,
			.takes = node->up && !node->draining,
			.leaves = node->draining,
		};
	}
	return n;
}

/* Target number of shards: the number that the capacity was cut into, or one per node if
   requested. */
static uint32_t wanted_shards(const struct catalog_table *table,
			      const struct placement_node *places, uint32_t n)
{
	uint32_t takers = 0;

	for (uint32_t i = 0; i < n; i++)
		takers += places[i].takes;
	return table->auto_shards && takers > table->desc.n_shards ? takers : table->desc.n_shards;
}

/* The shard with the highest number: it was added last. */
static uint32_t shard_at(const struct catalog_table *table, const struct node *node)
{
	uint32_t s = table->n_shards;

	while (s-- > 0)
		if (table->shards[s].node == node &&
		    table->shards[s].state == RELIVE__SHARD_STATE__SHARD_ACTIVE)
			break;
	return s;
}

static uint32_t all_active(const struct catalog_table *table)
{
	uint32_t n = 0;

	for (uint32_t s = 0; s < table->n_shards; s++)
		n += table->shards[s].state == RELIVE__SHARD_STATE__SHARD_ACTIVE;
	return n;
}

static int drain_one(struct catalog *cat, struct catalog_table *table, const struct node *node)
{
	uint32_t s = shard_at(table, node);

	return s < table->n_shards ? catalog_drain(cat, table, s) : 0; /* it may be lost by now */
}

/* A leaving shard goes without a successor if no node has room, unless it is the last shard. */
static bool may_leave(const struct catalog_table *table, const struct node *leaves, int added)
{
	bool no_room = added == -ENOSPC || added == -ENOMEM;

	return leaves && (added == 0 || (no_room && leaves->draining && all_active(table) > 1));
}

int catalog_spread_step(struct catalog *cat, struct catalog_table *table,
			enum placement_kind *kind_out)
{
	struct placement_node places[NODES_MAX];
	struct node *nodes[NODES_MAX], *to, *leaves = NULL;
	const struct catalog_provisioning *provisioning = catalog_provision_of(cat, table);
	uint32_t n = catalog_places(cat, table, places, nodes);
	struct placement_step step;
	int ret;

	if (provisioning) {
		to = provisioning->only;
		leaves = provisioning->leaves;
	} else {
		step = placement_next(places, n, wanted_shards(table, places, n));
		if (step.kind == PLACEMENT_DONE)
			return 0;
		if (step.kind == PLACEMENT_STUCK)
			return error_set(-EHOSTDOWN, "no memory node is up for what is to leave");
		to = nodes[step.to];
		if (step.kind == PLACEMENT_MOVE)
			leaves = nodes[step.from];
	}
	ret = catalog_add_shard(cat, table, to, leaves);
	if (ret == -EAGAIN)
		return ret;
	if (ret)
		log_warn("spread table %s: %s", table->desc.name, error_last());
	if (may_leave(table, leaves, ret))
		ret = drain_one(cat, table, leaves);
	if (kind_out)
		*kind_out = leaves ? PLACEMENT_MOVE : PLACEMENT_ADD;
	return ret ? ret : 1;
}

void catalog_spread_soon(struct catalog_table *table)
{
	table->spread_due = true;
	table->spread_after = 0;
	table->spread_pause = AGAIN_FIRST_NS;
}

bool catalog_spread_tick(struct catalog *cat, struct catalog_table *table)
{
	uint64_t now = clock_now_ns(cat->clock);
	int ret;

	if (!table->spread_due || now < table->spread_after)
		return false;
	ret = catalog_spread_step(cat, table, NULL);
	table->spread_due = ret != 0;
	if (ret >= 0 || ret == -EAGAIN) {
		table->spread_pause = AGAIN_FIRST_NS;
		return ret != 0;
	}
	table->spread_after = now + table->spread_pause;
	table->spread_pause = min_u64(2 * table->spread_pause, AGAIN_LAST_NS);
	return false;
}
