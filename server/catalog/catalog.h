/*
 * Catalog: tables, where their shards are, and our own attachment to each of them.
 *
 * A table is made in an order that leaves nothing but a leak, wherever we are killed:
 *
 *   1. store: table CREATING, its laps set aside       a restart forgets the table
 *   2. for each shard: store: a making at the node;
 *      node: its regions                               a restart frees what nobody has used
 *   3. regions: formatted, live
 *   4. store: shards and table LIVE, no makings        from here on it is there
 *
 * and dropped so: store: forgotten, its regions left over; regions: state DROPPED, freed; store: nothing
 * left over. A shard that is added later is made by 2, 3 and 4 of its own. What a node reports, and
 * what is neither a table's nor known to be given up, is not ours to free: the node is refused
 * (catalog_regions.h).
 *
 * A shard whose node comes back with empty memory, or was declared lost, is LOST: its old memory,
 * which we and clients may still have mapped, is marked ORPHANED. There are never two pools under
 * one name. The table stays open over the rest.
 *
 *   catalog.c        find, load, drop, what clients are told
 *   catalog_make.c   create a table, add a shard; catalog_provisioning.h: their regions
 *   catalog_plan.c   what a wish comes to
 *   catalog_nodes.c  nodes come, go, and are lost; catalog_regions.c: whose their regions are;
 *                    catalog_adopt.c: tables that come with a pool
 *   kind.h           what only the kind of an object knows; kind_table.c: replay tables
 *   catalog_control.c catalog_drain.c catalog_spread.c   upkeep: the control shard, shards that
 *                    leave, and where shards should be
 */
#ifndef RLV_SERVER_CATALOG_CATALOG_H
#define RLV_SERVER_CATALOG_CATALOG_H

#include <stdbool.h>
#include <stdint.h>

#include "server/catalog/provision.h"
#include "server/catalog/regions.h"
#include "server/catalog/table.h"
#include "server/node/nodes.h"
#include "server/catalog/placement.h"
#include "server/statedb/statedb.h"

#include "wire/control.pb-c.h"

#include "base/os/clock.h"

#define CATALOG_RAMP_NS (10 * (uint64_t)CLOCK_NS_PER_S) /* slow start of a new shard, default */

/*
 * Laps of the ring set aside for one life of a table, so that of two lives no key is the same also when
 * the end of the first was not seen; catalog_drop() sets aside what was really used.
 */
#define CATALOG_LAPS ((uint64_t)1 << 16)

struct catalog_ops {
	/* Somebody holds a slot of a shard that was just attached. */
	void (*on_holder)(void *ctx, const struct slot_holder *holder);
	/* Has every client that is alive taken up the layout? */
	bool (*all_know)(void *ctx, uint64_t layout);
	/* What was -EAGAIN may go on. */
	void (*on_progress)(void *ctx);
};

struct catalog {
	struct statedb *store;
	struct nodes *nodes;
	const struct clock *clock;
	const struct catalog_ops *ops;
	void *ctx;
	const char *name;     /* of the store, for messages */
	uint64_t ramp_ns;     /* 0 = CATALOG_RAMP_NS */
	bool trust;           /* rows without checksums that may be torn are taken as they are */
	uint64_t patience_ns; /* how long clients may take to learn of a layout */
	struct statedb_ids ids;
	struct catalog_table *tables[TABLE_MAX_ID + 1]; /* by id */
	struct catalog_provisioning *provisionings;
	uint32_t last_id;
	uint32_t turn;        /* of placement */
	uint64_t layout;      /* the newest of all tables */
	uint64_t grace_until; /* nodes that were up before we started are on their way until then */
	uint64_t next_tick, next_reading;
	uint64_t slice_until; /* of work on shards that are made sound, this turn; 0 = none was done */
	struct catalog_retirement *retirements; /* catalog_regions.c */
};

/* catalog is zeroed but for store to patience_ns. No node is up yet. */
RLV_MUST_CHECK int catalog_load(struct catalog *cat);
void catalog_fini(struct catalog *cat);

struct catalog_table *catalog_find(const struct catalog *cat, const char *name);
/* By id and uuid: NULL if it was dropped. */
struct catalog_table *catalog_find_same(const struct catalog *cat, uint32_t id, const uint8_t *uuid,
					size_t uuid_len);
uint32_t catalog_count(const struct catalog *cat);

/* -------- create and drop -------- */

struct catalog_wish {
	struct table_desc desc; /* input: checked here */
	bool auto_shards;       /* desc is planned as one shard; the number follows the nodes */
	bool crc_by_nodes;      /* rows get checksums if a node is persistent */
	struct table_plan_opts opts; /* remote is found out: is a node reached over a wire? */
};

/*
 * Makes the table, or finds the one of that name and signature. -EAGAIN: nodes are at work, call
 * again after on_progress, until the end. -EEXIST, -ENOSPC (no node has room; the message says how
 * much), -EHOSTDOWN (no node is up), -EPROTO, -EBADMSG (descriptor), those of the store.
 */
RLV_MUST_CHECK int catalog_create(struct catalog *cat, const struct catalog_wish *wish,
				  struct catalog_table **table_out);
RLV_MUST_CHECK int catalog_drop(struct catalog *cat, const char *name);

/* The descriptor of a new table, for the nodes that are up. */
RLV_MUST_CHECK int catalog_plan(const struct catalog *cat, const struct catalog_wish *wish,
				struct table_desc *out);
/* Was the table planned from that wish, one way or the other? */
bool catalog_is_wish_of(const struct catalog_table *table, const struct catalog_wish *wish);

/*
 * A new shard of the table at the node, ACTIVE; if one is under way already, that one. leaves is kept
 * with it (catalog_provisioning.h). -EAGAIN: as above. -ENOSPC: no room, or no number is left.
 */
RLV_MUST_CHECK int catalog_add_shard(struct catalog *cat, struct catalog_table *table,
				     struct node *node, struct node *leaves);

/*
 * Formats and opens shard s, whose regions are there, for catalog_provisioning.c. -EAGAIN: its node is asked,
 * as in node_attach; so is one that could not be reached just now, which is -EHOSTDOWN here.
 */
RLV_MUST_CHECK int catalog_make_shard(struct catalog *cat, struct catalog_table *table, uint32_t s);

/* -------- what clients are told -------- */

/* Brings the table's layout up to date with its shards and nodes. */
void catalog_refresh(struct catalog *cat, struct catalog_table *table);
/* Something else of it has changed: the control shard. */
void catalog_changed(struct catalog *cat, struct catalog_table *table);
/* The newest layout that clients should know; 0 for a while after we started. */
uint64_t catalog_newest_layout(const struct catalog *cat);
/* Do all clients know it, or have they had their time since then? */
bool catalog_is_known(const struct catalog *cat, uint64_t layout, uint64_t since);

/* Of an ACTIVE shard: its weight now, and how long until it is full. */
uint32_t catalog_weight(const struct catalog *cat, const struct catalog_shard *shard,
			uint64_t *ramp_ns_out);

struct catalog_grants {
	struct region_grant places[PART_PLACES]; /* by enum region_role and part_place */
};

/* Who wants rights; asker as in struct node_wish. */
struct catalog_guest {
	uint64_t asker;
	uint64_t client_id;
	Relive__TableAccess access; /* as enum part_access */
	uint32_t owner;             /* client slot of its own, 0 = none */
};

/*
 * Rights for a client on one shard, as part_grant_of says. -EAGAIN: its node was asked, call again.
 * -EHOSTDOWN: its node is down.
 */
RLV_MUST_CHECK int catalog_grant(struct catalog_table *table, uint32_t shard,
				 const struct catalog_guest *guest, struct catalog_grants *out);

/* -------- nodes -------- */

/* A node that wants to join, and what it has. */
struct catalog_arrival {
	struct node *node; /* catalog_admit: as it is known, or NULL */
	bool replaced;     /* it is another life of it than we knew */
	const struct node_news *news;
	const Relive__NodeRegion *const *regions;
	size_t n_regions;
	uint8_t store_uuid[16]; /* that the pool belongs to; zero: to none yet */
	const char *store_name;
	uint32_t claim; /* enum Relive__PoolClaim: a person's word */
};

/*
 * May it join with its pool? Changes nothing. -EPERM: the pool is another store's, holds what the
 * catalog does not know, or is not the one of that node; the message says which, and names it. -EEXIST:
 * a table to be adopted has the name or id of another. Errors of the store.
 */
RLV_MUST_CHECK int catalog_admit(struct catalog *cat, const struct catalog_arrival *arrival);

/*
 * It has joined the nodes: adopts, and notes what is to be freed, in one transaction. After an error,
 * one of the store, nothing has changed.
 */
RLV_MUST_CHECK int catalog_take(struct catalog *cat, const struct catalog_arrival *arrival);

/* After catalog_take: attaches what is ours, marks what is lost, frees what was given up. Failures are
   logged. */
void catalog_node_up(struct catalog *cat, const struct catalog_arrival *arrival);
/*
 * A node that is down is about to be forgotten: its shards, which are lost or gone, are nowhere from now
 * on. -EBUSY: it has some that come back with it, or that are on their way.
 */
RLV_MUST_CHECK int catalog_node_forget(struct catalog *cat, const struct node *node);
/* A node hung up: what of it can only be used while it is there is detached. */
void catalog_node_down(struct catalog *cat, struct node *node);
/* Its shards are LOST from now on. */
void catalog_node_lost(struct catalog *cat, struct node *node);

/* Shards of all tables that are there; drain_out: how far those are that leave, or NULL. */
struct catalog_leaving {
	uint64_t items_left, items_begin;
};

uint32_t catalog_shards_of(const struct catalog *cat, const struct node *node,
			   struct catalog_leaving *leaving_out);

/* -------- upkeep -------- */

/*
 * Attaches what is not attached, reads limiter words, moves control shards, drains and spreads: a
 * little of it. Returns when to call again.
 */
uint64_t catalog_tick(struct catalog *cat);

/* Frees regions that were given up, and whose nodes had to be asked first. true: some are left. */
bool catalog_retire_tick(struct catalog *cat);

/* Attaches shards whose node is there; a shard whose connection broke is attached again. */
void catalog_attach_tick(struct catalog *cat, struct catalog_table *table);

/* The control shard of a table: hooks of its kind (kind_table.c). */
void catalog_control_read(struct catalog_table *table);
void catalog_control_tick(struct catalog *cat, struct catalog_table *table);
/* The words of shard s, if it is the control shard, are another's from now on: 1, else 0. -EAGAIN: no
   other is there. */
RLV_MUST_CHECK int catalog_control_hand_over(struct catalog *cat, struct catalog_table *table,
					     uint32_t s);
/* What was counted at `from` since it was handed over is counted at the control shard, too. */
RLV_MUST_CHECK int catalog_control_settle(struct catalog_table *table, uint32_t from);

/* Shard s takes no new blocks from now on. */
RLV_MUST_CHECK int catalog_drain(struct catalog *cat, struct catalog_table *table, uint32_t s);
void catalog_drain_tick(struct catalog *cat, struct catalog_table *table);

/* The nodes as placement sees them, in list order. Returns how many. */
uint32_t catalog_places(const struct catalog *cat, const struct catalog_table *table,
			struct placement_node places[NODES_MAX], struct node *nodes[NODES_MAX]);

/*
 * One step towards a table that is spread. 1: it is done; 0: there was none; -EAGAIN: it is under way,
 * call again after on_progress; else why it failed. kind_out may be NULL.
 */
RLV_MUST_CHECK int catalog_spread_step(struct catalog *cat, struct catalog_table *table,
				       enum placement_kind *kind_out);
/* From the next tick on, one after another, and again after a pause if one fails. */
void catalog_spread_soon(struct catalog_table *table);
/* true: there is more to do at once. */
bool catalog_spread_tick(struct catalog *cat, struct catalog_table *table);

#endif
