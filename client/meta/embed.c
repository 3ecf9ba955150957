/*
 * embed.c - the control plane of an embedded store: the catalog's functions as those of meta.h.
 */
#include "client/meta/embed.h"

#include "catalog/kind_heap.h"
#include "catalog/kind_table.h"

#include "ds/heap/central.h"

#include "wire/region.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/log.h"
#include "base/os/clock.h"
#include "base/os/process.h"
#include "base/os/random.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static LOCK_ROLE(embed_lock, "embed catalog", LOCK_RANK_OBJECT);

static struct embed *embed_of(struct meta *meta)
{
	return (struct embed *)meta;
}

/* -------- grants -------- */

static int fill_opened(struct embed *embed, struct catalog_object *object,
		       const struct meta_access *access, struct meta_opened *out)
{
	const struct catalog_guest guest = {
		.client_id = EMBED_CLIENT,
		.access = access->kind,
		.owner = access->owner,
	};
	struct meta_object named = {
		.kind = object->kind->id,
		.number = object->id,
		.max_clients = object->max_clients,
	};
	int ret;

	memcpy(named.uuid, object->uuid, sizeof(named.uuid));
	(void)snprintf(named.name, sizeof(named.name), "%s", object->name);
	ret = meta_opened_init(out, &named, object->desc, object->desc_len);
	if (ret)
		return ret;
	out->place.n_parts = object->n_parts;
	out->place.control = object->control;
	out->place.parts = mem_array(object->n_parts, sizeof(struct meta_part));
	if (!out->place.parts)
		ret = error_set(-ENOMEM, "cannot allocate memory for %u shards", object->n_parts);
	for (uint32_t s = 0; ret == 0 && s < object->n_parts; s++) {
		struct meta_part *part = &out->place.parts[s];
		struct catalog_grants grants;

		(void)snprintf(part->node_uri, sizeof(part->node_uri), "%s", embed->node.uri);
		(void)snprintf(part->node, sizeof(part->node), "%s", embed->node.name);
		part->state = RLV_SHARD_ACTIVE;
		part->weight = META_WEIGHT_FULL;
		part->incarnation = embed->node.incarnation;
		ret = catalog_grant(object, s, &guest, &grants);
		memcpy(part->grants, grants.places, sizeof(part->grants));
	}
	if (ret)
		meta_opened_fini(out);
	return ret;
}

/* -------- tables -------- */

static int embed_create(struct meta *meta, const struct meta_wish *wish, struct meta_opened *out)
{
	uint32_t fanout[TREE_MAX_LEVELS];
	struct kind_request request = {
		.desc = wish->desc, .len = wish->desc_bytes, .block = wish->block, .fanout = fanout
	};
	struct catalog_wish object = { .kind = object_kind_find(wish->kind) };
	struct embed *embed = embed_of(meta);
	char name[OBJECT_NAME_BYTES] = "";
	struct catalog_object *made;
	int ret;

	for (const uint16_t *at = wish->fanout; at && *at && request.n_fanout < TREE_MAX_LEVELS;
	     at++)
		fanout[request.n_fanout++] = *at;
	ret = object.kind->take_wish(&request, &object.details, name);
	object.name = name;
	if (wish->load) {
		object.loader = EMBED_CLIENT;
		object.beside = wish->load->beside;
		memcpy(object.uuid, wish->load->uuid, sizeof(object.uuid));
	}
	lock_acquire(&embed->lock, &embed_lock);
	if (ret == 0)
		do
			ret = catalog_create(&embed->cat, &object, &made);
		while (ret == -EAGAIN); /* the pool has answered */
	if (ret == 0)
		ret = fill_opened(embed, made, META_LOOKS, out);
	lock_release(&embed->lock, &embed_lock);
	mem_free((void *)(uintptr_t)object.details);
	return ret;
}

/* Finds the object of that kind with that number and uuid; if the number is 0, as catalog_find_named. -ESTALE: it was
   dropped. */
static int find_object(const struct embed *embed, const struct meta_object *object,
		       struct catalog_object **object_out)
{
	if (object->number == 0)
		return catalog_find_named(&embed->cat, object_kind_find(object->kind), object->name,
					  object->uuid, object_out);
	*object_out =
		catalog_find_same(&embed->cat, object->number, object->uuid, sizeof(object->uuid));
	return *object_out && (*object_out)->kind->id == object->kind
		       ? 0
		       : error_set(-ESTALE, "%s was dropped", object->name);
}

static int embed_open(struct meta *meta, const struct meta_object *object,
		      const struct meta_access *access, int64_t timeout_ns, struct meta_opened *out)
{
	struct embed *embed = embed_of(meta);
	struct catalog_object *table;
	int ret;

	(void)timeout_ns;
	lock_acquire(&embed->lock, &embed_lock);
	ret = find_object(embed, object, &table);
	if (ret == 0 && object->number == 0)
		ret = catalog_check_loaded(&embed->cat, table);
	if (ret == 0)
		ret = fill_opened(embed, table, access, out);
	lock_release(&embed->lock, &embed_lock);
	return ret;
}

/* A failed mark is only logged. */
static void mark_dropped(struct embed *embed, const struct catalog_object *object)
{
	for (uint32_t s = 0; s < object->n_parts; s++) {
		struct part *part = object->attached[s];
		int ret = part ? part_set_state(part, REGION_DROPPED) : 0;

		for (uint32_t role = REGION_TREE; part && role < REGION_ROLES; role++)
			if (ret == 0 && (part->tree->tr->caps & TRANSPORT_PERSISTENT))
				ret = transport_persist(part->regions.at[role], 0,
							REGION_SUPERBLOCK_BYTES);
		if (ret)
			log_warn("drop %s shard %u: %s", object->text, s, error_last());
	}
	embed->marked[object->id] = false;
}

int embed_drop_object(struct embed *embed, struct catalog_object *object)
{
	mark_dropped(embed, object);
	return catalog_drop(&embed->cat, object);
}

/* As find_object, to change it: -ECHILD after a fork. */
static int find_to_change(const struct embed *embed, const struct meta_object *object,
			  struct catalog_object **object_out)
{
	uint64_t state;
	int ret = find_object(embed, object, object_out);

	return ret ? ret
		   : transport_load((*object_out)->attached[0]->slots,
				    offsetof(struct region_superblock, state), &state);
}

static int embed_drop(struct meta *meta, const struct meta_object *object)
{
	struct embed *embed = embed_of(meta);
	struct catalog_object *table;
	int ret;

	lock_acquire(&embed->lock, &embed_lock);
	ret = find_to_change(embed, object, &table);
	if (ret == 0)
		ret = embed_drop_object(embed, table);
	lock_release(&embed->lock, &embed_lock);
	return ret;
}

/* Writes the object back to the file, the rows first: what the other regions say of them is true
   then. Unless a writer is open, clears the mark that makes a reopen read every row. */
static int persist_object(struct embed *embed, struct catalog_object *object)
{
	struct transport_target *target = embed->base.target;
	int ret = 0;

	for (uint32_t s = 0; ret == 0 && s < object->n_parts; s++)
		ret = target->ops->persist(target, object->parts[s].ids[REGION_ROWS], 0, 0);
	for (uint32_t s = 0; s < object->n_parts; s++)
		for (uint32_t role = REGION_TREE; ret == 0 && role < REGION_ROLES; role++)
			if (role != REGION_ROWS)
				ret = target->ops->persist(target, object->parts[s].ids[role], 0,
							   0);
	if (ret || slots_streams(&object->slots))
		return ret;
	embed->marked[object->id] = false;
	for (uint32_t s = 0; ret == 0 && s < object->n_parts; s++)
		ret = part_unmark(object->attached[s]);
	return ret;
}

static int embed_commit(struct meta *meta, const struct meta_object *object)
{
	struct embed *embed = embed_of(meta);
	struct catalog_object *table, *replaced = NULL;
	int ret;

	lock_acquire(&embed->lock, &embed_lock);
	ret = find_to_change(embed, object, &table);
	/* A power loss, too, leaves one of the two whole. */
	if (ret == 0 && embed->file && catalog_find(&embed->cat, table->name) != table)
		ret = persist_object(embed, table);
	if (ret == 0)
		ret = catalog_commit(&embed->cat, table, &replaced);
	if (replaced) {
		mark_dropped(embed, replaced);
		catalog_commit_end(&embed->cat, table, replaced);
	}
	lock_release(&embed->lock, &embed_lock);
	return ret;
}

static int embed_abandon(struct meta *meta, const struct meta_object *object)
{
	struct embed *embed = embed_of(meta);
	struct catalog_object *table;
	int ret;

	lock_acquire(&embed->lock, &embed_lock);
	ret = find_to_change(embed, object, &table);
	if (ret == 0 && table->loader)
		mark_dropped(embed, table);
	if (ret == 0)
		ret = catalog_abandon(&embed->cat, table);
	lock_release(&embed->lock, &embed_lock);
	return ret;
}

static int embed_list(struct meta *meta, uint32_t kind, char (*names)[RLV_NAME_BYTES],
		      size_t *n_inout)
{
	struct embed *embed = embed_of(meta);
	size_t n = 0;

	lock_acquire(&embed->lock, &embed_lock);
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
		const struct catalog_object *object =
			catalog_seen(&embed->cat, id, object_kind_find(kind));

		if (!object)
			continue;
		if (n < *n_inout)
			memcpy(names[n], object->name, RLV_NAME_BYTES);
		n++;
	}
	lock_release(&embed->lock, &embed_lock);
	*n_inout = n;
	return 0;
}

/* -------- slots -------- */

static int embed_slot_get(struct meta *meta, const struct meta_object *object, uint32_t streams,
			  int64_t timeout_ns, struct meta_slot *slot_out)
{
	struct embed *embed = embed_of(meta);
	struct catalog_object *known;
	int ret;

	(void)timeout_ns;
	lock_acquire(&embed->lock, &embed_lock);
	ret = find_object(embed, object, &known);
	if (ret == 0 && streams && embed->file && !embed->marked[known->id]) {
		/* Also where a process before us has set it, perhaps without an answer: it is to be
		   durable. */
		for (uint32_t s = 0; ret == 0 && s < known->n_parts; s++)
			ret = part_mark(known->attached[s]);
		embed->marked[known->id] = ret == 0;
		if (ret)
			ret = error_prefix(ret, "%s: write the mark of its rows: ", known->text);
	}
	if (ret == 0)
		ret = slots_get(&known->slots, &embed->self, streams, &slot_out->owner);
	lock_release(&embed->lock, &embed_lock);
	slot_out->lease = EMBED_CLIENT;
	return ret;
}

static int embed_slot_put(struct meta *meta, const struct meta_object *object,
			  const struct meta_slot *slot, int64_t timeout_ns)
{
	struct embed *embed = embed_of(meta);
	struct catalog_object *known;
	int ret;

	(void)timeout_ns;
	lock_acquire(&embed->lock, &embed_lock);
	known = catalog_find_same(&embed->cat, object->number, object->uuid, 16);
	ret = known ? slots_put(&known->slots, EMBED_CLIENT, slot->owner) : 0;
	lock_release(&embed->lock, &embed_lock);
	return ret;
}

/* -------- the rest -------- */

static int embed_info(struct meta *meta, struct rlv_store_info *out)
{
	struct embed *embed = embed_of(meta);

	lock_acquire(&embed->lock, &embed_lock);
	out->n_tables = catalog_count(&embed->cat, &kind_table);
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
	snprintf(node->why, sizeof(node->why), "in this process");
	return 0;
}

static int embed_persist(struct meta *meta)
{
	struct embed *embed = embed_of(meta);
	int ret = 0;

	if (!embed->file)
		return 0;
	lock_acquire(&embed->lock, &embed_lock);
	for (uint32_t id = 1; ret == 0 && id <= OBJECT_MAX_ID; id++)
		if (embed->cat.objects[id])
			ret = persist_object(embed, embed->cat.objects[id]);
	lock_release(&embed->lock, &embed_lock);
	return ret;
}

static void embed_free(struct embed *embed)
{
	catalog_fini(&embed->cat);
	transport_close(&embed->node.tr);
	transport_target_close(&embed->base.target);
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++)
		mem_free(embed->laps[id]);
	lock_fini(&embed->lock);
	meta_fini(&embed->base);
	mem_free(embed);
}

static void embed_close(struct meta *meta)
{
	if (embed_persist(meta))
		log_warn("store closed, but its file was not written back: %s", error_last());
	embed_free(embed_of(meta));
}

/* This process is the coordinator of all heaps. */
static int embed_heap_call(struct meta *meta, const struct meta_object *object,
			   const struct heap_access *acc, struct central_call *call)
{
	struct embed *embed = embed_of(meta);
	const struct heap_part_name name = { .object = object->number,
					     .part = acc->link.part,
					     .uuid = object->uuid,
					     .uuid_bytes = sizeof(object->uuid) };
	int ret;

	lock_acquire(&embed->lock, &embed_lock);
	ret = kind_heap_call(&embed->cat, &name, call);
	if (ret == 0)
		central_take(acc, call);
	lock_release(&embed->lock, &embed_lock);
	return ret;
}

static const struct meta_ops embed_ops = {
	.create = embed_create,
	.open = embed_open,
	.drop = embed_drop,
	.commit = embed_commit,
	.abandon = embed_abandon,
	.list = embed_list,
	.connect = meta_connect,
	.slot_get = embed_slot_get,
	.slot_put = embed_slot_put,
	.info = embed_info,
	.nodes = embed_nodes,
	.persist = embed_persist,
	.close = embed_close,
	.heap_call = embed_heap_call,
};

/* Gives a new pool a store uuid and the store name embed:PATH, for good. -EPERM: a memory node
   has kept the pool; it may hold parts of tables, which would look like incomplete tables here. */
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
		ret = random_fill(pool.store_uuid, sizeof(pool.store_uuid));
		if (ret == 0)
			ret = target->ops->own(target, pool.store_uuid, name);
	}
	memcpy(embed->store.ids.uuid, pool.store_uuid, sizeof(pool.store_uuid));
	return ret;
}

/* -------- open -------- */

static int open_catalog(struct embed *embed, bool trust)
{
	struct transport_target *target = embed->base.target;
	const struct transport_opts connect = { .target = target, .client_id = EMBED_CLIENT };
	struct node *node = &embed->node;

	*node = (struct node){
		.ops = &embed_node_ops,
		.name = "embed",
		.uri = "embed:",
		.incarnation = target->incarnation,
		.persistent = embed->file,
		.up = true,
	};
	embed->nodes = node;
	embed->store.ops = &embed_store_ops;
	embed->cat = (struct catalog){
		.store = &embed->store,
		.nodes = &embed->nodes,
		.clock = clock_monotonic(),
		.kind_of = object_kind_find,
		.name = "embed:",
		.trust = trust,
		.sole = true,
	};
	return transport_open(node->uri, &connect, &node->tr);
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
	struct embed *embed = mem_zalloc(sizeof(*embed));
	int ret;

	if (!embed)
		return error_set(-ENOMEM, "store: cannot allocate memory");
	meta_init(&embed->base, &embed_ops);
	atomic_init(&embed->base.client_id, EMBED_CLIENT);
	embed->file = path != NULL;
	embed->self.client_id = EMBED_CLIENT;
	lock_init(&embed->lock, &embed_lock);
	ret = process_self(&embed->self.process);
	if (ret == 0)
		ret = transport_target_open("shm", &target, &embed->base.target);
	if (ret == 0)
		ret = take_identity(embed, path);
	if (ret == 0)
		ret = open_catalog(embed, opts->trust);
	if (ret == 0)
		ret = catalog_load(&embed->cat);
	if (ret == 0 && path)
		ret = embed_reopen(embed);
	if (ret == 0)
		*meta_out = &embed->base;
	else
		embed_free(embed); /* what was not recovered stays as it is */
	return ret;
}
