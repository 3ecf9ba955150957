/*
 * layout.c - layouts for clients: state and weight of an object's parts, in versions, and grants on
 * them.
 */
#include "catalog/catalog.h"

#include <errno.h>

#include "base/log.h"

#define WEIGHT_FIRST 100u /* of PART_WEIGHT_FULL */

/*
 * Gives the object the next layout version and stores its number: a version lost in a restart would
 * hide later changes from clients that know a newer one.
 */
void catalog_changed(struct catalog *cat, struct catalog_object *object)
{
	object->layout = ++cat->layout;
	if (store_number_put(cat->store, "layout", cat->layout))
		log_error("%s: layout: %s", object->text, error_last());
}

void catalog_refresh(struct catalog *cat, struct catalog_object *object)
{
	bool changed = false;

	for (uint32_t s = 0; s < object->n_parts; s++) {
		struct catalog_part *shard = &object->parts[s];
		uint32_t view = catalog_part_view(object, s);

		changed |= shard->announced != view;
		shard->announced = view;
	}
	if (changed)
		catalog_changed(cat, object);
}

bool catalog_is_in_grace(const struct catalog *cat)
{
	return clock_now_ns(cat->clock) < cat->grace_until;
}

uint64_t catalog_newest_layout(const struct catalog *cat)
{
	return catalog_is_in_grace(cat) ? 0 : cat->layout;
}

bool catalog_is_known(const struct catalog *cat, uint64_t layout, uint64_t since)
{
	return cat->ops->all_know(cat->ctx, layout) ||
	       clock_now_ns(cat->clock) >= since + cat->patience_ns;
}

uint32_t catalog_weight(const struct catalog *cat, const struct catalog_part *shard,
			uint64_t *ramp_ns_out)
{
	const uint32_t full = PART_WEIGHT_FULL;
	uint64_t ramp = cat->ramp_ns ? cat->ramp_ns : CATALOG_RAMP_NS;
	uint64_t age = clock_now_ns(cat->clock) - shard->since;

	if (shard->since == 0 || age >= ramp) {
		*ramp_ns_out = 0;
		return full;
	}
	*ramp_ns_out = ramp - age;
	return WEIGHT_FIRST +
	       (uint32_t)((double)(full - WEIGHT_FIRST) * (double)age / (double)ramp);
}

int catalog_grant(struct catalog_object *object, uint32_t s, const struct catalog_guest *guest,
		  struct catalog_grants *out)
{
	const struct catalog_part *place = &object->parts[s];
	struct node_wish wish = { .asker = guest->asker, .client_id = guest->client_id };
	int first = 0;

	for (uint32_t at = REGION_TREE; at < PART_PLACES; at++) {
		uint32_t role =
			part_grant_of(guest->access, guest->owner, at, &wish.range, &wish.rights);
		int ret = 0;

		out->places[at] = (struct region_grant){ .bytes = 0 };
		wish.range.region = place->ids[role];
		if (role)
			ret = place->node->ops->grant(place->node, &wish, &out->places[at]);
		if (ret && (first == 0 || first == -EAGAIN))
			first = ret;
	}
	return first;
}
