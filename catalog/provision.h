/*
 * Provisioning: creates the regions of new parts. Nodes are asked for one region after the other
 * without blocking the server, because zeroing and pinning take time in proportion to size.
 *
 *   begun ---> region requested --> answer ---+--> attached, formatted ---> all parts made: the
 *                    ^                        |           |                 caller publishes them
 *                    +--- next region; or the +-----------+                 (make.c)
 *                         next node, if this
 *                         one has no room, is +--> no node is left: failed
 *                         gone, or cannot be
 *                         reached
 *
 * The caller calls again while the answer is -EAGAIN; catalog_ops.on_progress says when. A
 * provisioning owns its regions: they are not freed if their node registers meanwhile.
 */
#ifndef RLV_CATALOG_PROVISION_H
#define RLV_CATALOG_PROVISION_H

#include <stdbool.h>
#include <stdint.h>

#include "catalog/object.h"

#include "base/error.h"

struct catalog;

struct catalog_provisioning {
	struct catalog_provisioning *next;
	struct catalog *cat;
	struct catalog_object *object; /* gets the parts; NULL = given up, a node owes an answer */
	bool is_new;                   /* the object is new: not in the catalog yet */
	uint32_t first, n;             /* part numbers */
	struct node *only;             /* required node; NULL = chosen by placement */
	struct node *leaves;           /* node that a part leaves afterwards, or NULL */
	uint32_t at;                   /* part whose regions are being requested */
	uint64_t tried;                /* bit set of node numbers that cannot take it */
	bool waiting;                  /* a node owes an answer */
	struct error_kept refusal;     /* error of the last such node; code 0: none */
};

/*
 * Starts a provisioning, in the catalog's list. Reads from like: object, is_new, first, n, only,
 * leaves. -ENOMEM.
 */
RLV_MUST_CHECK int catalog_provision_begin(struct catalog *cat,
					   const struct catalog_provisioning *like,
					   struct catalog_provisioning **provisioning_out);

/* Find the provisioning of an object; NULL: none. */
struct catalog_provisioning *catalog_provision_of(const struct catalog *cat,
						  const struct catalog_object *object);
/*
 * Finds the provisioning of a new object that has this id or this name; id 0 or name NULL: only the
 * other one counts. Returns NULL if there is none.
 */
struct catalog_provisioning *catalog_provision_of_new(const struct catalog *cat, uint32_t id,
						      const char *name);

/*
 * Goes on with a provisioning: requests missing regions, and forms parts. 0: all parts are made, on
 * nodes that are up; -EAGAIN: waiting for a node. Failed: -EHOSTDOWN (no node is up), or the error
 * of the last node tried (-ENOSPC, ..).
 */
RLV_MUST_CHECK int catalog_provision_run(struct catalog_provisioning *provisioning);

/* Ends and frees the provisioning; the regions made, if any, now belong to the object. */
void catalog_provision_end(struct catalog_provisioning *provisioning);
/*
 * The object is removed: ends the provisioning. If a node still makes a region for it, it ends with
 * the answer of the node, and the region is freed.
 */
void catalog_provision_abandon(struct catalog_provisioning *provisioning);
/* Frees all provisionings, and the objects that were being created; no node is told. */
void catalog_provision_forget_all(struct catalog *cat);

/*
 * Our connection to the node's memory closes: detaches the parts that are being made there; they
 * are attached again later.
 */
void catalog_provision_detach(const struct catalog *cat, const struct node *node);

/* True if a part that is being made at the node has the region; region 0: with any or none. */
bool catalog_provision_owns(const struct catalog *cat, const struct node *node, uint32_t region);
/* True if a provisioning makes a part at the node, requires the node, or replaces a part of it. */
bool catalog_provision_uses(const struct catalog *cat, const struct node *node);

#endif
