/*
 * Arrival: memory nodes that register with the metadata server, and leave. Their pools bring regions,
 * whose owners are found (regions.c), and tables that the catalog may adopt (adopt.c).
 */
#ifndef RLV_SERVER_CATALOG_ARRIVAL_H
#define RLV_SERVER_CATALOG_ARRIVAL_H

#include "catalog/catalog.h"

#include "server/node/nodes.h"

#include "wire/control.pb-c.h"

#include "base/error.h"

/* A node that wants to join, with the contents of its pool. */
struct catalog_arrival {
	struct node *node; /* catalog_admit: the known node, or NULL */
	bool replaced;     /* the incarnation differs from the known one */
	const struct node_news *news;
	const Relive__NodeRegion *const *regions;
	size_t n_regions;
	uint8_t store_uuid[16]; /* store that owns the pool; zero: none yet */
	const char *store_name;
	uint32_t claim; /* enum Relive__PoolClaim: an operator's decision */
};

/* -------- regions (regions.c) -------- */

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

/* -------- nodes -------- */

/*
 * Checks whether the node may join with its pool. Changes nothing. -EPERM: the pool belongs to
 * another store, holds regions unknown to the catalog, or is not this node's pool; the message
 * names it. -EEXIST: an object to adopt has the name or id of another object. Store errors.
 */
RLV_MUST_CHECK int catalog_admit(struct catalog *cat, const struct catalog_arrival *arrival);

/*
 * Takes in a node that has joined: adopts objects and records regions to free, in one transaction.
 * After a store error nothing has changed.
 */
RLV_MUST_CHECK int catalog_take(struct catalog *cat, const struct catalog_arrival *arrival);

/* Run after catalog_take: attaches our regions, marks lost ones, frees those given up. Failures
   are logged. */
void catalog_node_up(struct catalog *cat, const struct catalog_arrival *arrival);
/*
 * A down node is about to be forgotten: its parts, which are LOST or GONE, no longer refer to it.
 * -EBUSY: some parts would return with it, or are being provisioned there.
 */
RLV_MUST_CHECK int catalog_node_forget(struct catalog *cat, const struct node *node);
/* The node disconnected: detach the regions that need its connection. */
void catalog_node_down(struct catalog *cat, struct node *node);
/* Mark the node's parts LOST. */
void catalog_node_lost(struct catalog *cat, struct node *node);

/* Number of the node's existing parts, over all objects; leaving_out: drain progress, or NULL. */
struct catalog_leaving {
	uint64_t items_left, items_begin;
};

uint32_t catalog_parts_of(const struct catalog *cat, const struct node *node,
			  struct catalog_leaving *leaving_out);

#endif
