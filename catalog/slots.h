/*
 * Slots: assigns the owner ids of a table to clients with leases. The regions' client slots
 * (ds/part/slot.h) are authoritative; after a restart this book is read back from them.
 *
 * An owner id belongs to one client in all shards of the table. It is assigned when it is free in
 * every reachable shard, and is set live in each of them before the client gets it. It is free
 * again once settled in the reachable shards; slots that may still be live in an unreachable shard
 * go on the orphan list. A shard that is added or returns is made consistent before clients use it
 * (slots_join): slots returned meanwhile are settled, then slots in the book are set live. A shard
 * does not join while it has an unsettled slot of a client that did not return it, from before our
 * restart, or that died meanwhile.
 *
 * A client keeps its slot page mapped after it returns the slot. So the next holder is the same
 * client, unless that client has ended or no other slot is free.
 *
 * The server takes an owner id of its own to rebuild sums.
 */
#ifndef RLV_CATALOG_SLOTS_H
#define RLV_CATALOG_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/part/part.h"

#include "base/error.h"
#include "base/os/process.h"

struct catalog_object;

/* Client that holds or requests a slot. */
struct slot_holder {
	uint64_t client_id;
	struct process_id process; /* zeros: on another host */
};

struct slot_entry {
	bool taken;
	uint32_t streams;
	uint64_t number; /* assignment sequence number; 0 = assigned before our start */
	struct slot_holder holder;
	uint64_t last; /* client that returned it and may still map its page; 0 = none */
};

/* A shard's live slot that is free in the book, or held there by another client. */
struct orphan_slot {
	struct orphan_slot *next;
	uint32_t shard;
	uint32_t slot;
	uint64_t client_id;
	bool left; /* returned while the shard was away: settled without proof of death */
};

struct slots {
	const struct catalog_object *object;
	uint32_t n; /* max_clients */
	bool sole;  /* of one process: no quota */
	struct slot_entry *entries;
	struct orphan_slot *orphans;
	struct part **parts; /* the object's: NULL where not attached */
	uint64_t given;      /* sequence number of the last assignment */
	uint64_t *reached;   /* value of `given` when the shard was last reachable */
	uint32_t n_parts;
	uint32_t own; /* owner id of the server, 0 = none */
};

/*
 * Initialises an empty book of the object's max_clients slots. Borrows the object, whose kind,
 * max_clients, max_streams, n_cut, parts and attached are set. -ENOMEM.
 */
RLV_MUST_CHECK int slots_init(struct slots *slots, const struct catalog_object *object);
void slots_fini(struct slots *slots);

/*
 * Reads the slots of a newly attached shard into the book. Calls fn, unless it is NULL, for each
 * slot in use, so that its holder is watched.
 */
RLV_MUST_CHECK int slots_read(struct slots *slots, uint32_t shard,
			      void (*fn)(void *ctx, const struct slot_holder *), void *ctx);

/*
 * Makes the shard's slots match the book: settles those returned while it was away, sets those
 * taken live. -EAGAIN: an orphan slot of the shard is not settled yet, or the node is making the
 * page of a slot.
 */
RLV_MUST_CHECK int slots_join(struct slots *slots, uint32_t shard);

/*
 * Assigns a free slot to the holder, in all attached shards. *owner_out: its owner id. streams:
 * number of blocks held at once. -ENOSPC: no free slot, the process is at its quota (slots_quota),
 * or no free stream (max_writers); the message says which. -EHOSTDOWN: no shard is attached, or a
 * node does not make the slot's page. -EAGAIN: nodes are making it, call again.
 */
RLV_MUST_CHECK int slots_get(struct slots *slots, const struct slot_holder *holder,
			     uint32_t streams, uint32_t *owner_out);
/* Slots that one process may hold: of 8 and more, the last eighth is reserved for others. */
static inline uint32_t slots_quota(const struct slots *slots)
{
	return slots->n - slots->n / 8;
}

/* Number of blocks that all holders may have open at once. */
uint64_t slots_streams(const struct slots *slots);

/*
 * Returns the client's slot; the client must be idle. The id may be reassigned at once. An id that
 * is free is a no-op, except in shards that are away. -EINVAL: no such id; -EACCES: held by another
 * client; -EBUSY: not idle; -ENOMEM.
 */
RLV_MUST_CHECK int slots_put(struct slots *slots, uint64_t client_id, uint32_t owner);

/* A fenced client, and the shards that it provably can no longer access. */
struct slots_dead {
	uint64_t client_id;
	bool (*is_proved)(void *ctx, uint32_t shard); /* NULL: all */
	void *ctx;
};

/*
 * Settles the dead client's slots (ds/part/fence.h). -EAGAIN: a shard is away, failed, or has no
 * proof yet: call again. An id that is live only in a shard that is away may be reassigned at once.
 * *drift_out: sums may need a rebuild.
 */
RLV_MUST_CHECK int slots_settle(struct slots *slots, const struct slots_dead *dead,
				bool *drift_out);

/*
 * The client has ended and can no longer write to pages of its former slots: clears it as the last
 * holder of these slots, so that others may take them first.
 */
void slots_forget(struct slots *slots, uint64_t client_id);

/* True if the client holds the owner id. */
bool slots_has(const struct slots *slots, uint64_t client_id, uint32_t owner);

/* True if the client holds a slot, or an orphan slot of it is still to be settled. */
bool slots_any(const struct slots *slots, uint64_t client_id);

#endif
