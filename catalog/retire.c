/*
 * retire.c - regions that the catalog gives up.
 */
#include "catalog/catalog.h"

#include <errno.h>
#include <string.h>

#include "wire/region.h"

#include "base/mem/alloc.h"
#include "base/log.h"

/* -------- freeing -------- */

/*
 * Called when the node has freed a region, or failed to. Once it has freed all that it was asked
 * to, its leftover records are deleted: while it is up, each recorded leftover is requested at
 * once.
 */
static void on_freed(void *ctx, struct node *node, int code, uint32_t region)
{
	struct catalog *cat = ctx;
	struct store_leftover all = { .region = 0 };

	if (code)
		log_warn("free region %u of node %s: %s", region, node->name, error_name(code));
	node->freeing--;
	node->kept |= code != 0;
	memcpy(all.node, node->name, sizeof(all.node));
	if (node->freeing == 0 && !node->kept && store_delete(cat->store, STORE_LEFTOVERS, &all, 1))
		log_warn("node %s: %s", node->name, error_last());
}

void catalog_free_region(struct catalog *cat, struct node *node, uint32_t id)
{
	node->freeing++;
	if (node->ops->region_free(node, id, on_freed, cat) == 0)
		return;
	node->freeing--;
	node->kept = true;
	log_warn("free region %u of node %s: %s", id, node->name, error_last());
}

/* A region to free once its users can be told. The node counts it as being freed meanwhile. */
struct catalog_retirement {
	struct catalog_retirement *next;
	struct node *node;
	uint64_t incarnation; /* incarnation of the node */
	uint32_t id;
	uint32_t state;
};

static bool is_of_this_life(const struct catalog_retirement *gone)
{
	return gone->node->up && gone->node->incarnation == gone->incarnation;
}

/*
 * Sets the state word that mapped users read, then frees the region's memory; if its node is down
 * or restarted, the region stays a leftover. -EAGAIN: waiting for its node.
 */
static int region_retire(struct catalog *cat, const struct catalog_retirement *gone)
{
	const uint64_t word = gone->state;
	struct node *node = gone->node;
	struct region *region;
	int ret;

	if (!is_of_this_life(gone)) { /* it stays a leftover */
		node->freeing--;
		node->kept = true;
		return 0;
	}
	ret = node->ops->attach(node, &gone->id, 1, &region);
	if (ret == -EAGAIN && node->ops->is_attaching(node))
		return ret;
	if (ret == 0) {
		ret = transport_store(region, offsetof(struct region_superblock, state), &word,
				      sizeof(word));
		transport_detach(&region);
	}
	if (ret)
		log_warn("retire region %u of node %s: %s", gone->id, node->name, error_last());
	node->freeing--;
	catalog_free_region(cat, node, gone->id);
	return 0;
}

bool catalog_retire_tick(struct catalog *cat)
{
	struct catalog_retirement **link = &cat->retirements;

	while (*link) {
		struct catalog_retirement *gone = *link;

		if (region_retire(cat, gone) == -EAGAIN) {
			link = &gone->next;
			continue;
		}
		*link = gone->next;
		mem_free(gone);
	}
	return cat->retirements;
}

void catalog_retire_forget(struct catalog *cat)
{
	while (cat->retirements) {
		struct catalog_retirement *gone = cat->retirements;

		cat->retirements = gone->next;
		mem_free(gone);
	}
}

void catalog_retire_region(struct catalog *cat, struct node *node, uint32_t id, uint32_t state)
{
	struct catalog_retirement *gone = cat->retirements;

	while (gone && (gone->node != node || gone->id != id || !is_of_this_life(gone)))
		gone = gone->next;
	if (id == 0 || gone)
		return;
	gone = mem_alloc(sizeof(*gone));
	if (!gone) {
		node->kept = true;
		log_warn("retire region %u of node %s: no memory", id, node->name);
		return;
	}
	*gone = (struct catalog_retirement){ cat->retirements, node, node->incarnation, id, state };
	node->freeing++;
	if (region_retire(cat, gone) == -EAGAIN)
		cat->retirements = gone;
	else
		mem_free(gone);
}

void catalog_retire_part(struct catalog *cat, struct catalog_object *object, uint32_t s,
			 uint32_t state)
{
	struct catalog_part *place = &object->parts[s];
	struct node *node = place->node;
	/* A persistent pool has the same regions in each incarnation of its node. */
	bool has_it = node && node->up &&
		      (node->persistent || place->incarnation == node->incarnation);

	if (object->attached[s] && part_set_state(object->attached[s], state))
		log_warn("retire %s shard %u: %s", object->text, s, error_last());
	catalog_part_detach(object, s);
	for (uint32_t role = REGION_TREE; has_it && role < REGION_ROLES; role++)
		catalog_retire_region(cat, node, place->ids[role], state);
}

void catalog_retire_object(struct catalog *cat, struct catalog_object *object)
{
	for (uint32_t s = 0; s < object->n_parts; s++)
		if (!catalog_part_is_lost(object, s) ||
		    object->parts[s].drain.phase == DRAIN_LEAVING)
			catalog_retire_part(cat, object, s, REGION_DROPPED);
}
