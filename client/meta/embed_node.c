/*
 * embed_node.c - the pool of this process as the node of its catalog, and the store of that catalog.
 */
#include "client/meta/embed.h"

#include "base/mem/alloc.h"
#include "base/bits.h"

#include <errno.h>
#include <stddef.h>

/* -------- node -------- */

static struct transport_target *target_of(struct node *node)
{
	char *embed = (char *)node - offsetof(struct embed, node);

	return ((struct embed *)(void *)embed)->base.target;
}

static int embed_grant(struct node *node, const struct node_wish *wish,
		       struct region_grant *grant_out)
{
	struct transport_target *target = target_of(node);

	return target->ops->grant(target, EMBED_CLIENT, &wish->range, wish->rights, grant_out);
}

static int embed_attach(struct node *node, const uint32_t *ids, uint32_t n,
			struct region **regions_out)
{
	uint32_t i = 0;
	int ret = 0;

	for (; ret == 0 && i < n; i++) {
		struct region_grant grant;

		ret = transport_grant(target_of(node), EMBED_CLIENT, ids[i], RIGHT_ALL, &grant);
		if (ret == 0)
			ret = transport_attach(node->tr, &grant, &regions_out[i]);
	}
	for (i -= ret != 0; ret && i > 0; i--)
		transport_detach(&regions_out[i - 1]);
	return ret;
}

static int embed_region_new(struct node *node, const struct target_region *spec,
			    node_region_done done, void *ctx)
{
	struct transport_target *target = target_of(node);
	struct target_region made = *spec;
	int ret = target->ops->register_region(target, &made);

	done(ctx, node, ret, made.id);
	return 0;
}

static int embed_region_free(struct node *node, uint32_t region, node_region_done done, void *ctx)
{
	struct transport_target *target = target_of(node);

	done(ctx, node, target->ops->unregister_region(target, region), region);
	return 0;
}

/* Its node never leaves: it has no close. */
const struct node_ops embed_node_ops = {
	.region_new = embed_region_new,
	.region_free = embed_region_free,
	.grant = embed_grant,
	.attach = embed_attach,
};

/* -------- store -------- */

static struct embed *embed_of_store(struct catalog_store *store)
{
	return (struct embed *)(void *)((char *)store - offsetof(struct embed, store));
}

/* Keeps records of laps in embed->laps, so that generations of a dropped table never repeat;
   ignores all other records. -ENOMEM. */
static int embed_put(struct catalog_store *store, enum store_rows rows, const void *record)
{
	struct embed *embed = embed_of_store(store);
	const struct store_lap *lap = record;
	uint64_t **laps;

	if (rows != STORE_LAPS)
		return 0;
	laps = &embed->laps[lap->table_id];
	if (!*laps)
		*laps = mem_array(OBJECT_MAX_PARTS, sizeof(uint64_t));
	if (!*laps)
		return error_set(-ENOMEM, "catalog: cannot allocate memory");
	(*laps)[lap->shard] = lap->first;
	return 0;
}

static int embed_find(struct catalog_store *store, enum store_rows rows, void *record,
		      bool *found_out)
{
	const struct embed *embed = embed_of_store(store);
	struct store_lap *lap = record;

	*found_out = rows == STORE_LAPS && embed->laps[lap->table_id];
	if (*found_out)
		lap->first = embed->laps[lap->table_id][lap->shard];
	return 0;
}

const struct store_ops embed_store_ops = {
	.put = embed_put,
	.find = embed_find,
};
