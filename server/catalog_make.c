#include "server/catalog.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "wire/region.h"

#include "base/log.h"

/*
 * Laps of the ring set aside for one life of a table, so that of two lives no key is the same also when
 * the end of the first was not seen; catalog_drop() sets aside what was really used.
 */
#define LAPS_OF_LIFE ((uint64_t)1 << 16)

/* -------- one shard -------- */

static int new_region(struct node *node, const struct table_desc *desc, uint32_t kind,
		      uint32_t *id_out)
{
	struct target_region spec = {
		.kind = kind,
		.table_id = desc->table_id,
		.shard = desc->shard,
		.size = kind == REGION_TREE ? desc->tree_bytes : desc->rows_bytes,
	};
	int ret = node_region_new(node, &spec);

	if (ret == 0)
		*id_out = spec.id;
	return ret;
}

static int new_regions(struct node *node, const struct table_desc *desc,
		       struct catalog_shard *place)
{
	int ret;

	place->node = node;
	place->incarnation = node->incarnation;
	ret = new_region(node, desc, REGION_TREE, &place->tree_id);
	if (ret == 0)
		ret = new_region(node, desc, REGION_ROWS, &place->rows_id);
	if (ret) {
		catalog_retire_region(node, place->tree_id, REGION_DROPPED);
		place->tree_id = 0;
	}
	return ret;
}

/* On the node that placement names; on another where that has no room. */
static int place_shard(struct catalog *cat, const struct table_desc *desc,
		       struct catalog_shard *place)
{
	struct placement_node places[NODES_MAX];
	struct node *nodes[NODES_MAX];
	uint32_t n = catalog_places(cat, NULL, places, nodes);
	int ret = error_set(-EHOSTDOWN, "no memory node is up");

	for (;;) {
		uint32_t at = placement_pick(places, n, &cat->turn);

		if (at == n)
			break;
		ret = new_regions(nodes[at], desc, place);
		if (ret != -ENOSPC && ret != -ENOMEM && ret != -EHOSTDOWN)
			break;
		places[at].takes = false;
	}
	return ret;
}

static int format_shard(struct catalog *cat, struct catalog_table *table, uint32_t s,
			const struct table_desc *desc)
{
	struct catalog_shard *place = &table->shards[s];
	struct shard_ids ids = {
		.ms_term = cat->ids.term,
		.incarnation = place->incarnation,
	};
	uint64_t lap = 0;
	struct region *tree, *rows;
	int ret;

	memcpy(ids.store_uuid, cat->ids.uuid, sizeof(ids.store_uuid));
	ret = store_lap(cat->store, desc->table_id, s, &lap);
	if (ret)
		return ret;
	/* Set aside by reserve_lap(). Only the generation counts, which repeats after so many. */
	ids.first_ticket = (lap - LAPS_OF_LIFE) % LEAF_GEN_MASK * desc->blocks;
	ret = catalog_attach_pair(place->node, place, &tree, &rows);
	if (ret)
		return ret;
	ret = shard_format(tree, rows, desc, &ids);
	if (ret == 0)
		ret = shard_open(tree, rows, &table->attached[s]);
	if (ret) {
		transport_detach(&rows);
		transport_detach(&tree);
	}
	return ret;
}

/* Steps 2 and 3 for one shard; node NULL = where placement says. On failure nothing is left. */
static int make_shard(struct catalog *cat, struct catalog_table *table, uint32_t s,
		      struct node *node)
{
	struct catalog_shard *place = &table->shards[s];
	struct table_desc desc = table->desc;
	int ret;

	table_desc_seal(&desc, s);
	*place = (struct catalog_shard){ .state = RELIVE__SHARD_STATE__SHARD_ACTIVE };
	ret = node ? new_regions(node, &desc, place) : place_shard(cat, &desc, place);
	if (ret == 0)
		ret = format_shard(cat, table, s, &desc);
	if (ret == 0)
		ret = slots_join(&table->slots, s);
	place->joined = ret == 0;
	place->announced = place->joined ? place->state : 0;
	return ret ? error_prefix(ret, "table %s shard %u: ", desc.name, s) : 0;
}

/* -------- a table -------- */

static int free_id(struct catalog *cat, uint32_t *id_out)
{
	for (uint32_t i = 1; i <= TABLE_MAX_ID; i++) {
		uint32_t id = (cat->last_id + i - 1) % TABLE_MAX_ID + 1;

		if (!cat->tables[id]) {
			*id_out = id;
			return 0;
		}
	}
	return error_set(-ENOSPC, "store: %u tables are the most", TABLE_MAX_ID);
}

static int reserve_lap(struct store *store, uint32_t table_id, uint32_t shard)
{
	uint64_t first = 0;
	int ret = store_lap(store, table_id, shard, &first);

	return ret ? ret : store_lap_raise(store, table_id, shard, first + LAPS_OF_LIFE);
}

/* Step 1: from now on the id and its laps are used. */
static int reserve(struct catalog *cat, const struct catalog_table *table)
{
	const struct store_table stored = { .state = STORE_TABLE_CREATING, .desc = table->desc };
	int ret = store_begin(cat->store);

	if (ret)
		return ret;
	ret = store_number_put(cat->store, "last_table", table->desc.table_id);
	for (uint32_t s = 0; ret == 0 && s < table->desc.n_shards; s++)
		ret = reserve_lap(cat->store, table->desc.table_id, s);
	if (ret == 0)
		ret = store_table_put(cat->store, &stored);
	if (ret) {
		store_rollback(cat->store);
		return ret;
	}
	return store_commit(cat->store);
}

/* Step 4. */
static int publish(struct catalog *cat, const struct catalog_table *table)
{
	int ret = store_begin(cat->store);

	if (ret)
		return ret;
	for (uint32_t s = 0; ret == 0 && s < table->n_shards; s++)
		ret = catalog_table_put_shard(cat->store, table, s);
	if (ret == 0)
		ret = catalog_table_put(cat->store, table);
	if (ret) {
		store_rollback(cat->store);
		return ret;
	}
	return store_commit(cat->store);
}

static int make_shards(struct catalog *cat, struct catalog_table *table)
{
	int ret = 0;

	for (uint32_t s = 0; ret == 0 && s < table->desc.n_shards; s++) {
		table->n_shards = s + 1;
		ret = make_shard(cat, table, s, NULL);
	}
	return ret;
}

/* The words of a failure outlive the clean-up. */
static int give_up(struct catalog *cat, struct catalog_table *table, int code)
{
	char words[ERROR_TEXT_BYTES];

	memcpy(words, error_last(), sizeof(words));
	catalog_table_retire(table);
	if (store_table_delete(cat->store, table->desc.table_id))
		log_warn("forget table %s: %s", table->desc.name, error_last());
	return error_set(code, "%s", words);
}

static int make_table(struct catalog *cat, const struct table_desc *planned, bool auto_shards,
		      struct catalog_table **table_out)
{
	struct table_desc desc = *planned;
	struct catalog_table *table;
	int ret = free_id(cat, &desc.table_id);

	if (ret)
		return ret;
	if (getrandom(desc.uuid, sizeof(desc.uuid), 0) != (ssize_t)sizeof(desc.uuid))
		return error_set(-EIO, "getrandom: %s", strerror(errno));
	table_desc_seal(&desc, 0);
	table = catalog_table_new(&desc);
	if (!table)
		return -ENOMEM;
	table->auto_shards = auto_shards;
	ret = reserve(cat, table);
	if (ret == 0) {
		ret = make_shards(cat, table);
		if (ret == 0)
			ret = publish(cat, table);
		if (ret)
			ret = give_up(cat, table, ret);
	}
	if (ret) {
		catalog_table_free(table);
		return ret;
	}
	cat->last_id = desc.table_id;
	cat->tables[desc.table_id] = table;
	catalog_changed(cat, table);
	log_info("create table %s id %u shards %u", desc.name, desc.table_id, desc.n_shards);
	*table_out = table;
	return 0;
}

/* The wish, planned for so many shards, and for clients that reach them over a wire or not. */
static int plan_for(const struct catalog_wish *wish, uint32_t n_shards, bool remote,
		    struct table_desc *out)
{
	struct table_plan_opts opts = wish->opts;
	struct table_desc desc = wish->desc;
	int ret = 0;

	desc.n_shards = n_shards;
	opts.remote = remote;
	if (n_shards != wish->desc.n_shards || remote)
		ret = table_plan(&desc, &opts);
	if (ret == 0)
		*out = desc;
	return ret;
}

/* As many shards as there are nodes, or fewer where the capacity is too small for that. */
static int plan_for_nodes(const struct catalog_wish *wish, uint32_t takers, bool remote,
			  struct table_desc *out)
{
	uint32_t n_shards = wish->auto_shards && takers > 1 ? takers : wish->desc.n_shards;

	while (n_shards > wish->desc.n_shards && plan_for(wish, n_shards, remote, out))
		n_shards--;
	return n_shards > wish->desc.n_shards ? 0 : plan_for(wish, n_shards, remote, out);
}

/* The descriptor of a new table. Wide nodes are for wires; where they do not fit they are not. */
static int plan_new(const struct catalog *cat, const struct catalog_wish *wish,
		    struct table_desc *out)
{
	struct placement_node places[NODES_MAX];
	struct node *nodes[NODES_MAX];
	uint32_t n = catalog_places(cat, NULL, places, nodes), takers = 0;
	bool remote = false;

	for (uint32_t i = 0; i < n; i++) {
		takers += places[i].takes;
		remote |= strncmp(nodes[i]->uri, "verbs:", strlen("verbs:")) == 0;
	}
	if (remote && !wish->opts.fanout && plan_for_nodes(wish, takers, true, out) == 0)
		return 0;
	return plan_for_nodes(wish, takers, false, out);
}

/* As it was planned, one way or the other. */
static bool is_same_wish(const struct catalog_table *table, const struct catalog_wish *wish)
{
	bool follows = wish->auto_shards && table->auto_shards;
	uint32_t n_shards = follows ? table->desc.n_shards : wish->desc.n_shards;

	for (int remote = 0; remote < 2; remote++) {
		struct table_desc desc;

		if (plan_for(wish, n_shards, remote, &desc) == 0 &&
		    table_desc_same(&table->desc, &desc))
			return true;
	}
	return false;
}

int catalog_create(struct catalog *cat, const struct catalog_wish *wish,
		   struct catalog_table **table_out)
{
	struct catalog_table *table;
	struct table_desc desc;
	int ret = table_desc_check(&wish->desc);

	if (ret)
		return ret;
	table = catalog_find(cat, wish->desc.name);
	if (!table) {
		ret = plan_new(cat, wish, &desc);
		return ret ? ret : make_table(cat, &desc, wish->auto_shards, table_out);
	}
	if (!is_same_wish(table, wish))
		return error_set(-EEXIST, "table %s exists with another signature or options",
				 wish->desc.name);
	*table_out = table;
	return 0;
}

/* -------- one more shard -------- */

static int publish_shard(struct catalog *cat, struct catalog_table *table, uint32_t s,
			 struct node *node)
{
	int ret = reserve_lap(cat->store, table->desc.table_id, s);

	if (ret == 0)
		ret = make_shard(cat, table, s, node);
	return ret ? ret : catalog_table_put_shard(cat->store, table, s);
}

int catalog_add_shard(struct catalog *cat, struct catalog_table *table, struct node *node)
{
	uint32_t s = table->n_shards;
	char words[ERROR_TEXT_BYTES];
	int ret;

	if (s == TABLE_MAX_SHARDS)
		return error_set(-ENOSPC, "table %s: all %u shard numbers of its life are used",
				 table->desc.name, TABLE_MAX_SHARDS);
	ret = publish_shard(cat, table, s, node);
	if (ret) {
		memcpy(words, error_last(), sizeof(words));
		catalog_retire_shard(table, s, REGION_DROPPED);
		table->shards[s] = (struct catalog_shard){ .state = 0 };
		table->slots.n_shards = table->n_shards;
		return error_set(ret, "%s", words);
	}
	table->n_shards = s + 1;
	table->shards[s].since = clock_now_ns(cat->clock);
	catalog_changed(cat, table);
	log_info("add shard %u of table %s at node %s", s, table->desc.name, node->name);
	return 0;
}
