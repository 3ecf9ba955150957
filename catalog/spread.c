/*
 * spread.c - carries out the decisions of placement.h: adds parts on nodes that have too few,
 * drains parts of nodes that have too many or are draining.
 */
#include "catalog/catalog.h"

#include <errno.h>

#include "base/bits.h"
#include "base/log.h"

/*
 * Drains the ACTIVE part with the highest number at the node, which was added last. added: the
 * result of adding its successor. After an error nothing drains and that error is returned; but if
 * no node had room and the node is draining, the part goes without a successor, unless it is the
 * last part.
 */
static int part_leaves(struct catalog *cat, struct catalog_object *object,
		       const struct node *leaves, int added)
{
	bool no_room = added == -ENOSPC || added == -ENOMEM;
	uint32_t active = 0, last = object->n_parts;

	for (uint32_t s = 0; s < object->n_parts; s++) {
		if (object->parts[s].state != PART_ACTIVE)
			continue;
		active++;
		if (object->parts[s].node == leaves)
			last = s;
	}
	if (added && !(no_room && leaves->draining && active > 1))
		return added;
	return last < object->n_parts ? catalog_drain(cat, object, last) : 0;
}

/* A step of a kind that knows which part is missing, or has to leave. */
static int spread_missing(struct catalog *cat, struct catalog_object *object,
			  enum placement_kind *kind_out)
{
	uint32_t leaver = object->kind->leaver ? object->kind->leaver(object) : UINT32_MAX;
	int ret;

	if (leaver != UINT32_MAX) {
		ret = catalog_drain(cat, object, leaver);
		return ret ? ret : 1;
	}
	if (!catalog_provision_of(cat, object) && object->kind->missing(object) == UINT32_MAX)
		return 0;
	ret = catalog_add_part(cat, object, NULL, NULL);
	if (ret && ret != -EAGAIN)
		log_warn("spread %s: %s", object->text, error_last());
	if (kind_out)
		*kind_out = PLACEMENT_ADD;
	return ret ? ret : 1;
}

int catalog_spread_step(struct catalog *cat, struct catalog_object *object,
			enum placement_kind *kind_out)
{
	struct placement_node places[NODES_MAX];
	struct node *nodes[NODES_MAX], *to, *leaves = NULL;
	const struct catalog_provisioning *provisioning = catalog_provision_of(cat, object);
	uint32_t n = catalog_places(cat, object, places, nodes), takers = 0;
	struct placement_step step;
	int ret;

	if (object->kind->missing)
		return spread_missing(cat, object, kind_out);
	if (provisioning) {
		to = provisioning->only;
		leaves = provisioning->leaves;
	} else {
		for (uint32_t i = 0; i < n; i++)
			takers += places[i].takes;
		/* as many parts as the capacity was cut into, or one per node if requested */
		step = placement_next(places, n,
				      object->auto_parts && takers > object->n_cut ? takers
										   : object->n_cut);
		if (step.kind == PLACEMENT_DONE)
			return 0;
		if (step.kind == PLACEMENT_STUCK)
			return error_set(-EHOSTDOWN,
					 "no memory node is up that could take the shards");
		to = nodes[step.to];
		if (step.kind == PLACEMENT_MOVE)
			leaves = nodes[step.from];
	}
	ret = catalog_add_part(cat, object, to, leaves);
	if (ret == -EAGAIN)
		return ret;
	if (ret)
		log_warn("spread %s: %s", object->text, error_last());
	if (leaves)
		ret = part_leaves(cat, object, leaves, ret);
	if (kind_out)
		*kind_out = leaves ? PLACEMENT_MOVE : PLACEMENT_ADD;
	return ret ? ret : 1;
}

bool catalog_spread_tick(struct catalog *cat, struct catalog_object *object)
{
	/* A node that could not take a part may be able to soon. */
	const uint64_t again_last = 64 * (uint64_t)CLOCK_NS_PER_S;
	uint64_t now = clock_now_ns(cat->clock);
	int ret;

	if (!object->spread_due || now < object->spread_after)
		return false;
	ret = catalog_spread_step(cat, object, NULL);
	object->spread_due = ret != 0;
	if (ret >= 0 || ret == -EAGAIN) {
		object->spread_pause = CATALOG_AGAIN_NS;
		return ret != 0;
	}
	object->spread_after = now + object->spread_pause;
	object->spread_pause = min_u64(2 * object->spread_pause, again_last);
	return false;
}
