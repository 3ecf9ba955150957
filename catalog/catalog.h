/*
 * Catalog: objects, the placement of their parts, and the server's own attachment to each part.
 *
 * Creating an object takes four steps. A kill at any step can only leak memory:
 *
 *   1. store: object CREATING, what its kind        a restart forgets the object
 *      reserves
 *   2. for each part: store: a provisioning record  a restart frees regions that are unused
 *      for the node; node: creates the regions
 *   3. regions: formatted, live
 *   4. store: parts and object LIVE, provisioning   the object exists from here on
 *      records deleted
 *
 * An object that a client loads from a file is LOADING after step 4: that client alone opens it. A commit
 * clears the words in its regions and makes it LIVE. When the client's lease ends before, it is dropped.
 * It may be made beside a LIVE one of its name, which it replaces: then the words name that one, one
 * transaction of the store deletes that one and makes the new one LIVE, and the words are cleared when its
 * regions are marked. The name belongs to the load meanwhile: no other one of it can come.
 *
 * Dropping an object: store: object deleted, its regions recorded as leftovers; regions: state
 * DROPPED, freed; store: leftovers deleted. Adding a part repeats steps 2, 3 and 4 for that part.
 * If a node reports a region that is neither in use nor recorded as given up, the catalog must not
 * free it: it refuses the node (server/catalog/regions.c).
 *
 * A part is LOST when its node returns with empty memory or was declared lost. Its old memory,
 * which the server and clients may still have mapped, is marked ORPHANED. Two pools never share a
 * name. The object stays open over its other parts.
 *
 *   catalog.c        find, load           layout.c   what clients are told
 *   make.c           create an object, add a part, drop; provision.h: their regions
 *   attach.c         our own attachment to parts; retire.c: regions that are given up
 *   kind.h           operations of one object kind; kinds.c: all kinds; kind_table.h: replay tables
 *   upkeep.c         the rounds of upkeep: drain.c: draining parts; spread.c: placement
 *   store.h          the records that a restart needs; node.h: memory where parts are placed
 *
 * The metadata server runs it over SQLite and memory nodes (server/catalog/arrival.h), an embedded
 * store over a pool of its own (client/meta/embed.c).
 */
#ifndef RLV_CATALOG_CATALOG_H
#define RLV_CATALOG_CATALOG_H

#include <stdbool.h>
#include <stdint.h>

#include "catalog/provision.h"
#include "catalog/object.h"
#include "catalog/placement.h"
#include "catalog/store.h"

#include "base/os/clock.h"

#define CATALOG_RAMP_NS (10 * (uint64_t)CLOCK_NS_PER_S) /* default ramp-up time of a new part */

struct catalog_ops {
	/* Called for each slot in use in a newly attached part: its holder must be watched. */
	void (*on_holder)(void *ctx, const struct slot_holder *holder);
	/* True if every live client has adopted the layout. */
	bool (*all_know)(void *ctx, uint64_t layout);
	/* Called when operations that returned -EAGAIN can be retried. */
	void (*on_progress)(void *ctx);
};

struct catalog {
	struct catalog_store *store;
	struct node *const *nodes; /* the first one */
	const struct clock *clock;
	const struct object_kind *(*kind_of)(uint32_t id); /* as object_kind_find */
	const struct catalog_ops *ops; /* NULL: all clients are this process, and nothing waits */
	void *ctx;
	const char *name;     /* store name, for messages */
	uint64_t ramp_ns;     /* 0 = CATALOG_RAMP_NS */
	bool trust;           /* accept rows without checksums that may be torn */
	bool sole;            /* one process has all client slots */
	uint64_t patience_ns; /* time for clients to adopt a layout */
	struct store_ids ids;
	struct catalog_object *objects[OBJECT_MAX_ID + 1]; /* by id */
	struct catalog_provisioning *provisionings;
	uint32_t last_id;
	uint32_t turn;        /* round-robin counter of placement */
	uint64_t layout;      /* newest version over all objects */
	uint64_t grace_until; /* until then, nodes may still be reconnecting after our start */
	uint64_t next_tick, next_reading;
	bool moves;           /* a part is being copied: the next tick is due at once */
	uint64_t slice_until; /* end of this turn's time slice for recovering parts; 0 = none used */
	struct catalog_retirement *retirements; /* retire.c */
};

/*
 * Loads the catalog from its store. The caller has set the fields store to patience_ns and zeroed
 * the others. No node is up yet.
 */
RLV_MUST_CHECK int catalog_load(struct catalog *cat);
void catalog_fini(struct catalog *cat);

/* The object of that name; one that is being loaded only where there is no other. NULL: there is none. */
struct catalog_object *catalog_find(const struct catalog *cat, const char *name);
/* Returns the object with that id and uuid; NULL: there is none, it was dropped. */
struct catalog_object *catalog_find_same(const struct catalog *cat, uint32_t id,
					 const uint8_t *uuid, size_t uuid_len);
/* The object with that id, of that kind, if all clients see it; NULL: there is none, or it is being loaded. */
struct catalog_object *catalog_seen(const struct catalog *cat, uint32_t id,
				    const struct object_kind *kind);
/* Finds the object of that kind and name. uuid: of the one that is meant; zeros: any. -ENOENT: none has that name;
   -ESTALE: the one that is meant is gone. */
RLV_MUST_CHECK int catalog_find_named(const struct catalog *cat, const struct object_kind *kind,
				      const char *name, const uint8_t uuid[16],
				      struct catalog_object **object_out);
/* Of those that all clients see. */
uint32_t catalog_count(const struct catalog *cat, const struct object_kind *kind);

/* A part, of all objects, that is at a node; zeros: before the first one. */
struct catalog_at {
	struct catalog_object *object;
	struct catalog_part *place;
	uint32_t id, s, next;
};

/* Moves *at to the next part at the node, of any object and in any state. False: there is none. */
bool catalog_next_at(const struct catalog *cat, const struct node *node, struct catalog_at *at);

/*
 * Sets a part of the object from its store record. Part numbers between the object's last one and
 * this one become LOST.
 */
void catalog_part_enter(const struct catalog *cat, struct catalog_object *object,
			const struct store_part *stored);

/* -------- create and drop -------- */

struct catalog_wish {
	const struct object_kind *kind;
	const char *name;
	bool auto_parts;     /* the number of parts follows the nodes */
	const void *details; /* of its kind */
	uint64_t loader;     /* client that loads it, as struct catalog_object; 0 = none ... */
	uint8_t uuid[16];    /* ... and uuid of the object that it makes */
	bool beside; /* of a load: there may be one of that name and kind, which it replaces */
};

/*
 * Creates the object, or returns the existing one of the same name and signature. -EAGAIN: waiting
 * for nodes; call again after on_progress, until another result. -EEXIST: one of that name has
 * another kind, signature or options, or a load wants to make it, and not beside it; -EBUSY: it is being
 * loaded, or made and a load wants to replace it; -ENOSPC: no node has room (the message says how much is
 * needed), or no object id is free; -EHOSTDOWN: no node is up; errors of its kind's describe; store
 * errors. After an error one that it was to replace is as it was.
 */
RLV_MUST_CHECK int catalog_create(struct catalog *cat, const struct catalog_wish *wish,
				  struct catalog_object **object_out);
RLV_MUST_CHECK int catalog_drop(struct catalog *cat, struct catalog_object *object);

/*
 * Ends the load of an object: from now on all clients see it, and no longer one that was there of its name.
 * That is *replaced_out, or NULL: it is out of the catalog, its regions are still there, and
 * catalog_commit_end must be called. Called again it does nothing. -EHOSTDOWN: a part is away, so that its
 * word could not be set.
 */
RLV_MUST_CHECK int catalog_commit(struct catalog *cat, struct catalog_object *object,
				  struct catalog_object **replaced_out);
/* Retires the regions of the one that the object has replaced, and frees it; NULL is a no-op. */
void catalog_commit_end(struct catalog *cat, struct catalog_object *object,
			struct catalog_object *replaced);
/* -EBUSY: the object is being loaded. */
RLV_MUST_CHECK int catalog_check_loaded(const struct catalog *cat,
					const struct catalog_object *object);
/* Drops an object whose load has failed. -EALREADY: the load was committed, and nothing is done. */
RLV_MUST_CHECK int catalog_abandon(struct catalog *cat, struct catalog_object *object);

/*
 * Adds an ACTIVE part at the node (NULL: at any that may have it), or goes on with the part that is being provisioned for the
 * object. leaves: node that a part leaves afterwards (provision.h), or NULL. -EAGAIN: waiting for
 * the node; call again after on_progress. -ENOSPC: no room at the node, or no part number left.
 */
RLV_MUST_CHECK int catalog_add_part(struct catalog *cat, struct catalog_object *object,
				    struct node *node, struct node *leaves);

/* -------- layouts for clients -------- */

/*
 * Gives the object's layout a new version if the state of a part, as clients see it, has changed.
 */
void catalog_refresh(struct catalog *cat, struct catalog_object *object);
/*
 * Gives the object's layout a new version: for a change that catalog_refresh does not look for, as
 * a new control shard.
 */
void catalog_changed(struct catalog *cat, struct catalog_object *object);
/* Newest layout that clients should adopt; 0 for a grace period after our start. */
uint64_t catalog_newest_layout(const struct catalog *cat);
/* True for a grace period after our start: nodes may still be reconnecting. */
bool catalog_is_in_grace(const struct catalog *cat);
/* True if all live clients have adopted the layout, or patience_ns have passed since `since`. */
bool catalog_is_known(const struct catalog *cat, uint64_t layout, uint64_t since);

/* Returns the weight of an ACTIVE part now; *ramp_ns_out: the time until it has full weight. */
uint32_t catalog_weight(const struct catalog *cat, const struct catalog_part *shard,
			uint64_t *ramp_ns_out);

struct catalog_grants {
	struct region_grant places[PART_PLACES]; /* by enum region_role and part_place */
};

/* Client that requests grants; asker as in struct node_wish. */
struct catalog_guest {
	uint64_t asker;
	uint64_t client_id;
	enum part_access access;
	uint32_t owner; /* client slot of the guest, 0 = none */
};

/*
 * Requests a client's grants on one part, as defined by part_grant_of. -EAGAIN: waiting for its
 * node, call again. -EHOSTDOWN: its node is down.
 */
RLV_MUST_CHECK int catalog_grant(struct catalog_object *object, uint32_t shard,
				 const struct catalog_guest *guest, struct catalog_grants *out);

/* -------- nodes -------- */

/* Detaches all parts of the node, then closes our transport to it. */
void catalog_leave_node(struct catalog *cat, struct node *node);
/*
 * Attaches part s, whose node is up; recovers it if its node restarted; makes its client slots
 * match the book. Then it is joined. A part that is refused or whose file is damaged is skipped.
 * Other failures are logged; the next call tries again.
 */
void catalog_take_up(struct catalog *cat, struct catalog_object *object, uint32_t s);

/* -------- giving regions up -------- */

/*
 * Frees a region that was given up: first sets the state word that mapped users read (enum
 * region_state), then posts the free: now, or in catalog_retire_tick if the node must be asked
 * first. id 0 is a no-op. Failures are logged; the node's next registration retries.
 */
void catalog_retire_region(struct catalog *cat, struct node *node, uint32_t id, uint32_t state);

/* Forgets all retirements that wait for a node; their regions are not freed. */
void catalog_retire_forget(struct catalog *cat);

/*
 * Gives up part s: sets its state word, detaches it and, if its node is up and has them, retires
 * its regions (catalog_retire_region).
 */
void catalog_retire_part(struct catalog *cat, struct catalog_object *object, uint32_t s,
			 uint32_t state);
/* Retires all parts of the object as DROPPED, but those whose memory is lost or freed already. */
void catalog_retire_object(struct catalog *cat, struct catalog_object *object);

/* Asks the node to free a region, without a change of its state word. A failure is logged. */
void catalog_free_region(struct catalog *cat, struct node *node, uint32_t id);

/* -------- upkeep -------- */

/*
 * One bounded round of upkeep: attaches shards, reads limiter words, moves control shards, drains
 * and spreads. Returns the time of the next call.
 */
uint64_t catalog_tick(struct catalog *cat);

/* Frees given-up regions whose nodes had to be asked first. True if some still wait. */
bool catalog_retire_tick(struct catalog *cat);

/*
 * Attaches all parts of the object whose node is up (catalog_take_up). A node to whose memory our
 * connection broke is detached first.
 */
void catalog_attach_tick(struct catalog *cat, struct catalog_object *object);

/* Starts draining part s: it is stored as DRAINING and takes no new blocks. */
RLV_MUST_CHECK int catalog_drain(struct catalog *cat, struct catalog_object *object, uint32_t s);
/* Takes each draining part of the object one step on (drain.c). True if a part still drains. */
bool catalog_drain_tick(struct catalog *cat, struct catalog_object *object);

/*
 * Describes all nodes for placement, in list order, with the number of the object's active parts at
 * each (object NULL: 0). Returns the number of nodes.
 */
uint32_t catalog_places(const struct catalog *cat, const struct catalog_object *object,
			struct placement_node places[NODES_MAX], struct node *nodes[NODES_MAX]);

/*
 * Takes one step towards an evenly spread object: adds a part, or moves one. 1: the step was taken;
 * 0: no step needed; -EAGAIN: in progress, call again after on_progress; else the error of the
 * step. *kind_out: the kind of the step; may be NULL.
 */
RLV_MUST_CHECK int catalog_spread_step(struct catalog *cat, struct catalog_object *object,
				       enum placement_kind *kind_out);
/*
 * Takes a step (catalog_spread_step) if one is due. True if another is due now, or it waits for a
 * node.
 */
bool catalog_spread_tick(struct catalog *cat, struct catalog_object *object);

#endif
