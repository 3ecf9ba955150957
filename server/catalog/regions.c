/*
 * regions.c - ownership of the regions that a node reports; those of nobody are retired.
 *
 *   of a part or a provisioning   kept
 *   given up by this catalog       freed. The store records it before anything is freed or asked
 *                                  for: parts GONE, or LOST in memory; regions of dropped objects
 *                                  (leftovers); parts being provisioned
 *   unknown                        never freed unasked: the node is refused until an operator
 *                                  decides (adopt.c)
 *
 * A provisioning that a restart cut short does not prove that a region with opened blocks is
 * unused: the part may have been published after the restored copy of the catalog was taken. Such
 * a region is unknown.
 */
#include "server/catalog/arrival.h"

#include <stdio.h>
#include <string.h>

#include "wire/region.h"

/* -------- ownership -------- */

/* True if the region has that uuid, or no uuid, as with a damaged superblock: then the numbers
   decide. */
static bool has_uuid(const Relive__NodeRegion *region, const uint8_t uuid[16])
{
	return region->uuid.len != 16 || memcmp(region->uuid.data, uuid, 16) == 0;
}

static bool is_of_part(const Relive__NodeRegion *region, const struct catalog_object *object,
		       uint32_t s)
{
	uint8_t uuid[16];

	part_region_uuid(object->uuid, s, region->role, uuid);
	return region->kind == object->kind->id && region->object == object->id &&
	       region->part == s && has_uuid(region, uuid);
}

bool catalog_regions_of_part(const struct catalog_arrival *arrival,
			     const struct catalog_object *object, uint32_t s)
{
	const struct catalog_part *place = &object->parts[s];

	uint32_t found = 0; /* bit set of roles */

	for (size_t i = 0; i < arrival->n_regions; i++) {
		const Relive__NodeRegion *region = arrival->regions[i];

		if (region->role < REGION_ROLES && region->region == place->ids[region->role] &&
		    is_of_part(region, object, s))
			found |= 1u << region->role;
	}
	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++)
		if (!(found >> role & 1))
			return false;
	return true;
}

const Relive__NodeRegion *catalog_regions_find(const struct catalog_arrival *arrival,
					       const Relive__NodeRegion *like, uint32_t role)
{
	for (size_t i = 0; i < arrival->n_regions; i++) {
		const Relive__NodeRegion *region = arrival->regions[i];

		if (region->kind == like->kind && region->object == like->object &&
		    region->part == like->part && region->role == role)
			return region;
	}
	return NULL;
}

/* Sets *was_out: the region was being provisioned at the node and was never used: it is not
   formatted, or, where its kind is known, no client ever changed its part. Store errors. */
static int was_being_made(const struct catalog *cat, const struct catalog_arrival *arrival,
			  const Relive__NodeRegion *region, bool *was_out)
{
	struct store_making provisioning = {
		.kind = region->kind,
		.object = region->object,
		.part = region->part,
	};
	const Relive__NodeRegion *tree = catalog_regions_find(arrival, region, REGION_TREE);
	bool unused = region->uuid.len == 0 ||
		      (object_kind_find(region->kind) && tree && tree->has &&
		       tree->has->n_told == PART_TOLD && !tree->has->told[PART_TOLD_USED]);
	uint8_t uuid[16];
	int ret;

	snprintf(provisioning.node, sizeof(provisioning.node), "%s", arrival->news->name);
	ret = store_find(cat->store, STORE_MAKINGS, &provisioning, was_out);
	if (ret || !*was_out)
		return ret;
	part_region_uuid(provisioning.uuid, region->part, region->role, uuid);
	*was_out = provisioning.kind == region->kind && has_uuid(region, uuid) && unused;
	return 0;
}

int catalog_region_owner(const struct catalog *cat, const struct catalog_arrival *arrival, size_t i,
			 enum region_owner *owner_out)
{
	const Relive__NodeRegion *region = arrival->regions[i];
	const struct node *node = arrival->node;
	const struct catalog_object *object =
		region->object <= OBJECT_MAX_ID ? cat->objects[region->object] : NULL;
	const struct catalog_part *place =
		object && region->part < object->n_parts ? &object->parts[region->part] : NULL;
	struct store_leftover left = { .region = region->region };
	bool none = false;
	int ret;

	*owner_out = OWNER_PART;
	if (node && place && place->node == node && region->role < REGION_ROLES &&
	    place->ids[region->role] == region->region &&
	    is_of_part(region, object, region->part)) {
		/* The file of a lost part is kept: it was not drained, and may be adopted again. */
		if (!catalog_state_is_usable(place->state))
			*owner_out = place->state == PART_GONE || !node->persistent ? OWNER_NONE
										    : OWNER_UNKNOWN;
		return 0;
	}
	if (node && catalog_provision_owns(cat, node, region->region))
		return 0;
	snprintf(left.node, sizeof(left.node), "%s", arrival->news->name);
	ret = store_find(cat->store, STORE_LEFTOVERS, &left, &none);
	none = none && has_uuid(region, left.uuid);
	if (ret == 0 && !none)
		ret = was_being_made(cat, arrival, region, &none);
	*owner_out = none ? OWNER_NONE : OWNER_UNKNOWN;
	return ret;
}
