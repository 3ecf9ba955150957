/*
 * Slots: which client of which lease has which owner id of a table. The truth is in the regions'
 * client slots (ds/part/slot.h); this book is read back from there after a restart.
 *
 * An owner id is one client's in all shards of the table. It is given out while it is free in every
 * shard that can be asked, and is live in each of them before the client hears of it. It is free
 * again when it is settled there, however long another shard is away: what may still be live in that
 * one is kept on a list. A shard that is added, or that was away, is put right before clients may
 * use it (slots_join): what was given back meanwhile is settled there, then what the book says is
 * taken there. A shard that comes with a slot of a client that did not give it back, of before a
 * restart of ours, or that died meanwhile, does not join until that one is settled.
 *
 * A page that a client has mapped stays mapped when it gives the slot back. So its next holder is the same
 * client, unless that one has ended or no other slot is left.
 *
 * The server takes an id for itself when it has sums to rebuild.
 */
#ifndef RLV_SERVER_CATALOG_SLOTS_H
#define RLV_SERVER_CATALOG_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/part/part.h"

#include "server/catalog/kind.h"

#include "base/error.h"
#include "base/os/process.h"

/* Who wants a slot. */
struct slot_holder {
	uint64_t client_id;
	struct process_id process; /* zeros: of another host */
};

struct slot_entry {
	bool taken;
	uint32_t streams;
	uint64_t number; /* in the order in which slots were given; 0 = before we started */
	struct slot_holder holder;
	uint64_t last; /* client that gave it back, and may have its page mapped still; 0 = none */
};

/* Slots of one shard that the book has nobody for, or somebody else. */
struct orphan_slot {
	struct orphan_slot *next;
	uint32_t shard;
	uint32_t slot;
	uint64_t client_id;
	bool left; /* given back while the shard was away: no proof is needed to settle it */
};

struct slots {
	uint32_t n; /* max_clients */
	uint32_t max_streams;
	struct slot_entry *entries;
	struct orphan_slot *orphans;
	const struct object_kind *kind;
	struct part **parts; /* borrowed; NULL where not attached */
	const bool *lost;    /* borrowed; for ever: its memory is gone */
	uint64_t given;      /* number of the slot that was given last */
	uint64_t *reached;   /* the same, when the shard was last there */
	uint32_t n_parts;
	uint32_t own; /* owner id of the server itself, 0 = none */
};

/* Of how many clients the book is, and where it finds their slots. */
struct slots_opts {
	const struct object_kind *kind;
	uint32_t n;           /* client slots */
	uint32_t max_streams; /* of all clients together */
	struct part **parts;  /* borrowed, as lost: room for TABLE_MAX_SHARDS */
	const bool *lost;
	uint32_t n_parts;
};

RLV_MUST_CHECK int slots_init(struct slots *slots, const struct slots_opts *opts);
void slots_fini(struct slots *slots);

/*
 * Adds what a shard that was just attached says. fn is called for each slot in use there, so that
 * somebody watches over its holder.
 */
RLV_MUST_CHECK int slots_read(struct slots *slots, uint32_t shard,
			      void (*fn)(void *ctx, const struct slot_holder *), void *ctx);

/* After it the shard's slots are as the book says. -EAGAIN: a stray is not settled yet. */
RLV_MUST_CHECK int slots_join(struct slots *slots, uint32_t shard);

/*
 * streams: blocks that it will hold at once. -ENOSPC: all slots are taken, or all that one process may
 * have (slots_quota), or all streams (max_writers); the words say by whom. -EHOSTDOWN: no shard is
 * attached.
 */
RLV_MUST_CHECK int slots_get(struct slots *slots, const struct slot_holder *holder,
			     uint32_t streams, uint32_t *owner_out);
/* One process may not take them all: the last eighth, of 8 and more, is for others. */
static inline uint32_t slots_quota(const struct slots *slots)
{
	return slots->n - slots->n / 8;
}

/* For the server itself; sets slots->own. -ENOSPC. */
RLV_MUST_CHECK int slots_get_own(struct slots *slots, const struct slot_holder *holder);
/*
 * By its holder, who is idle: the id may be another's at once. A free one is a no-op, but in shards that
 * are away; -EACCES: another's; -EBUSY: not idle; -ENOMEM.
 */
RLV_MUST_CHECK int slots_put(struct slots *slots, uint64_t client_id, uint32_t owner);

/* A client that was fenced, and in which shards it is proved that it can touch nothing. */
struct slots_dead {
	uint64_t client_id;
	bool (*is_proved)(void *ctx, uint32_t shard);
	void *ctx;
};

/*
 * Settles its slots (ds/part/fence.h). -EAGAIN: in a shard that is away, failed, or where it is not
 * proved: call again. Those that only a shard that is away still knows may be another's at once.
 * *drift_out: rebuilds may be needed.
 */
RLV_MUST_CHECK int slots_settle(struct slots *slots, const struct slots_dead *dead,
				bool *drift_out);

/* The client has ended: nothing of it can write to the pages of slots that it had. */
void slots_forget(struct slots *slots, uint64_t client_id);

/* Is the owner id that client's? */
bool slots_has(const struct slots *slots, uint64_t client_id, uint32_t owner);

/* Does the client hold any, or is there one of it to settle? */
bool slots_any(const struct slots *slots, uint64_t client_id);

#endif
