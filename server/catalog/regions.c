#include "server/catalog/arrival.h"
#include "catalog/kinds.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "wire/region.h"

#include "base/mem/alloc.h"
#include "base/log.h"

/* -------- ownership -------- */

/* A damaged superblock has no uuid: then the numbers decide. */
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

	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++) {
		bool found = false;

		for (size_t i = 0; i < arrival->n_regions && !found; i++) {
			const Relive__NodeRegion *region = arrival->regions[i];

			found = region->region == place->ids[role] && region->role == role &&
				is_of_part(region, object, s);
		}
		if (!found)
			return false;
	}
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

/* The catalog part that has or had the region; NULL: none. */
static const struct catalog_part *find_part(const struct catalog *cat, const struct node *node,
					    const Relive__NodeRegion *region)
{
	const struct catalog_object *object =
		region->object <= OBJECT_MAX_ID ? cat->objects[region->object] : NULL;
	const struct catalog_part *place;

	if (!node || !object || region->part >= object->n_parts)
		return NULL;
	place = &object->parts[region->part];
	if (place->node != node || !is_of_part(region, object, region->part))
		return NULL;
	return region->role < REGION_ROLES && region->region == place->ids[region->role] ? place
											 : NULL;
}

/* The file of a lost part is kept: it was not drained, and may be adopted again. */
static enum region_owner owner_by(const struct catalog_part *shard)
{
	if (catalog_state_is_usable(shard->state))
		return OWNER_PART;
	return shard->state == PART_GONE || !shard->node->persistent ? OWNER_NONE : OWNER_UNKNOWN;
}

/* And was never used: it is not formatted, or, where its kind is known, no client ever changed it. */
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

static int was_given_up(const struct catalog *cat, const struct catalog_arrival *arrival,
			const Relive__NodeRegion *region, bool *was_out)
{
	struct store_leftover left = { .region = region->region };
	int ret;

	snprintf(left.node, sizeof(left.node), "%s", arrival->news->name);
	ret = store_find(cat->store, STORE_LEFTOVERS, &left, was_out);
	if (ret == 0 && *was_out)
		*was_out = has_uuid(region, left.uuid);
	return ret;
}

int catalog_region_owner(const struct catalog *cat, const struct catalog_arrival *arrival, size_t i,
			 enum region_owner *owner_out)
{
	const Relive__NodeRegion *region = arrival->regions[i];
	const struct catalog_part *shard = find_part(cat, arrival->node, region);
	bool none = false;
	int ret;

	*owner_out = shard ? owner_by(shard) : OWNER_PART;
	if (shard || (arrival->node && catalog_provision_owns(cat, arrival->node, region->region)))
		return 0;
	ret = was_given_up(cat, arrival, region, &none);
	if (ret == 0 && !none)
		ret = was_being_made(cat, arrival, region, &none);
	*owner_out = none ? OWNER_NONE : OWNER_UNKNOWN;
	return ret;
}
