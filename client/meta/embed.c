/*
 * The control plane of an embedded store: a target in this process and a catalog in memory. With a
 * file the catalog is read back from the regions themselves (client/meta/embed_reopen.c).
 */
#include "client/meta/embed.h"

#include "ds/part/slot.h"

#include "wire/region.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/log.h"
#include "base/os/process.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define EMBED_CLIENT 1u

static LOCK_ROLE(embed_lock, "embed catalog", LOCK_RANK_OBJECT);

static struct embed *embed_of(struct meta *meta)
{
	return (struct embed *)meta;
}

static int random_bytes(void *out, size_t n)
{
	ssize_t got = getrandom(out, n, 0);

	return got == (ssize_t)n ? 0 : error_set(-EIO, "getrandom: short read");
}

static struct embed_table *find_by_name(const struct embed *embed, const char *name)
{
	for (uint32_t id = 1; id <= TABLE_MAX_ID; id++)
		if (embed->tables[id] && strcmp(embed->tables[id]->desc.name, name) == 0)
			return embed->tables[id];
	return NULL;
}

/* -------- regions -------- */

int embed_attach(struct embed *embed, uint32_t id, struct region **region_out)
{
	struct transport_target *target = embed->base.target;
	struct region_grant grant;
	int ret;

	ret = transport_grant(target, EMBED_CLIENT, id, RIGHT_ALL, &grant);
	if (ret)
		return ret;
	return transport_attach(embed->tr, &grant, region_out);
}

/* Forgets the regions of a shard that failed to open. Rows that are blank were never a table's. */
static void forget_regions(struct embed *embed, struct part_regions *regions)
{
	struct transport_target *target = embed->base.target;
	uint32_t ids[REGION_ROLES] = { 0 };

	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++)
		ids[role] = regions->at[role] ? regions->at[role]->id : 0;
	part_regions_detach(regions);
	/* They are ours and known: nothing is left to do if the pool refuses. */
	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++)
		if (ids[role])
			(void)target->ops->unregister_region(target, ids[role]);
}

static int make_region(struct embed *embed, const struct table_desc *desc, uint32_t role,
		       struct region **region_out)
{
	struct transport_target *target = embed->base.target;
	struct part_spec part = shard_spec(desc);
	struct target_region spec = part_region_spec(&part, role);
	int ret;

	ret = target->ops->register_region(target, &spec);
	if (ret)
		return ret;
	ret = embed_attach(embed, spec.id, region_out);
	if (ret)
		(void)target->ops->unregister_region(target, spec.id);
	return ret;
}

static int make_shard(struct embed *embed, struct table_desc *desc, uint32_t s,
		      struct shard **shard_out)
{
	struct shard_ids ids = {
		.origin.incarnation = embed->base.target->incarnation,
		/* Only the generation of a lap counts, and above it there is room for tickets. */
		.first_ticket = embed->first_lap[desc->table_id] % LEAF_GEN_MASK * desc->blocks,
	};
	struct part_regions regions = { .owner = 0 };
	int ret = 0;

	memcpy(ids.origin.store_uuid, embed->store_uuid, sizeof(ids.origin.store_uuid));
	table_desc_seal(desc, s);
	for (uint32_t role = REGION_TREE; ret == 0 && role < REGION_ROLES; role++)
		ret = make_region(embed, desc, role, &regions.at[role]);
	if (ret == 0)
		ret = shard_format(&regions, desc, &ids);
	if (ret == 0)
		ret = shard_open(&regions, desc, shard_out);
	if (ret)
		forget_regions(embed, &regions);
	return ret;
}

/* -------- tables -------- */

struct embed_table *embed_table_new(const struct table_desc *desc)
{
	struct embed_table *table = mem_zalloc(sizeof(*table));

	if (!table)
		return NULL;
	table->desc = *desc;
	table->shards = mem_array(desc->n_shards, sizeof(struct shard *));
	table->streams = mem_array(desc->max_clients, sizeof(uint32_t));
	if (table->shards && table->streams)
		return table;
	mem_free(table->shards);
	mem_free(table->streams);
	mem_free(table);
	return NULL;
}

void embed_table_free(struct embed_table *table)
{
	for (uint32_t s = 0; s < table->desc.n_shards; s++)
		if (table->shards[s])
			shard_close(&table->shards[s]);
	mem_free(table->shards);
	mem_free(table->streams);
	mem_free(table);
}

static int set_dropped(struct shard *shard)
{
	int ret = part_set_state(&shard->part, REGION_DROPPED);

	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++)
		if (ret == 0 && (shard->tree->tr->caps & TRANSPORT_PERSISTENT))
			ret = transport_persist(shard->part.regions.at[role], 0,
						REGION_SUPERBLOCK_BYTES);
	return ret;
}

/* All of them say so before the first one is given back: whoever finds the rest goes on with it. */
void embed_table_destroy(struct embed *embed, struct embed_table *table)
{
	struct transport_target *target = embed->base.target;
	uint32_t n = table->desc.n_shards;

	for (uint32_t s = 0; s < n; s++)
		if (table->shards[s] && set_dropped(table->shards[s]))
			log_warn("drop table %s shard %u: %s", table->desc.name, s, error_last());
	for (uint32_t s = 0; s < n; s++) {
		if (!table->shards[s])
			continue;
		for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++)
			(void)target->ops->unregister_region(
				target, table->shards[s]->part.regions.at[role]->id);
	}
	embed_table_free(table);
}

/* As the metadata server does it (catalog/catalog.c): threads of one process share what they map. */
static int grant_shard(struct embed *embed, const struct shard *shard,
		       const struct meta_access *access, struct meta_part *out)
{
	struct transport_target *target = embed->base.target;
	int ret = 0;

	for (uint32_t at = REGION_TREE; ret == 0 && at < PART_PLACES; at++) {
		struct region_range range;
		uint32_t rights;
		uint32_t role = part_grant_of(access->kind, access->owner, at, &range, &rights);

		if (!role)
			continue;
		range.region = shard->part.regions.at[role]->id;
		ret = target->ops->grant(target, EMBED_CLIENT, &range, rights, &out->grants[at]);
	}
	return ret;
}

static int fill_place(struct embed *embed, const struct embed_table *table,
		      const struct meta_access *access, struct meta_place *out)
{
	struct transport_target *target = embed->base.target;
	struct meta_place place = { .n_parts = table->desc.n_shards };
	int ret = 0;

	place.parts = mem_array(place.n_parts, sizeof(struct meta_part));
	if (!place.parts)
		return error_set(-ENOMEM, "cannot allocate memory for %u shards", place.n_parts);
	for (uint32_t s = 0; ret == 0 && s < place.n_parts; s++) {
		struct meta_part *part = &place.parts[s];

		strcpy(part->node_uri, "embed:");
		strcpy(part->node, "embed");
		part->state = RLV_SHARD_ACTIVE;
		part->weight = META_WEIGHT_FULL;
		part->incarnation = target->incarnation;
		ret = grant_shard(embed, table->shards[s], access, part);
	}
	if (ret) {
		meta_place_fini(&place);
		return ret;
	}
	*out = place;
	return 0;
}

static int fill_table(struct embed *embed, const struct embed_table *table, struct meta_table *out)
{
	out->desc = table->desc;
	return fill_place(embed, table, META_LOOKS, &out->place);
}

static int make_table(struct embed *embed, const struct table_desc *planned,
		      struct embed_table **table_out)
{
	struct table_desc desc = *planned;
	struct embed_table *table;
	uint32_t id = 1;
	int ret;

	while (id <= TABLE_MAX_ID && embed->tables[id])
		id++;
	if (id > TABLE_MAX_ID)
		return error_set(-ENOSPC, "store: it has %u tables, its maximum: drop one first",
				 TABLE_MAX_ID);
	desc.table_id = id;
	ret = random_bytes(desc.uuid, sizeof(desc.uuid));
	if (ret)
		return ret;
	table_desc_seal(&desc, 0);
	table = embed_table_new(&desc);
	if (!table)
		return error_set(-ENOMEM, "table %s: cannot allocate memory", desc.name);
	for (uint32_t s = 0; s < desc.n_shards; s++) {
		ret = make_shard(embed, &desc, s, &table->shards[s]);
		if (ret) {
			embed_table_destroy(embed, table);
			error_prefix(ret, "table %s shard %u: ", desc.name, s);
			return ret;
		}
	}
	embed->tables[id] = table;
	*table_out = table;
	return 0;
}

static int embed_create(struct meta *meta, const struct table_desc *desc,
			const struct meta_wishes *wishes, struct meta_table *out)
{
	struct embed *embed = embed_of(meta);
	struct embed_table *table;
	int ret = 0;

	(void)wishes; /* there is one node: nothing to plan again */
	lock_acquire(&embed->lock, &embed_lock);
	table = find_by_name(embed, desc->name);
	if (!table)
		ret = make_table(embed, desc, &table);
	else if (!table_desc_same(&table->desc, desc))
		ret = error_set(-EEXIST, "table %s exists with another signature or options",
				desc->name);
	if (ret == 0)
		ret = fill_table(embed, table, out);
	lock_release(&embed->lock, &embed_lock);
	return ret;
}

static int embed_open_table(struct meta *meta, const char *name, struct meta_table *out)
{
	struct embed *embed = embed_of(meta);
	struct embed_table *table;
	int ret;

	lock_acquire(&embed->lock, &embed_lock);
	table = find_by_name(embed, name);
	ret = table ? fill_table(embed, table, out)
		    : error_set(-ENOENT, "no table %s in this store", name);
	lock_release(&embed->lock, &embed_lock);
	return ret;
}

static int embed_connect(struct meta *meta, const char *node_uri, int64_t timeout_ns,
			 uint64_t replaces, struct transport **tr_out)
{
	const struct transport_opts opts = {
		.target = meta->target,
		.client_id = EMBED_CLIENT,
		.open_ns = timeout_ns > 0 ? (uint64_t)timeout_ns : 0,
		.replaces = replaces,
	};

	return transport_open(node_uri, &opts, tr_out);
}

/* The first lap of the next table under this id: above any that the shards have used. */
static int remember_laps(struct embed *embed, const struct embed_table *table)
{
	uint64_t *lap = &embed->first_lap[table->desc.table_id];

	for (uint32_t s = 0; s < table->desc.n_shards; s++) {
		struct shard *shard = table->shards[s];
		uint64_t head;
		int ret;

		ret = transport_load(shard->tree,
				     shard_word_off(shard, offsetof(struct shard_words, head)),
				     &head);
		if (ret)
			return ret;
		head &= BLOCK_SEQ_MASK;
		*lap = max_u64(*lap, head / shard->desc.blocks + 1);
	}
	return 0;
}

static int embed_drop(struct meta *meta, const char *name)
{
	struct embed *embed = embed_of(meta);
	struct embed_table *table;
	int ret;

	lock_acquire(&embed->lock, &embed_lock);
	table = find_by_name(embed, name);
	ret = table ? remember_laps(embed, table)
		    : error_set(-ENOENT, "no table %s in this store", name);
	if (ret == 0) {
		embed->tables[table->desc.table_id] = NULL;
		embed_table_destroy(embed, table);
	}
	lock_release(&embed->lock, &embed_lock);
	return ret;
}

static int embed_list(struct meta *meta, char (*names)[RLV_NAME_BYTES], size_t *n_inout)
{
	struct embed *embed = embed_of(meta);
	size_t n = 0;

	lock_acquire(&embed->lock, &embed_lock);
	for (uint32_t id = 1; id <= TABLE_MAX_ID; id++) {
		if (!embed->tables[id])
			continue;
		if (n < *n_inout)
			memcpy(names[n], embed->tables[id]->desc.name, RLV_NAME_BYTES);
		n++;
	}
	lock_release(&embed->lock, &embed_lock);
	*n_inout = n;
	return 0;
}

/* -------- slots -------- */

/* Blocks that all writers may hold at once. */
static uint64_t streams_in_use(const struct embed_table *table)
{
	uint64_t in_use = 0;

	for (uint32_t slot = 0; slot < table->desc.max_clients; slot++)
		in_use += table->streams[slot];
	return in_use;
}

/* Also where a process before us has set it, perhaps without an answer: it is to be durable. */
static int mark_table(struct embed_table *table)
{
	int ret = 0;

	for (uint32_t s = 0; ret == 0 && s < table->desc.n_shards; s++)
		ret = part_mark(&table->shards[s]->part);
	table->marked = ret == 0;
	return ret ? error_prefix(ret, "table %s: write the mark of its rows: ", table->desc.name)
		   : 0;
}

static int slot_get_locked(struct embed *embed, struct embed_table *table, uint32_t streams,
			   uint32_t *owner_out)
{
	uint64_t in_use = streams_in_use(table);
	uint32_t slot;
	uint32_t s;
	int ret = 0;

	/* Room in the ring is for so many blocks that are open at once. */
	if (streams && in_use + streams > table->desc.max_writers)
		return error_set(-ENOSPC,
				 "%u streams: table %s takes %u (max_writers), of which %" PRIu64
				 " are in use by all its writers",
				 streams, table->desc.name, table->desc.max_writers, in_use);
	if (streams && embed->file && !table->marked)
		ret = mark_table(table);
	if (ret == 0)
		ret = slot_find_free(&table->shards[0]->part, &slot);
	if (ret)
		return ret;
	for (s = 0; s < table->desc.n_shards; s++) {
		ret = slot_take(&table->shards[s]->part, slot, &embed->self, EMBED_CLIENT);
		if (ret)
			goto err_release;
	}
	table->streams[slot] = streams;
	*owner_out = slot + 1;
	return 0;

err_release:
	while (s-- > 0)
		if (slot_release(&table->shards[s]->part, slot))
			error_prefix(ret, "slot %u of shard %u stays taken: ", slot, s);
	return ret;
}

/* NULL if the table was dropped, or another one has its id now. */
static struct embed_table *find_same(const struct embed *embed, const struct meta_object *object)
{
	struct embed_table *table = embed->tables[object->number];

	if (table && memcmp(table->desc.uuid, object->uuid, sizeof(table->desc.uuid)) == 0)
		return table;
	return NULL;
}

/* Nothing of it ever moves, but it may have been dropped. */
static int embed_refresh(struct meta *meta, const struct meta_object *object,
			 const struct meta_access *access, int64_t timeout_ns,
			 struct meta_place *out)
{
	struct embed *embed = embed_of(meta);
	const struct embed_table *table;
	int ret;

	(void)timeout_ns;
	lock_acquire(&embed->lock, &embed_lock);
	table = find_same(embed, object);
	ret = table ? fill_place(embed, table, access, out)
		    : error_set(-ESTALE, "table %s was dropped", object->name);
	lock_release(&embed->lock, &embed_lock);
	return ret;
}

static int embed_slot_get(struct meta *meta, const struct meta_object *object, uint32_t streams,
			  int64_t timeout_ns, struct meta_slot *slot_out)
{
	struct embed *embed = embed_of(meta);
	struct embed_table *table;
	int ret;

	(void)timeout_ns;
	lock_acquire(&embed->lock, &embed_lock);
	table = find_same(embed, object);
	ret = table ? slot_get_locked(embed, table, streams, &slot_out->owner)
		    : error_set(-ESTALE, "table %s was dropped", object->name);
	lock_release(&embed->lock, &embed_lock);
	slot_out->lease = EMBED_CLIENT;
	return ret;
}

static int embed_slot_put(struct meta *meta, const struct meta_object *object,
			  const struct meta_slot *slot, int64_t timeout_ns)
{
	struct embed *embed = embed_of(meta);
	const struct embed_table *table;
	int first = 0;

	(void)timeout_ns;
	lock_acquire(&embed->lock, &embed_lock);
	table = find_same(embed, object);
	if (table)
		table->streams[slot->owner - 1] = 0;
	for (uint32_t s = 0; table && s < table->desc.n_shards; s++) {
		int ret = slot_release(&table->shards[s]->part, slot->owner - 1);

		if (ret && !first)
			first = ret;
	}
	lock_release(&embed->lock, &embed_lock);
	return first;
}

/* -------- the rest -------- */

static int embed_info(struct meta *meta, struct rlv_store_info *out)
{
	struct embed *embed = embed_of(meta);

	lock_acquire(&embed->lock, &embed_lock);
	for (uint32_t id = 1; id <= TABLE_MAX_ID; id++)
		out->n_tables += embed->tables[id] != NULL;
	lock_release(&embed->lock, &embed_lock);
	snprintf(out->server_version, sizeof(out->server_version), "%s", rlv_version());
	out->n_nodes = 1;
	out->n_clients = 1;
	return 0;
}

static int embed_nodes(struct meta *meta, struct rlv_node_info *node, size_t *n_inout)
{
	struct target_stats stats;
	size_t room = *n_inout;

	*n_inout = 1;
	if (!room)
		return 0;
	meta->target->ops->stats(meta->target, &stats);
	snprintf(node->name, sizeof(node->name), "embed");
	snprintf(node->address, sizeof(node->address), "embed:");
	snprintf(node->pages, sizeof(node->pages), "%s", stats.page_kind);
	node->pool_bytes = stats.pool_bytes;
	node->used_bytes = stats.used_bytes;
	node->regions = stats.regions;
	node->incarnation = meta->target->incarnation;
	node->state = RLV_NODE_UP;
	snprintf(node->transport, sizeof(node->transport), "embed");
	return 0;
}

/* The rows first: what the others say of them is true then. */
static int persist_shard(struct embed *embed, const struct shard *shard)
{
	struct transport_target *target = embed->base.target;
	int ret = target->ops->persist(target, shard->rows->id, 0, 0);

	for (uint32_t role = REGION_TREE; ret == 0 && role < REGION_ROLES; role++)
		if (role != REGION_ROWS)
			ret = target->ops->persist(target, shard->part.regions.at[role]->id, 0, 0);
	return ret;
}

/* And, unless a writer is open, takes the mark away: nobody needs to look at every row then. */
static int persist_table(struct embed *embed, struct embed_table *table)
{
	int ret = 0;

	for (uint32_t s = 0; ret == 0 && s < table->desc.n_shards; s++)
		ret = persist_shard(embed, table->shards[s]);
	if (ret || streams_in_use(table))
		return ret;
	table->marked = false;
	for (uint32_t s = 0; ret == 0 && s < table->desc.n_shards; s++)
		ret = part_unmark(&table->shards[s]->part);
	return ret;
}

static int embed_persist(struct meta *meta)
{
	struct embed *embed = embed_of(meta);
	int ret = 0;

	if (!embed->file)
		return 0;
	lock_acquire(&embed->lock, &embed_lock);
	for (uint32_t id = 1; ret == 0 && id <= TABLE_MAX_ID; id++)
		if (embed->tables[id])
			ret = persist_table(embed, embed->tables[id]);
	lock_release(&embed->lock, &embed_lock);
	return ret;
}

static void embed_free(struct embed *embed)
{
	for (uint32_t id = 1; id <= TABLE_MAX_ID; id++)
		if (embed->tables[id])
			embed_table_free(embed->tables[id]);
	transport_close(&embed->tr);
	transport_target_close(&embed->base.target);
	lock_fini(&embed->lock);
	mem_free(embed);
}

static void embed_close(struct meta *meta)
{
	if (embed_persist(meta))
		log_warn("store closed, but its file was not written back: %s", error_last());
	embed_free(embed_of(meta));
}

static const struct meta_ops embed_ops = {
	.create = embed_create,
	.open = embed_open_table,
	.refresh = embed_refresh,
	.drop = embed_drop,
	.list = embed_list,
	.connect = embed_connect,
	.slot_get = embed_slot_get,
	.slot_put = embed_slot_put,
	.info = embed_info,
	.nodes = embed_nodes,
	.persist = embed_persist,
	.close = embed_close,
};

/*
 * A new pool becomes one of a store of its own, and names that store from then on. One that a memory
 * node has kept holds parts of tables: here they would be taken for what was never complete.
 */
static int take_identity(struct embed *embed, const char *path)
{
	static const char scheme[] = "embed:";
	struct transport_target *target = embed->base.target;
	struct pool_identity pool;
	char name[sizeof(pool.store_name)];
	int ret = target->ops->identity(target, &pool);

	if (ret == 0 && !bits_all_zero(pool.store_uuid, sizeof(pool.store_uuid)) &&
	    strncmp(pool.store_name, scheme, strlen(scheme)) != 0)
		return error_set(-EPERM,
				 "embed:%s: the pool belongs to store %s, whose memory node opens "
				 "it (relive-memnode --file)",
				 path, pool.store_name);
	if (ret == 0 && bits_all_zero(pool.store_uuid, sizeof(pool.store_uuid))) {
		(void)snprintf(name, sizeof(name), "%s%s", scheme, path ? path : "");
		ret = random_bytes(pool.store_uuid, sizeof(pool.store_uuid));
		if (ret == 0)
			ret = target->ops->own(target, pool.store_uuid, name);
	}
	memcpy(embed->store_uuid, pool.store_uuid, sizeof(embed->store_uuid));
	return ret;
}

int meta_embed_open(const char *path, const struct rlv_store_opts *opts, struct meta **meta_out)
{
	const uint64_t file_bytes = (uint64_t)1 << 30; /* of a new one */
	const struct target_opts target = {
		.pool_bytes = opts->pool_bytes || !path ? opts->pool_bytes : file_bytes,
		.path = path,
		.create = true,
		.exclusive = true,
		.private_memory = !path,
		.page_kind = opts->pages == RLV_PAGES_SMALL ? PAGE_SMALL : PAGE_THP,
	};
	struct transport_opts connect = { .client_id = EMBED_CLIENT };
	struct embed *embed = mem_zalloc(sizeof(*embed));
	int ret;

	if (!embed)
		return error_set(-ENOMEM, "store: cannot allocate memory");
	embed->base.ops = &embed_ops;
	atomic_init(&embed->base.client_id, EMBED_CLIENT);
	embed->file = path != NULL;
	embed->trust = opts->trust;
	lock_init(&embed->lock, &embed_lock);
	ret = process_self(&embed->self);
	if (ret == 0)
		ret = transport_target_open("shm", &target, &embed->base.target);
	if (ret)
		goto err_free;
	connect.target = embed->base.target;
	ret = take_identity(embed, path);
	if (ret)
		goto err_close_target;
	ret = transport_open("embed:", &connect, &embed->tr);
	if (ret)
		goto err_close_target;
	if (path)
		ret = embed_reopen(embed);
	if (ret)
		goto err_close;
	*meta_out = &embed->base;
	return 0;

err_close: /* what was not recovered stays as it is */
	embed_free(embed);
	return ret;
err_close_target:
	transport_target_close(&embed->base.target);
err_free:
	lock_fini(&embed->lock);
	mem_free(embed);
	return ret;
}
