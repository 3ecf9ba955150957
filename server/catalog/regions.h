/*
 * Regions: ownership of the regions that a node reports; those of nobody are retired.
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
#ifndef RLV_SERVER_CATALOG_REGIONS_H
#define RLV_SERVER_CATALOG_REGIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/control.pb-c.h"

#include "base/error.h"

struct catalog;
struct catalog_arrival;
struct catalog_object;

enum region_owner {
	OWNER_PART, /* owned by a part or a provisioning */
	OWNER_NONE, /* given up */
	OWNER_UNKNOWN,
	OWNER_ADOPTED, /* unknown, and to be adopted: adopt.c */
};

/* Owner of region i of the arrival. Store errors. */
RLV_MUST_CHECK int catalog_region_owner(const struct catalog *cat,
					const struct catalog_arrival *arrival, size_t i,
					enum region_owner *owner_out);

/* True if the node has all regions of the part. */
bool catalog_regions_of_part(const struct catalog_arrival *arrival,
			     const struct catalog_object *object, uint32_t s);

/* Find the arrival's region of that role in the same part as `like`; NULL: none. */
const Relive__NodeRegion *catalog_regions_find(const struct catalog_arrival *arrival,
					       const Relive__NodeRegion *like, uint32_t role);

#endif
