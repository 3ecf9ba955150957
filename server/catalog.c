#include "server/catalog.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>

#include "ds/recover.h"
#include "ds/sumtree_rebuild.h"

#include "wire/region.h"

#include "base/alloc.h"
#include "base/log.h"

/* Tickets set aside for one life of a table: of two lives, no key is the same. */
#define TICKETS_OF_LIFE ((uint64_t)1 << 32)

/* -------- tables in memory -------- */

static void detach_shard(struct catalog_table *table, uint32_t s)
{
	struct shard *shard = table->attached[s];
	struct region *tree, *rows;

	if (!shard)
		return;
	tree = shard->tree;
	rows = shard->rows;
	shard_close(&table->attached[s]);
	transport_detach(&tree);
	transport_detach(&rows);
}

static void table_free(struct catalog_table *table)
{
	if (!table)
		return;
	for (uint32_t s = 0; table->attached && s < table->desc.n_shards; s++)
		detach_shard(table, s);
	slots_fini(&table->slots);
	mem_free(table->shards);
	mem_free(table->attached);
	mem_free(table->lost);
	mem_free(table);
}

static struct catalog_table *table_new(const struct table_desc *desc)
{
	struct catalog_table *table = mem_zalloc(sizeof(*table));

	if (!table)
		goto err;
	table->desc = *desc;
	table->shards = mem_array(desc->n_shards, sizeof(struct catalog_shard));
	table->attached = mem_array(desc->n_shards, sizeof(struct shard *));
	table->lost = mem_array(desc->n_shards, sizeof(bool));
	if (table->shards && table->attached && table->lost &&
	    slots_init(&table->slots, desc, table->attached, table->lost) == 0)
		return table;
err:
	table_free(table);
	(void)error_set(-ENOMEM, "table %s: no memory", desc->name);
	return NULL;
}

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

static int load_table(void *ctx, const struct store_table *stored)
{
	struct doomed *doomed = ctx;
	struct catalog *cat = doomed->cat;
	uint32_t id = stored->desc.table_id;
	int ret = table_desc_check(&stored->desc);

	if (ret == 0 && (id == 0 || id > TABLE_MAX_ID))
		ret = error_set(-EBADMSG, "table id %u", id);
	if (ret)
		return error_prefix(ret, "state database: ");
	if (stored->state != STORE_TABLE_LIVE) {
		doomed->ids[id] = true;
		return 0;
	}
	cat->tables[id] = table_new(&stored->desc);
	return cat->tables[id] ? 0 : -ENOMEM;
}

static int load_shard(void *ctx, const struct store_shard *stored)
{
	struct doomed *doomed = ctx;
	struct catalog *cat = doomed->cat;
	struct catalog_table *table =
		stored->table_id <= TABLE_MAX_ID ? cat->tables[stored->table_id] : NULL;
	struct catalog_shard *shard;

	if (!table)
		return 0;
	if (stored->shard >= table->desc.n_shards)
		return error_set(-EBADMSG, "state database: shard %u of table %s", stored->shard,
				 table->desc.name);
	shard = &table->shards[stored->shard];
	shard->node = nodes_find(cat->nodes, stored->node);
	shard->incarnation = stored->incarnation;
	shard->tree_id = stored->tree;
	shard->rows_id = stored->rows;
	return 0;
}

int catalog_load(struct catalog *cat)
{
	struct doomed doomed = { .cat = cat };
	uint64_t last = 0;
	int ret = store_each_table(cat->store, load_table, &doomed);

	store_ids(cat->store, &cat->ids);
	if (ret == 0)
		ret = store_each_shard(cat->store, load_shard, &doomed);
	if (ret == 0)
		ret = store_number(cat->store, "last_table", &last);
	cat->last_id = (uint32_t)last;
	/* What was half made or half dropped is forgotten; its regions go when their nodes come. */
	for (uint32_t id = 1; ret == 0 && id <= TABLE_MAX_ID; id++)
		if (doomed.ids[id])
			ret = store_table_delete(cat->store, id);
	for (uint32_t id = 1; ret == 0 && id <= TABLE_MAX_ID; id++)
		for (uint32_t s = 0; cat->tables[id] && s < cat->tables[id]->desc.n_shards; s++)
			if (!cat->tables[id]->shards[s].node)
				cat->tables[id]->lost[s] = true;
	return ret;
}

void catalog_fini(struct catalog *cat)
{
	for (uint32_t id = 1; id <= TABLE_MAX_ID; id++) {
		table_free(cat->tables[id]);
		cat->tables[id] = NULL;
	}
}

/* -------- regions -------- */

static int attach_pair(struct node *node, const struct catalog_shard *place, struct region **tree,
		       struct region **rows)
{
	int ret = node_attach(node, place->tree_id, tree);

	if (ret)
		return ret;
	ret = node_attach(node, place->rows_id, rows);
	if (ret)
		transport_detach(tree);
	return ret;
}

/* Opens shard s, whose regions are formatted. */
static int attach_shard(struct catalog_table *table, uint32_t s)
{
	struct catalog_shard *place = &table->shards[s];
	struct region *tree, *rows;
	int ret = attach_pair(place->node, place, &tree, &rows);

	if (ret)
		return ret;
	ret = shard_open(tree, rows, &table->attached[s]);
	if (ret) {
		transport_detach(&rows);
		transport_detach(&tree);
	}
	return ret;
}

/* Users see the word in a mapping that they keep; then the memory goes. */
static int retire_region(struct node *node, uint32_t id)
{
	const uint64_t state = REGION_DROPPED;
	struct region *region;
	int ret = node_attach(node, id, &region);

	if (ret == 0) {
		ret = transport_store(region, offsetof(struct region_superblock, state), &state,
				      sizeof(state));
		transport_detach(&region);
	}
	if (ret)
		log_warn("retire region %u of node %s: %s", id, node->name, error_last());
	return node_region_free(node, id);
}

static void retire(struct node *node, uint32_t id)
{
	if (id && retire_region(node, id))
		log_warn("free region %u of node %s: %s", id, node->name, error_last());
}

/* -------- create -------- */

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
		retire(node, place->tree_id);
		place->tree_id = 0;
	}
	return ret;
}

/* On the next node in turn that has room. */
static int place_shard(struct catalog *cat, const struct table_desc *desc,
		       struct catalog_shard *place)
{
	uint32_t tries = nodes_count(cat->nodes, true);
	int ret = error_set(-EHOSTDOWN, "no memory node is up");

	while (tries-- > 0) {
		struct node *node = nodes_next(cat->nodes);

		if (!node)
			break;
		ret = new_regions(node, desc, place);
		if (ret != -ENOSPC && ret != -ENOMEM && ret != -EHOSTDOWN)
			break;
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
	struct region *tree, *rows;
	int ret;

	memcpy(ids.store_uuid, cat->ids.uuid, sizeof(ids.store_uuid));
	ret = store_ticket(cat->store, desc->table_id, s, &ids.first_ticket);
	if (ret)
		return ret;
	ids.first_ticket -= TICKETS_OF_LIFE; /* set aside by reserve() */
	ret = attach_pair(place->node, place, &tree, &rows);
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

static int reserve_tickets(struct store *store, uint32_t table_id, uint32_t n_shards)
{
	int ret = 0;

	for (uint32_t s = 0; ret == 0 && s < n_shards; s++) {
		uint64_t first = 0;

		ret = store_ticket(store, table_id, s, &first);
		if (ret == 0 && first >= BLOCK_SEQ_MASK - 2 * TICKETS_OF_LIFE)
			ret = error_set(-ENOSPC, "table id %u: its tickets are used up", table_id);
		if (ret == 0)
			ret = store_ticket_raise(store, table_id, s, first + TICKETS_OF_LIFE);
	}
	return ret;
}

/* Step 1: from now on the id and its tickets are used. */
static int reserve(struct catalog *cat, const struct catalog_table *table)
{
	const struct store_table stored = { STORE_TABLE_CREATING, table->desc };
	int ret = store_begin(cat->store);

	if (ret)
		return ret;
	ret = store_number_put(cat->store, "last_table", table->desc.table_id);
	if (ret == 0)
		ret = reserve_tickets(cat->store, table->desc.table_id, table->desc.n_shards);
	if (ret == 0)
		ret = store_table_put(cat->store, &stored);
	if (ret) {
		store_rollback(cat->store);
		return ret;
	}
	return store_commit(cat->store);
}

static int put_shard(struct catalog *cat, const struct catalog_table *table, uint32_t s)
{
	const struct catalog_shard *place = &table->shards[s];
	struct store_shard stored = {
		.table_id = table->desc.table_id,
		.shard = s,
		.incarnation = place->incarnation,
		.tree = place->tree_id,
		.rows = place->rows_id,
	};

	memcpy(stored.node, place->node->name, sizeof(stored.node));
	return store_shard_put(cat->store, &stored);
}

/* Step 4. */
static int publish(struct catalog *cat, const struct catalog_table *table)
{
	const struct store_table stored = { STORE_TABLE_LIVE, table->desc };
	int ret = store_begin(cat->store);

	if (ret)
		return ret;
	for (uint32_t s = 0; ret == 0 && s < table->desc.n_shards; s++)
		ret = put_shard(cat, table, s);
	if (ret == 0)
		ret = store_table_put(cat->store, &stored);
	if (ret) {
		store_rollback(cat->store);
		return ret;
	}
	return store_commit(cat->store);
}

/* Steps 2 and 3. */
static int make_shards(struct catalog *cat, struct catalog_table *table)
{
	int ret = 0;

	for (uint32_t s = 0; ret == 0 && s < table->desc.n_shards; s++) {
		struct table_desc desc = table->desc;

		table_desc_seal(&desc, s);
		ret = place_shard(cat, &desc, &table->shards[s]);
		if (ret == 0)
			ret = format_shard(cat, table, s, &desc);
		if (ret)
			error_prefix(ret, "table %s shard %u of %u: ", desc.name, s, desc.n_shards);
	}
	return ret;
}

static void retire_shards(struct catalog_table *table)
{
	for (uint32_t s = 0; s < table->desc.n_shards; s++) {
		struct catalog_shard *place = &table->shards[s];

		if (table->attached[s] && shard_set_state(table->attached[s], REGION_DROPPED))
			log_warn("drop table %s shard %u: %s", table->desc.name, s, error_last());
		detach_shard(table, s);
		if (!place->node || !place->node->up ||
		    place->incarnation != place->node->incarnation)
			continue;
		retire(place->node, place->tree_id);
		retire(place->node, place->rows_id);
	}
}

static int make_table(struct catalog *cat, const struct table_desc *planned,
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
	table = table_new(&desc);
	if (!table)
		return -ENOMEM;
	ret = reserve(cat, table);
	if (ret)
		goto err_free;
	ret = make_shards(cat, table);
	if (ret == 0)
		ret = publish(cat, table);
	if (ret)
		goto err_retire;
	cat->last_id = desc.table_id;
	cat->tables[desc.table_id] = table;
	log_info("create table %s id %u shards %u", desc.name, desc.table_id, desc.n_shards);
	*table_out = table;
	return 0;

err_retire:
	/* The words of the failure outlive the clean-up. */
	{
		char words[ERROR_TEXT_BYTES];

		memcpy(words, error_last(), sizeof(words));
		retire_shards(table);
		if (store_table_delete(cat->store, desc.table_id))
			log_warn("forget table %s: %s", desc.name, error_last());
		(void)error_set(ret, "%s", words);
	}
err_free:
	table_free(table);
	return ret;
}

int catalog_create(struct catalog *cat, const struct table_desc *desc,
		   struct catalog_table **table_out)
{
	struct catalog_table *table;
	int ret = table_desc_check(desc);

	if (ret)
		return ret;
	table = catalog_find(cat, desc->name);
	if (!table)
		return make_table(cat, desc, table_out);
	if (!table_desc_same(&table->desc, desc))
		return error_set(-EEXIST, "table %s exists with another signature or options",
				 desc->name);
	*table_out = table;
	return 0;
}

/* -------- drop -------- */

int catalog_drop(struct catalog *cat, const char *name)
{
	struct catalog_table *table = catalog_find(cat, name);
	struct store_table stored = { .state = STORE_TABLE_DROPPING };
	int ret;

	if (!table)
		return error_set(-ENOENT, "no table %.64s in this store", name);
	stored.desc = table->desc;
	ret = store_table_put(cat->store, &stored);
	if (ret)
		return ret;
	retire_shards(table);
	cat->tables[table->desc.table_id] = NULL;
	log_info("drop table %s id %u", table->desc.name, table->desc.table_id);
	ret = store_table_delete(cat->store, table->desc.table_id);
	if (ret) /* a restart does it: it says DROPPING there */
		log_warn("forget table %s: %s", table->desc.name, error_last());
	table_free(table);
	return 0;
}

/* -------- grants -------- */

int catalog_grant(struct catalog_table *table, uint32_t s, uint64_t client_id, bool read_only,
		  struct catalog_grants *out)
{
	const struct catalog_shard *place = &table->shards[s];
	uint32_t rows_rights = read_only ? RIGHT_READ : RIGHT_READ | RIGHT_WRITE;
	int ret;

	if (table->lost[s])
		return error_set(
			-EHOSTDOWN,
			"table %s shard %u: its memory was lost with memory node %s; drop the table",
			table->desc.name, s, place->node ? place->node->name : "?");
	if (!table->attached[s])
		return error_set(-EHOSTDOWN, "table %s shard %u: memory node %s is down",
				 table->desc.name, s, place->node->name);
	ret = node_grant(place->node, client_id, place->tree_id, RIGHT_ALL, &out->tree);
	return ret ? ret
		   : node_grant(place->node, client_id, place->rows_id, rows_rights, &out->rows);
}

/* -------- nodes come and go -------- */

static bool has_region(const struct catalog_arrival *arrival, uint32_t id, uint32_t kind,
		       const struct table_desc *desc, uint32_t shard)
{
	for (size_t i = 0; i < arrival->n_regions; i++) {
		const Relive__NodeRegion *region = arrival->regions[i];

		if (region->region == id)
			return region->kind == kind && region->table_id == desc->table_id &&
			       region->shard == shard;
	}
	return false;
}

static void lose(struct catalog_table *table, uint32_t s)
{
	log_error("table %s shard %u: lost with the memory of node %s", table->desc.name, s,
		  table->shards[s].node->name);
	if (table->attached[s] && shard_set_state(table->attached[s], REGION_ORPHANED))
		log_warn("orphan table %s shard %u: %s", table->desc.name, s, error_last());
	detach_shard(table, s);
	table->lost[s] = true;
}

/* A pool that nobody had mapped: nothing in it is in anybody's hands. */
static int recover(struct catalog_table *table, uint32_t s)
{
	const struct recover_opts opts = { .scan_rows = false };
	struct recover_report report;
	int ret = recover_shard(table->attached[s], &opts, &report);

	if (ret == 0)
		log_info("recover table %s shard %u: items %" PRIu64 " blocks closed %u",
			 table->desc.name, s, report.items, report.closed);
	return ret;
}

/* The new life is remembered at once: what is recovered twice would be taken from its users. */
static int renew_life(struct catalog *cat, const struct catalog_arrival *arrival,
		      struct catalog_table *table, uint32_t s)
{
	struct catalog_shard *place = &table->shards[s];
	int ret = arrival->node->sole_opener ? recover(table, s) : 0;

	if (ret)
		return ret;
	place->incarnation = arrival->node->incarnation;
	return put_shard(cat, table, s);
}

static int take_up(struct catalog *cat, const struct catalog_arrival *arrival,
		   struct catalog_table *table, uint32_t s)
{
	struct catalog_shard *place = &table->shards[s];
	int ret = attach_shard(table, s);

	if (ret == 0 && place->incarnation != arrival->node->incarnation)
		ret = renew_life(cat, arrival, table, s);
	if (ret == 0)
		ret = slots_read(&table->slots, s, cat->on_holder, cat->ctx);
	if (ret == 0)
		ret = sumtree_rebuild_needed(table->attached[s], &place->drift);
	return ret;
}

static void node_up_shard(struct catalog *cat, const struct catalog_arrival *arrival,
			  struct catalog_table *table, uint32_t s)
{
	struct catalog_shard *place = &table->shards[s];
	const struct node *node = arrival->node;
	int ret;

	if (place->node != node || table->lost[s])
		return;
	if (place->incarnation != node->incarnation && !node->persistent) {
		lose(table, s);
		return;
	}
	if (!has_region(arrival, place->tree_id, REGION_TREE, &table->desc, s) ||
	    !has_region(arrival, place->rows_id, REGION_ROWS, &table->desc, s)) {
		lose(table, s);
		return;
	}
	if (table->attached[s])
		return;
	ret = take_up(cat, arrival, table, s);
	if (ret) {
		log_error("attach table %s shard %u: %s", table->desc.name, s, error_last());
		detach_shard(table, s);
	}
}

static bool is_owned(const struct catalog *cat, const struct node *node, uint32_t region)
{
	for (uint32_t id = 1; id <= TABLE_MAX_ID; id++) {
		const struct catalog_table *table = cat->tables[id];

		for (uint32_t s = 0; table && s < table->desc.n_shards; s++)
			if (table->shards[s].node == node && !table->lost[s] &&
			    (table->shards[s].tree_id == region ||
			     table->shards[s].rows_id == region))
				return true;
	}
	return false;
}

static void each_shard_of(struct catalog *cat, const struct catalog_arrival *arrival,
			  void (*fn)(struct catalog *, const struct catalog_arrival *,
				     struct catalog_table *, uint32_t))
{
	for (uint32_t id = 1; id <= TABLE_MAX_ID; id++) {
		struct catalog_table *table = cat->tables[id];

		for (uint32_t s = 0; table && s < table->desc.n_shards; s++)
			fn(cat, arrival, table, s);
	}
}

/* What is attached belongs to the node's earlier life. */
static void leave_shard(struct catalog *cat, const struct catalog_arrival *arrival,
			struct catalog_table *table, uint32_t s)
{
	(void)cat;
	if (table->shards[s].node != arrival->node || !table->attached[s])
		return;
	if (arrival->node->persistent)
		detach_shard(table, s);
	else
		lose(table, s);
}

void catalog_node_up(struct catalog *cat, const struct catalog_arrival *arrival)
{
	struct node *node = arrival->node;

	if (arrival->replaced && node->tr) {
		each_shard_of(cat, arrival, leave_shard);
		node_close_transport(node);
	}
	each_shard_of(cat, arrival, node_up_shard);
	for (size_t i = 0; node->up && i < arrival->n_regions; i++) {
		uint32_t id = arrival->regions[i]->region;

		if (is_owned(cat, node, id))
			continue;
		log_info("free region %u of node %s: no table owns it", id, node->name);
		retire(node, id);
	}
}

void catalog_node_down(struct catalog *cat, struct node *node)
{
	const struct catalog_arrival gone = { .node = node };

	if (!node->persistent)
		return;
	each_shard_of(cat, &gone, leave_shard);
	node_close_transport(node);
}
