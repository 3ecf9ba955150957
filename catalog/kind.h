/*
 * Kind: operations that the catalog needs for objects of one kind, in addition to those on parts
 * (ds/part/part.h). Placement, client slots, liveness, drain, spread, repair and recovery work on
 * parts, and call these hooks for the contents. A kind is one folder in ds/ and one file here,
 * kind_NAME.c, listed in kinds.c.
 *
 * A hook that may be NULL is optional. "object" is the catalog's record of the object; part s is
 * its part with number s.
 */
#ifndef RLV_CATALOG_KIND_H
#define RLV_CATALOG_KIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ds/part/part.h"

struct catalog;
struct catalog_object;
struct catalog_wish;
struct clock;
struct rebuild_opts;
struct rebuild_report;
struct recovery; /* each kind's own */

#define KIND_TEXT_BYTES 96

struct object_ids {
	uint32_t id;
	uint8_t uuid[16];
};

struct object_desc {
	void *bytes; /* of mem_alloc */
	size_t len;
};

/* A client's request for a new object: unchecked; fields that a kind has no use for are ignored. */
struct kind_request {
	const void *desc; /* as the kind's clients write it */
	size_t len;
	bool auto_parts, crc_by_nodes;
	uint32_t block;
	const uint32_t *fanout;
	size_t n_fanout;
};

/* What object_kind.mend found. */
enum mend {
	MEND_NOTHING,
	MEND_LATER, /* something is missing, which cannot be made now, or without a client slot */
	MEND_NOW,   /* a piece was made: call again */
};

struct object_kind {
	const char *name, *part; /* words of messages: "table", "shard" */
	uint32_t id;             /* enum kind_id */

	/*
	 * The descriptor of an object is opaque to the catalog, which stores it.
	 * take_wish: checks a client's request and makes the wish's details of it, one block of
	 * mem_alloc that the caller frees. name: that of the request, which a kind may replace by
	 * that in its descriptor. -EPROTO, -EBADMSG, -ENOMEM.
	 * describe: writes that of a new object of this wish, for the nodes that are up; the
	 * caller frees it. -EINVAL, -ENOSPC, ...
	 * load: checks it, and sets the object's uuid, name, n_cut, max_clients, max_streams,
	 * state, which is one block of mem_alloc, and desc: the descriptor, which lies in the
	 * state. object->id is set. -EBADMSG, -EPROTO, -ENOMEM.
	 * is_wish_of: true if the object results from this wish.
	 */
	int (*take_wish)(const struct kind_request *request, const void **details_out,
			 char name[OBJECT_NAME_BYTES]);
	int (*describe)(const struct catalog *cat, const struct catalog_wish *wish,
			const struct object_ids *ids, struct object_desc *desc_out);
	int (*load)(struct catalog_object *object, const void *desc, size_t len);
	bool (*is_wish_of)(const struct catalog_object *object, const struct catalog_wish *wish);
	/* Reserve in the state database what part s needs; in a transaction. told: words of its
	   regions, by enum part_told, if a pool brings the part; NULL: it is new. May be NULL. */
	int (*reserve)(struct catalog *cat, const struct catalog_object *object, uint32_t s,
		       const uint64_t told[PART_TOLD]);

	/* True if parts a and b must lie at different nodes. NULL: none must. */
	bool (*is_apart)(const struct catalog_object *object, uint32_t a, uint32_t b);
	/* Number of the part that the object lacks after a loss, n_parts or above; NULL: as many parts as
	   its capacity was cut into, of any number. UINT32_MAX: none. */
	uint32_t (*missing)(const struct catalog_object *object);

	/* *spec_out: describes the regions of part s. */
	void (*plan)(const struct catalog_object *object, uint32_t s, struct part_spec *spec_out);
	/* Format part s in its fresh regions and make it live. */
	int (*format)(struct catalog *cat, const struct catalog_object *object, uint32_t s,
		      const struct part_regions *regions);
	/*
	 * Opens part s of the object with that descriptor, as struct part_kind of its clients.
	 * Takes ownership of the regions; after an error they stay the caller's.
	 */
	int (*open)(const void *desc, uint32_t s, const struct part_regions *regions,
		    struct part **part_out);
	/* Closes the part, detaches its regions and frees it. */
	void (*close)(struct part *part);

	/* Settle a dead owner's state in the part, as in struct fence_kind; ctx is NULL. */
	int (*settle_dead)(void *ctx, struct part *part, uint32_t owner);
	/* A live owner returns its slot: close its open blocks. */
	int (*leave)(struct part *part, uint32_t owner);
	/* One pass towards exact sums, as sumtree_rebuild_pass. NULL: the kind has no sums. */
	int (*rebuild)(struct part *part, const struct rebuild_opts *opts,
		       struct rebuild_report *report_out);

	/*
	 * Makes a piece of what parts lack, for a few ms, as the client with that owner id of the object and
	 * that lease; owner 0: only looks. May be NULL.
	 */
	int (*mend)(struct catalog_object *object, uint32_t owner, uint64_t lease,
		    enum mend *found_out);

	/*
	 * Recovers part s in slices after its node restarted (struct part_life); nobody else uses
	 * the part. As recover_begin, recover_go_on and recover_end. text_out: the findings.
	 * All NULL: the kind is sound after any kill.
	 */
	int (*recover_begin)(const struct catalog *cat, struct catalog_object *object, uint32_t s,
			     struct recovery **recovery_out);
	int (*recover_go_on)(struct recovery *recovery, const struct clock *clk, uint64_t until_ns,
			     char text_out[KIND_TEXT_BYTES]);
	void (*recover_end)(struct recovery **recovery);

	/* True if the object's parts cannot leave their nodes; NULL: they can. */
	bool (*stays)(const struct catalog_object *object);
	/*
	 * Drain of kinds whose parts are copied; both NULL: as below.
	 * leaver: number of a part that is to leave its node now; UINT32_MAX: none.
	 * move: copies the part for a few ms, and sets items and taken of its drain. *done_out: the part may
	 * leave. Called again until then, after an error too.
	 */
	uint32_t (*leaver)(const struct catalog_object *object);
	int (*move)(struct catalog_object *object, uint32_t s, bool *done_out);
	/* True while clients use memory of a part that has left, which then is not freed. NULL: never. */
	int (*is_held)(struct part *part, bool *held_out);
	/* Drain: number of live items in the part. */
	int (*items)(struct part *part, uint64_t *items_out);
	/*
	 * Drain: amount added to the part since the last call; *seen keeps the count between calls
	 * (0 = first call, which returns 0).
	 */
	uint64_t (*taken_in)(struct part *part, uint64_t *seen);
	/* Drain: true if a client has an open block in it. */
	int (*is_open)(struct part *part, bool *is_open_out);
	/* Drain, once nobody writes: hand the part's duty to another part. 1 = clients must
	   learn of it first, then `handed` is called; 0 = the part may leave. May be NULL. */
	int (*hand_over)(struct catalog *cat, struct catalog_object *object, uint32_t s);
	int (*handed)(struct catalog_object *object, uint32_t s);

	/*
	 * Upkeep of an object; each may be NULL. look: called once a second; tick: each tick;
	 * tick_clean: each tick when no part waits for a rebuild.
	 */
	void (*look)(struct catalog_object *object);
	void (*tick)(struct catalog *cat, struct catalog_object *object);
	void (*tick_clean)(struct catalog_object *object);
	/*
	 * Adoption of the part s that a pool brings (adopt.c); NULL: parts of the kind are not
	 * adopted. desc_of_part: the object's descriptor, from that of its part, which is unchecked
	 * bytes of a client or file; the caller frees it. -EPROTO, -EBADMSG, -ENOMEM.
	 */
	int (*desc_of_part)(const void *bytes, size_t len, uint32_t s,
			    struct object_desc *desc_out);

	/* Called before the object is forgotten. May be NULL. */
	void (*drop)(struct catalog *cat, const struct catalog_object *object);
};

/* Adds a kind to those of kinds.c, before the first catalog is loaded. Thread: setup. */
void object_kind_register(const struct object_kind *kind);

/* NULL: unknown kind. */
const struct object_kind *object_kind_find(uint32_t id);

#endif
