/*
 * Catalog object: one object of the catalog, its parts, and our attachment to their regions.
 *
 * Parts have numbers 0.., which are part of item keys and never reused within the object's life. A
 * part that moves to another node is a new part with a new number; the old one is GONE when its
 * items have been overwritten. The list only grows, up to OBJECT_MAX_PARTS.
 */
#ifndef RLV_CATALOG_OBJECT_H
#define RLV_CATALOG_OBJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "catalog/node.h"
#include "catalog/kind.h"
#include "catalog/slots.h"
#include "catalog/store.h"

#include "base/os/clock.h"

#define PART_WEIGHT_FULL 1000u /* weight of a part that takes its full share of new data */

/* State of a part, as clients are told; the numbers are those of enum ShardState on the wire. */
enum part_view {
	PART_NONE = 0,
	PART_ACTIVE,
	PART_DRAINING,
	PART_DOWN,
	PART_LOST,
	PART_GONE,
};

enum drain_phase {
	DRAIN_FILLING, /* the other parts take in as many items as it holds, or its contents are copied */
	DRAIN_HANDING, /* another part took over its duty; clients learn of it */
	DRAIN_LEAVING, /* GONE; clients learn of it, then its memory is freed */
};

/* Progress of a part's drain. Restarted from zero when the server restarts. */
struct part_drain {
	enum drain_phase phase;
	bool begun;         /* items is valid */
	uint64_t items;     /* live items at the start; or steps of object_kind.move */
	uint64_t taken;     /* items added to other parts since; or steps done */
	uint64_t at[4];     /* of object_kind.move */
	uint64_t announced; /* layout that clients must adopt before the next phase */
	uint64_t announced_at;
};

struct catalog_part {
	struct node *node;          /* NULL: the node was forgotten; state is LOST or GONE */
	uint64_t incarnation;       /* incarnation of the node that has the regions */
	uint32_t ids[REGION_ROLES]; /* region ids, by role; 0 = not made */
	uint32_t state;             /* enum part_view as stored: never DOWN; NONE = not made yet */
	uint32_t announced;         /* state published in the object's layout */
	bool joined;                /* attached, and its client slots match the book */
	bool refused;   /* damaged or not trusted: not retried in this incarnation of its node */
	bool drift;     /* sums may be inexact: handled by repair.h */
	bool broken;    /* a region's file is damaged; until its node registers again */
	uint64_t since; /* ACTIVE: time of first use by clients, 0 = long ago */
	uint64_t seen;  /* used by its kind: object_kind.taken_in */
	struct part_drain drain;
	/* Recovery in progress; not attached until it ends. */
	struct recovery *recovery; /* owned by its kind */
	struct part *recovering;
	struct part_regions forming; /* attached, not formatted yet: a page is being made */
	struct part_life life;       /* life recorded in the part when found */
};

/* An object is named by {kind, id}, a part of it by {kind, id, part}. */
struct catalog_object {
	const struct object_kind *kind;
	uint32_t id; /* of all objects, whatever their kind */
	uint8_t uuid[16];
	char name[STORE_NAME_BYTES];
	char text[STORE_NAME_BYTES + 16]; /* kind and name, for messages */
	void *state;                      /* owned by its kind: object_kind.load */
	const void *desc;                 /* descriptor as stored; in its state */
	size_t desc_len;
	uint32_t n_cut; /* parts that its capacity is cut into */
	uint32_t max_clients, max_streams;
	uint32_t n_parts;      /* part numbers used so far */
	uint32_t control;      /* number of the control part, of kinds that have one */
	bool auto_parts;       /* at least one part per node */
	bool spread_due;       /* placement must be checked */
	uint64_t spread_after; /* no spread before then, after a failure; ns */
	uint64_t spread_pause; /* back-off after the next failure; ns */
	uint64_t layout;       /* version of the layout */
	uint64_t loader; /* client that loads it, and alone has it, until catalog_commit; 0 = none */
	struct catalog_part *parts; /* by number, as is attached */
	struct part **attached;     /* NULL where not attached */
	struct slots slots;
	uint64_t newest, version;  /* the newest that clients told of: server/metad/lags.h */
	struct error_kept refusal; /* last reason for refusing a part; code 0: none */
};

/*
 * Makes the object with that id from a descriptor of its kind; it has no parts yet. -EBADMSG,
 * -EPROTO: an invalid descriptor; -ENOMEM.
 */
RLV_MUST_CHECK int catalog_object_new(const struct object_kind *kind, uint32_t id, const void *desc,
				      size_t len, struct catalog_object **object_out);
/* Detaches all parts of the object and frees it; NULL is a no-op. */
void catalog_object_free(struct catalog_object *object);

/* Start spreading at the next tick; retries after a pause if a step fails. */
#define CATALOG_AGAIN_NS ((uint64_t)CLOCK_NS_PER_S) /* first pause */
void catalog_spread_soon(struct catalog_object *object);

/* State of the part as told to clients: enum part_view. */
uint32_t catalog_part_view(const struct catalog_object *object, uint32_t s);
/* Address of the part's node; for a part lost with an earlier incarnation, the address of that
   one. */
const char *catalog_part_uri(const struct catalog_object *object, uint32_t s);

/* True if a part of the object is being recovered. */
bool catalog_object_is_recovering(const struct catalog_object *object);

/* True if clients may read and change the contents of a part in that state. */
static inline bool catalog_state_is_usable(uint32_t state)
{
	return state == PART_ACTIVE || state == PART_DRAINING;
}

/* True if the part is LOST or GONE: its memory is gone for good, nothing is to settle there. */
static inline bool catalog_part_is_lost(const struct catalog_object *object, uint32_t s)
{
	return object->parts[s].state == PART_LOST || object->parts[s].state == PART_GONE;
}

/*
 * Attaches the regions of part s, which are formatted, and opens it. -EAGAIN: waiting for its node
 * (node_ops.attach). catalog_part_detach closes it.
 */
RLV_MUST_CHECK int catalog_part_attach(struct catalog_object *object, uint32_t s);
void catalog_part_detach(struct catalog_object *object, uint32_t s);

/*
 * Writes the object's record to the store, with that state (enum store_object_state), LOADING for LIVE
 * while it is being loaded; catalog_object_put_part: the record of part s.
 */
RLV_MUST_CHECK int catalog_object_put(struct catalog_store *store,
				      const struct catalog_object *object, uint32_t state);
RLV_MUST_CHECK int catalog_object_put_part(struct catalog_store *store,
					   const struct catalog_object *object, uint32_t s);
/* Changes the state of part s, in the store too; after an error it is as before. */
RLV_MUST_CHECK int catalog_part_set_state(struct catalog_store *store,
					  struct catalog_object *object, uint32_t s,
					  uint32_t state);

#endif
