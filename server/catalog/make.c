#include "server/catalog/catalog.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "wire/region.h"

#include "base/log.h"

/* -------- one shard -------- */

static int format_shard(struct catalog *cat, struct catalog_table *table, uint32_t s)
{
	struct catalog_shard *place = &table->shards[s];
	struct part_regions regions;
	int ret = catalog_attach_regions(place->node, place, &regions);

	if (ret == -EAGAIN && !node_is_attaching(place->node))
		ret = -EHOSTDOWN;
	if (ret)
		return ret;
	ret = table->kind->format(cat, table, s, &regions);
	if (ret == 0)
		ret = table->kind->open(table, s, &regions, &table->attached[s]);
	if (ret)
		part_regions_detach(&regions);
	return ret;
}

/* Step 3 for one shard. */
int catalog_make_shard(struct catalog *cat, struct catalog_table *table, uint32_t s)
{
	struct catalog_shard *place = &table->shards[s];
	int ret;

	/* It may be formatted, while its node has not taken the pages of all slots yet. */
	ret = table->attached[s] ? 0 : format_shard(cat, table, s);
	if (ret == -EAGAIN)
		return ret;
	place->state = RELIVE__SHARD_STATE__SHARD_ACTIVE;
	if (ret == 0)
		ret = slots_join(&table->slots, s);
	place->joined = ret == 0;
	place->announced = place->joined ? place->state : 0;
	return ret ? error_prefix(ret, "table %s shard %u: ", table->desc.name, s) : 0;
}

/* -------- a table -------- */

static bool is_being_made(const struct catalog *cat, uint32_t id)
{
	for (const struct catalog_provisioning *provisioning = cat->provisionings; provisioning;
	     provisioning = provisioning->next)
		if (provisioning->table && provisioning->is_new &&
		    provisioning->table->desc.table_id == id)
			return true;
	return false;
}

static int free_id(struct catalog *cat, uint32_t *id_out)
{
	for (uint32_t i = 1; i <= TABLE_MAX_ID; i++) {
		uint32_t id = (cat->last_id + i - 1) % TABLE_MAX_ID + 1;

		if (!cat->tables[id] && !is_being_made(cat, id)) {
			*id_out = id;
			return 0;
		}
	}
	return error_set(-ENOSPC, "store: %u tables are the most", TABLE_MAX_ID);
}

static int reserve_lap(struct statedb *store, uint32_t table_id, uint32_t shard)
{
	uint64_t first = 0;
	int ret = statedb_lap(store, table_id, shard, &first);

	return ret ? ret : statedb_lap_raise(store, table_id, shard, first + CATALOG_LAPS);
}

/* Step 1: reserves the table's id and laps. */
static int reserve(struct catalog *cat, const struct catalog_table *table)
{
	const struct statedb_table stored = { .state = STORE_TABLE_CREATING, .desc = table->desc };
	int ret = statedb_begin(cat->store);

	if (ret)
		return ret;
	ret = statedb_number_put(cat->store, "last_table", table->desc.table_id);
	for (uint32_t s = 0; ret == 0 && s < table->desc.n_shards; s++)
		ret = reserve_lap(cat->store, table->desc.table_id, s);
	if (ret == 0)
		ret = statedb_table_put(cat->store, &stored);
	return statedb_end(cat->store, ret);
}

/* The shard becomes the table's: its provisioning record is deleted. */
static int put_made(struct catalog *cat, const struct catalog_table *table, uint32_t s)
{
	int ret = catalog_table_put_shard(cat->store, table, s);

	return ret ? ret
		   : statedb_making_delete(cat->store, table->shards[s].node->name,
					   table->desc.table_id, s);
}

/* Step 4. */
static int publish(struct catalog *cat, const struct catalog_table *table)
{
	int ret = statedb_begin(cat->store);

	if (ret)
		return ret;
	for (uint32_t s = 0; ret == 0 && s < table->n_shards; s++)
		ret = put_made(cat, table, s);
	if (ret == 0)
		ret = catalog_table_put(cat->store, table);
	return statedb_end(cat->store, ret);
}

/* Keeps the error message over the clean-up. Regions that cannot be freed now keep their
   provisioning record. */
static int give_up(struct catalog *cat, struct catalog_table *table, int code)
{
	char words[ERROR_TEXT_BYTES];

	memcpy(words, error_last(), sizeof(words));
	catalog_retire_table(cat, table);
	if (statedb_table_delete(cat->store, table->desc.table_id))
		log_warn("forget table %s: %s", table->desc.name, error_last());
	catalog_table_free(table);
	return error_set(code, "%s", words);
}

static int new_table(struct catalog *cat, const struct catalog_wish *wish,
		     struct catalog_table **table_out)
{
	struct catalog_table *table;
	struct table_desc desc;
	int ret = catalog_plan(cat, wish, &desc);

	if (ret == 0)
		ret = free_id(cat, &desc.table_id);
	if (ret)
		return ret;
	if (getrandom(desc.uuid, sizeof(desc.uuid), 0) != (ssize_t)sizeof(desc.uuid))
		return error_set(-EIO, "getrandom: %s", strerror(errno));
	table_desc_seal(&desc, 0);
	table = catalog_table_new(&desc);
	if (!table)
		return -ENOMEM;
	table->auto_shards = wish->auto_shards;
	table->n_shards = desc.n_shards;
	ret = reserve(cat, table);
	if (ret) {
		catalog_table_free(table);
		return ret;
	}
	*table_out = table;
	return 0;
}

static int begin_table(struct catalog *cat, const struct catalog_wish *wish,
		       struct catalog_provisioning **provisioning_out)
{
	struct catalog_provisioning like = { .is_new = true };
	int ret = new_table(cat, wish, &like.table);

	if (ret)
		return ret;
	like.n = like.table->desc.n_shards;
	cat->last_id = like.table->desc.table_id;
	ret = catalog_provision_begin(cat, &like, provisioning_out);
	return ret ? give_up(cat, like.table, ret) : 0;
}

static int go_on_with_table(struct catalog *cat, struct catalog_provisioning *provisioning,
			    struct catalog_table **table_out)
{
	struct catalog_table *table = provisioning->table;
	int ret = catalog_provision_run(provisioning);

	if (ret == -EAGAIN)
		return ret;
	catalog_provision_end(provisioning);
	if (ret == 0)
		ret = publish(cat, table);
	if (ret)
		return give_up(cat, table, ret);
	cat->tables[table->desc.table_id] = table;
	catalog_changed(cat, table);
	log_info("create table %s id %u shards %u", table->desc.name, table->desc.table_id,
		 table->desc.n_shards);
	*table_out = table;
	return 0;
}

int catalog_create(struct catalog *cat, const struct catalog_wish *wish,
		   struct catalog_table **table_out)
{
	struct catalog_provisioning *provisioning;
	struct catalog_table *table;
	int ret = table_desc_check(&wish->desc);

	if (ret)
		return ret;
	table = catalog_find(cat, wish->desc.name);
	if (table && !catalog_is_wish_of(table, wish))
		return error_set(-EEXIST, "table %s exists with another signature or options",
				 wish->desc.name);
	if (table) {
		*table_out = table;
		return 0;
	}
	provisioning = catalog_provision_named(cat, wish->desc.name);
	if (!provisioning)
		ret = begin_table(cat, wish, &provisioning);
	return ret ? ret : go_on_with_table(cat, provisioning, table_out);
}

/* -------- one more shard -------- */

static int begin_shard(struct catalog *cat, const struct catalog_provisioning *like,
		       struct catalog_provisioning **provisioning_out)
{
	const struct catalog_table *table = like->table;
	int ret;

	if (table->n_shards == TABLE_MAX_SHARDS)
		return error_set(-ENOSPC, "table %s: all %u shard numbers of its life are used",
				 table->desc.name, TABLE_MAX_SHARDS);
	ret = reserve_lap(cat->store, table->desc.table_id, table->n_shards);
	return ret ? ret : catalog_provision_begin(cat, like, provisioning_out);
}

static int publish_shard(struct catalog *cat, const struct catalog_table *table, uint32_t s)
{
	int ret = statedb_begin(cat->store);

	return ret ? ret : statedb_end(cat->store, put_made(cat, table, s));
}

static int go_on_with_shard(struct catalog *cat, struct catalog_provisioning *provisioning)
{
	struct catalog_table *table = provisioning->table;
	uint32_t s = provisioning->first;
	char words[ERROR_TEXT_BYTES];
	int ret = catalog_provision_run(provisioning);

	if (ret == -EAGAIN)
		return ret;
	catalog_provision_end(provisioning);
	if (ret == 0)
		ret = publish_shard(cat, table, s);
	if (ret) {
		memcpy(words, error_last(), sizeof(words));
		catalog_retire_shard(cat, table, s, REGION_DROPPED);
		table->shards[s] = (struct catalog_shard){ .state = 0 };
		table->slots.n_parts = table->n_shards;
		return error_set(ret, "%s", words);
	}
	table->n_shards = s + 1;
	table->shards[s].since = clock_now_ns(cat->clock);
	catalog_changed(cat, table);
	log_info("add shard %u of table %s at node %s", s, table->desc.name,
		 table->shards[s].node->name);
	return 0;
}

int catalog_add_shard(struct catalog *cat, struct catalog_table *table, struct node *node,
		      struct node *leaves)
{
	const struct catalog_provisioning like = {
		.table = table,
		.first = table->n_shards,
		.n = 1,
		.only = node,
		.leaves = leaves,
	};
	struct catalog_provisioning *provisioning = catalog_provision_of(cat, table);
	int ret = provisioning ? 0 : begin_shard(cat, &like, &provisioning);

	return ret ? ret : go_on_with_shard(cat, provisioning);
}
