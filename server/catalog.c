#include "server/catalog.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "wire/region.h"

#include "base/alloc.h"
#include "base/log.h"

/*
 * Laps of the ring set aside for one life of a table, so that of two lives no key is the same also when
 * the end of the first was not seen; catalog_drop() sets aside what was really used.
 */
#define LAPS_OF_LIFE ((uint64_t)1 << 16)

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
	cat->tables[id] = catalog_table_new(&stored->desc);
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
		catalog_table_free(cat->tables[id]);
		cat->tables[id] = NULL;
	}
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
		catalog_retire_region(node, place->tree_id);
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
	uint64_t lap = 0;
	struct region *tree, *rows;
	int ret;

	memcpy(ids.store_uuid, cat->ids.uuid, sizeof(ids.store_uuid));
	ret = store_lap(cat->store, desc->table_id, s, &lap);
	if (ret)
		return ret;
	/* Set aside by reserve(). Only the generation counts, which repeats after so many. */
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

static int reserve_laps(struct store *store, uint32_t table_id, uint32_t n_shards)
{
	int ret = 0;

	for (uint32_t s = 0; ret == 0 && s < n_shards; s++) {
		uint64_t first = 0;

		ret = store_lap(store, table_id, s, &first);
		if (ret == 0)
			ret = store_lap_raise(store, table_id, s, first + LAPS_OF_LIFE);
	}
	return ret;
}

/* Step 1: from now on the id and its laps are used. */
static int reserve(struct catalog *cat, const struct catalog_table *table)
{
	const struct store_table stored = { STORE_TABLE_CREATING, table->desc };
	int ret = store_begin(cat->store);

	if (ret)
		return ret;
	ret = store_number_put(cat->store, "last_table", table->desc.table_id);
	if (ret == 0)
		ret = reserve_laps(cat->store, table->desc.table_id, table->desc.n_shards);
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
	const struct store_table stored = { STORE_TABLE_LIVE, table->desc };
	int ret = store_begin(cat->store);

	if (ret)
		return ret;
	for (uint32_t s = 0; ret == 0 && s < table->desc.n_shards; s++)
		ret = catalog_table_put_shard(cat->store, table, s);
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
	table = catalog_table_new(&desc);
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
		catalog_table_retire(table);
		if (store_table_delete(cat->store, desc.table_id))
			log_warn("forget table %s: %s", desc.name, error_last());
		(void)error_set(ret, "%s", words);
	}
err_free:
	catalog_table_free(table);
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

/* What is claimed after the look still lies below: one lap of slack. */
static void remember_laps(struct store *store, const struct catalog_table *table)
{
	for (uint32_t s = 0; s < table->desc.n_shards; s++) {
		const struct shard *shard = table->attached[s];
		uint64_t head, lap;
		int ret;

		if (!shard)
			continue;
		ret = transport_load(shard->tree,
				     shard_word_off(shard, offsetof(struct shard_words, head)),
				     &head);
		if (ret == 0) {
			lap = (head & BLOCK_SEQ_MASK) / table->desc.blocks + 2;
			ret = store_lap_raise(store, table->desc.table_id, s, lap);
		}
		if (ret)
			log_warn("drop table %s shard %u: %s", table->desc.name, s, error_last());
	}
}

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
	remember_laps(cat->store, table);
	catalog_table_retire(table);
	cat->tables[table->desc.table_id] = NULL;
	log_info("drop table %s id %u", table->desc.name, table->desc.table_id);
	ret = store_table_delete(cat->store, table->desc.table_id);
	if (ret) /* a restart does it: it says DROPPING there */
		log_warn("forget table %s: %s", table->desc.name, error_last());
	catalog_table_free(table);
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
