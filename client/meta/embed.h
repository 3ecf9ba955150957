/*
 * Embed: a store within this process. The catalog is that of the metadata server (catalog/catalog.h),
 * over one node, the pool of this process, and a store that forgets: with a file the regions
 * themselves say what there is (embed_reopen.c). Shared by the files of the embedded control plane.
 */
#ifndef RLV_CLIENT_META_EMBED_H
#define RLV_CLIENT_META_EMBED_H

#include "client/meta/meta.h"

#include "catalog/catalog.h"

#include "base/os/lock.h"

#define EMBED_CLIENT 1u /* client id of all handles */

struct embed {
	struct meta base;
	struct lock lock; /* all below */
	struct catalog cat;
	struct node node, *nodes; /* the pool, and the list of it */
	struct catalog_store store;
	uint64_t *laps[OBJECT_MAX_ID + 1]; /* by object and part: all that the store keeps */
	bool marked[OBJECT_MAX_ID + 1];    /* by us, durably: rows may be stored (wire/region.h) */
	bool file;
	struct slot_holder self;
};

extern const struct node_ops embed_node_ops;
extern const struct store_ops embed_store_ops;

/* Marks all parts of the object as dropped, in a file durably, then drops the object and frees
   its regions: after a crash between, embed_reopen frees the rest. A failed mark is only logged. */
RLV_MUST_CHECK int embed_drop_object(struct embed *embed, struct catalog_object *object);

/*
 * Makes the catalog from the regions of a reopened file, recovers each part, and frees tables that
 * were dropped or never complete. The exclusive lock is held, so the previous process is gone. All
 * regions are checked before any is changed. -EPROTO, -EBADMSG: the file has another format, or is
 * damaged. -ENOMEM.
 */
RLV_MUST_CHECK int embed_reopen(struct embed *embed);

#endif
