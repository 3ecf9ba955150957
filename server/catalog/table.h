/*
 * Catalog table: one table of the catalog, its shards and our attachment to their regions.
 *
 * Shards have numbers 0.., which are in their items' keys and never used again within the table's
 * life: a shard that moved to another node is a new shard with a new number, and the old one is
 * GONE when its items have been overwritten. So the list only grows, to TABLE_MAX_SHARDS.
 */
#ifndef RLV_SERVER_CATALOG_TABLE_H
#define RLV_SERVER_CATALOG_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/limiter/limiter.h"
#include "ds/replay/shard.h"

#include "server/node/node.h"
#include "server/catalog/kind.h"
#include "server/catalog/slots.h"
#include "server/statedb/statedb.h"

enum drain_phase {
	DRAIN_FILLING, /* the others take in what it holds */
	DRAIN_HANDING, /* it was the control shard; clients learn of the new one */
	DRAIN_LEAVING, /* GONE; clients learn of it, then its memory is freed */
};

/* How far a shard's draining is. After a restart of ours it is counted afresh. */
struct shard_drain {
	enum drain_phase phase;
	bool begun;         /* items is known */
	uint64_t items;     /* live ones when it began */
	uint64_t taken;     /* that the others took in since */
	uint64_t announced; /* layout that clients must know before the next phase */
	uint64_t announced_at;
	struct limiter_words handed[RING_MAX_VIEWS]; /* the words as given to the new control */
};

struct catalog_shard {
	struct node *node;          /* NULL: forgotten, with state LOST or GONE */
	uint64_t incarnation;       /* of the node that has the regions */
	uint32_t ids[REGION_ROLES]; /* of its regions, by role; 0 = not made */
	uint32_t state;     /* enum Relive__ShardState as stored: never DOWN; NONE = not made yet */
	uint32_t announced; /* as the table's layout says */
	bool joined;        /* attached, and its client slots are as the book says */
	bool refused; /* damaged, or not to be trusted: not tried again in this life of its node */
	bool drift;   /* its sums may be off: repair.h looks */
	bool broken;  /* they are not whole any more; until its node registers again */
	uint64_t since; /* ACTIVE: when clients could first use it, 0 = long ago */
	uint64_t seen;  /* of its kind: see object_kind.taken_in */
	struct shard_drain drain;
	/* It is being made sound, and is not attached until it is. */
	void *recovery; /* of its kind */
	struct part *recovering;
	struct part_life life; /* that it was found in */
};

struct catalog_table {
	const struct object_kind *kind;
	struct table_desc desc;       /* shard 0's */
	uint32_t n_shards;            /* numbers used so far */
	uint32_t control;             /* number of the shard whose limiter words count */
	bool auto_shards;             /* one for each node, at least */
	bool spread_due;              /* placement is to be looked at */
	uint64_t spread_after;        /* not before, since it failed; ns */
	uint64_t spread_pause;        /* after the next failure; ns */
	uint64_t layout;              /* version of what clients are told */
	struct catalog_shard *shards; /* by number, and the following, too */
	struct part **attached;       /* NULL where not */
	bool *lost;                   /* LOST or GONE: nothing is to be settled there */
	struct slots slots;
	int refusal; /* why a shard of it was refused last, and in words */
	char refusal_text[ERROR_TEXT_BYTES];
	bool words_known;
	struct limiter_words words[RING_MAX_VIEWS]; /* of the control shard, as last read */
};

/* Without shards. NULL and a message: no memory. */
struct catalog_table *catalog_table_new(const struct table_desc *desc);
/* Detaches all; NULL is a no-op. */
void catalog_table_free(struct catalog_table *table);

/* What clients are told of the shard now: enum Relive__ShardState. */
uint32_t catalog_shard_view(const struct catalog_table *table, uint32_t s);
/* Where it is, or was: of one that was lost with a life of its node, where that life was. */
const char *catalog_shard_uri(const struct catalog_table *table, uint32_t s);

/* Is a shard of it being made sound? */
bool catalog_table_is_recovering(const struct catalog_table *table);

/* May clients read and change what is in a shard of that state? */
static inline bool catalog_state_is_usable(uint32_t state)
{
	return state == RELIVE__SHARD_STATE__SHARD_ACTIVE ||
	       state == RELIVE__SHARD_STATE__SHARD_DRAINING;
}

/* Live items of a view in a shard, as its sums say. */
RLV_MUST_CHECK int catalog_shard_items(struct shard *shard, uint32_t view, uint64_t *items_out);

/* Sets the state, which is LOST or GONE for ever. Does not store it. */
void catalog_shard_end(struct catalog_table *table, uint32_t s, uint32_t state);

/* Opens shard s, whose regions are formatted (-EAGAIN: its node is asked, as in node_attach), and closes
   it. */
RLV_MUST_CHECK int catalog_table_attach(struct catalog_table *table, uint32_t s);
void catalog_table_detach(struct catalog_table *table, uint32_t s);

/* Attaches the regions of a shard, formatted or not. -EAGAIN: as above. */
RLV_MUST_CHECK int catalog_attach_regions(struct node *node, const struct catalog_shard *place,
					  struct part_regions *out);

/* Remembers the table, and shard s of it. */
RLV_MUST_CHECK int catalog_table_put(struct statedb *store, const struct catalog_table *table);
RLV_MUST_CHECK int catalog_table_put_shard(struct statedb *store, const struct catalog_table *table,
					   uint32_t s);

#endif
