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

/* Finds who owns region i of the arrival: a part or provisioning, nobody (given up), or an owner
   unknown to the catalog. Store errors. */
RLV_MUST_CHECK int catalog_region_owner(const struct catalog *cat,
					const struct catalog_arrival *arrival, size_t i,
					enum region_owner *owner_out);

/* True if the arriving node reports all regions of part s of the object, with the recorded ids and
   the right uuids. */
bool catalog_regions_of_part(const struct catalog_arrival *arrival,
			     const struct catalog_object *object, uint32_t s);

/* Find the arrival's region of that role in the same part as `like`; NULL: none. */
const Relive__NodeRegion *catalog_regions_find(const struct catalog_arrival *arrival,
					       const Relive__NodeRegion *like, uint32_t role);

/* -------- nodes -------- */

/*
 * Checks whether the node may join with its pool. Changes nothing. -EPERM: the pool belongs to
 * another store, holds regions unknown to the catalog, or is not this node's pool, and
 * arrival->claim does not decide that; or an object to adopt is not whole. The message names it.
 * -EEXIST: an object to adopt has the name or id of another object. -ENOMEM. Store errors.
 */
RLV_MUST_CHECK int catalog_admit(struct catalog *cat, const struct catalog_arrival *arrival);

/*
 * Takes in a node that has joined: adopts objects of its pool if arrival->claim says so, and
 * records in the store the regions to free, in one transaction. After a store error nothing has
 * changed.
 */
RLV_MUST_CHECK int catalog_take(struct catalog *cat, const struct catalog_arrival *arrival);

/* Run after catalog_take: attaches the node's parts, marks those LOST whose regions it no longer
   has, and frees the regions that were given up. Failures are logged. */
void catalog_node_up(struct catalog *cat, const struct catalog_arrival *arrival);
/*
 * Run before a down node is forgotten: detaches its parts, which must be LOST or GONE, and makes
 * them refer to no node. -EBUSY: it has parts in another state, which would return with it, or a
 * part is being provisioned there.
 */
RLV_MUST_CHECK int catalog_node_forget(struct catalog *cat, const struct node *node);
/* The node disconnected: detaches its parts and closes the transport to it, unless its pool is
   plain memory that this host has mapped. */
void catalog_node_down(struct catalog *cat, struct node *node);
/* Marks the node's parts LOST, in the store and (ORPHANED) in memory still attached, and detaches
   them. */
void catalog_node_lost(struct catalog *cat, struct node *node);

/* Number of the node's existing parts, over all objects; leaving_out: drain progress, or NULL. */
struct catalog_leaving {
	uint64_t items_left, items_begin;
};

uint32_t catalog_parts_of(const struct catalog *cat, const struct node *node,
			  struct catalog_leaving *leaving_out);

/* -ENOTSUP: the node holds a part that cannot leave it. */
RLV_MUST_CHECK int catalog_may_drain(const struct catalog *cat, const struct node *node);

#endif
