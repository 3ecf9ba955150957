#include "server/catalog/making.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "wire/region.h"

#include "base/mem/alloc.h"
#include "base/log.h"

#include "server/catalog/catalog.h"

/* -------- the list -------- */

int catalog_making_begin(struct catalog *cat, const struct catalog_making *like,
			 struct catalog_making **making_out)
{
	struct catalog_making *making = mem_zalloc(sizeof(*making));

	if (!making)
		return error_set(-ENOMEM, "table %s: no memory", like->table->desc.name);
	*making = *like;
	making->cat = cat;
	making->at = making->first;
	making->next = cat->makings;
	cat->makings = making;
	for (uint32_t s = making->first; s < making->first + making->n; s++)
		making->table->shards[s] = (struct catalog_shard){ .state = 0 };
	*making_out = making;
	return 0;
}

struct catalog_making *catalog_making_of(const struct catalog *cat,
					 const struct catalog_table *table)
{
	struct catalog_making *making = cat->makings;

	while (making && making->table != table)
		making = making->next;
	return making;
}

struct catalog_making *catalog_making_named(const struct catalog *cat, const char *name)
{
	struct catalog_making *making = cat->makings;

	while (making &&
	       !(making->table && making->is_new && strcmp(making->table->desc.name, name) == 0))
		making = making->next;
	return making;
}

void catalog_making_end(struct catalog_making *making)
{
	struct catalog_making **link = &making->cat->makings;

	while (*link != making)
		link = &(*link)->next;
	*link = making->next;
	mem_free(making);
}

void catalog_making_abandon(struct catalog_making *making)
{
	making->table = NULL;
	if (!making->waiting)
		catalog_making_end(making);
}

void catalog_making_forget_all(struct catalog *cat)
{
	while (cat->makings) {
		struct catalog_making *making = cat->makings;

		if (making->table && making->is_new)
			catalog_table_free(making->table);
		catalog_making_end(making);
	}
}

/* -------- one region -------- */

static struct catalog_shard *place_of(const struct catalog_making *making)
{
	return &making->table->shards[making->at];
}

static bool is_there(const struct catalog_shard *place)
{
	return place->node && place->node->up && place->incarnation == place->node->incarnation;
}

/* The first region that it lacks; REGION_ROLES = none. */
static uint32_t missing_role(const struct catalog_shard *place)
{
	uint32_t role = REGION_TREE;

	while (role < REGION_ROLES && place->ids[role])
		role++;
	return role;
}

/* What the node has of the shard is of no use alone. */
static void leave_node(struct catalog_making *making)
{
	struct catalog *cat = making->cat;
	struct catalog_shard *place = place_of(making);

	catalog_table_detach(making->table, making->at);
	if (!making->is_new)
		making->table->slots.n_shards = making->table->n_shards;
	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++)
		if (place->ids[role] && is_there(place))
			catalog_free_region(cat, place->node, place->ids[role]);
	*place = (struct catalog_shard){ .state = 0 };
}

/* Whatever ails a node is no reason not to ask another one. The words stand in error_last(). */
static void cannot(struct catalog_making *making, const struct node *node, int code)
{
	making->code = code;
	snprintf(making->words, sizeof(making->words), "%s", error_last());
	log_warn("table %s shard %u is not made at node %s: %s", making->table->desc.name,
		 making->at, node->name, making->words);
	making->tried |= UINT64_C(1) << node->number;
	leave_node(making);
}

static void on_region(void *ctx, uint64_t tag, struct node *node, int code,
		      const ProtobufCMessage *reply)
{
	struct catalog_making *making = ctx;
	struct catalog *cat = making->cat;
	uint32_t id = 0;
	int ret = node_region_of(node, code, reply, &id);

	(void)tag;
	making->waiting = false;
	/* What it makes after all it frees, or we do, when it has registered again. */
	if (ret == -ETIMEDOUT)
		node_disconnect(node);
	if (!making->table) {
		if (ret == 0)
			catalog_free_region(cat, node, id);
		catalog_making_end(making);
		return;
	}
	if (ret)
		cannot(making, node, ret);
	else
		place_of(making)->ids[missing_role(place_of(making))] = id;
	cat->ops->on_progress(cat->ctx);
}

/* -------- all of them -------- */

static struct node *choose(const struct catalog_making *making)
{
	struct placement_node places[NODES_MAX];
	struct node *nodes[NODES_MAX];
	struct catalog *cat = making->cat;
	uint32_t n = catalog_places(cat, NULL, places, nodes), at;

	for (uint32_t i = 0; i < n; i++) {
		bool tried = (making->tried >> nodes[i]->number) & 1;

		if (making->only)
			places[i].takes = nodes[i] == making->only && nodes[i]->up;
		places[i].takes = places[i].takes && !tried;
	}
	at = placement_pick(places, n, &cat->turn);
	return at < n ? nodes[at] : NULL;
}

/* Before the node is asked: a restart knows what it may find there. */
static int put_making(const struct catalog_making *making, const struct node *node)
{
	const struct table_desc *desc = &making->table->desc;
	struct store_making stored = { .table_id = desc->table_id, .shard = making->at };

	memcpy(stored.node, node->name, sizeof(stored.node));
	memcpy(stored.uuid, desc->uuid, sizeof(stored.uuid));
	return store_making_put(making->cat->store, &stored);
}

static int choose_node(struct catalog_making *making)
{
	int ret;

	struct catalog_shard *place = place_of(making);
	struct node *node = choose(making);

	if (!node && making->code)
		return error_set(making->code, "%s", making->words);
	if (!node)
		return error_set(-EHOSTDOWN, "no memory node is up");
	ret = put_making(making, node);
	if (ret)
		return ret;
	place->node = node;
	place->incarnation = node->incarnation;
	return 0;
}

static int ask(struct catalog_making *making)
{
	struct catalog_shard *place = place_of(making);
	const struct table_desc *desc = &making->table->desc;
	const struct target_region spec = shard_region_spec(desc, making->at, missing_role(place));
	int ret = node_post_region_new(place->node, &spec, on_region, making);

	making->waiting = ret == 0;
	if (ret)
		cannot(making, place->node, ret);
	return ret;
}

static int ask_for_shard(struct catalog_making *making)
{
	int ret = 0;

	while (ret == 0 && !making->waiting) {
		ret = place_of(making)->node ? 0 : choose_node(making);
		if (ret == 0)
			(void)!ask(making); /* on to the next node, if it could not be */
	}
	return ret;
}

/* The first shard that is not made yet, or whose node went since. */
static void find_missing(struct catalog_making *making)
{
	uint32_t s = making->first;

	while (s < making->first + making->n) {
		const struct catalog_shard *place = &making->table->shards[s];

		if (!place->joined || !is_there(place))
			break;
		s++;
	}
	if (s != making->at) {
		making->at = s;
		making->tried = 0;
		making->code = 0;
	}
}

static int at_work(const struct catalog_making *making)
{
	return error_set(-EAGAIN, "table %s: its memory is being made", making->table->desc.name);
}

/* One shard: 0 when it is made. -EAGAIN: a node works on it. */
static int make_one(struct catalog_making *making)
{
	struct catalog_shard *place = place_of(making);
	int ret;

	if (place->node && !is_there(place))
		leave_node(making);
	while (place->node && missing_role(place) == REGION_ROLES) {
		ret = catalog_make_shard(making->cat, making->table, making->at);
		if (ret == 0 || ret == -EAGAIN)
			return ret;
		cannot(making, place->node, ret);
	}
	ret = ask_for_shard(making);
	return ret ? ret : -EAGAIN;
}

int catalog_making_run(struct catalog_making *making)
{
	int ret = 0;

	if (making->waiting)
		return at_work(making);
	find_missing(making);
	while (ret == 0 && making->at < making->first + making->n) {
		ret = make_one(making);
		if (ret == 0)
			find_missing(making);
	}
	return ret == -EAGAIN ? at_work(making) : ret;
}

void catalog_making_detach(const struct catalog *cat, const struct node *node)
{
	for (const struct catalog_making *making = cat->makings; making; making = making->next)
		for (uint32_t s = making->first; making->table && s < making->first + making->n;
		     s++)
			if (making->table->shards[s].node == node)
				catalog_table_detach(making->table, s);
}

static bool has_region(const struct catalog_shard *place, uint32_t region)
{
	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++)
		if (place->ids[role] == region)
			return true;
	return false;
}

static bool owns(const struct catalog_making *making, const struct node *node, uint32_t region)
{
	for (uint32_t s = making->first; s < making->first + making->n; s++) {
		const struct catalog_shard *place = &making->table->shards[s];

		if (place->node == node && place->incarnation == node->incarnation &&
		    has_region(place, region))
			return true;
	}
	return false;
}

bool catalog_making_owns(const struct catalog *cat, const struct node *node, uint32_t region)
{
	for (const struct catalog_making *making = cat->makings; making; making = making->next)
		if (making->table && owns(making, node, region))
			return true;
	return false;
}

static bool uses(const struct catalog_making *making, const struct node *node)
{
	if (making->only == node || making->leaves == node)
		return true;
	for (uint32_t s = making->first; making->table && s < making->first + making->n; s++)
		if (making->table->shards[s].node == node)
			return true;
	return false;
}

bool catalog_making_uses(const struct catalog *cat, const struct node *node)
{
	for (const struct catalog_making *making = cat->makings; making; making = making->next)
		if (uses(making, node))
			return true;
	return false;
}
