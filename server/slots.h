/*
 * Slots: which client of which lease has which owner id of a table. The truth is in the regions'
 * client slots (ds/slot.h); this book is read back from there after a restart.
 *
 * An id is given out only while it is free in every shard, and is live in every shard before the
 * client hears of it. The server takes one for itself when it has sums to rebuild.
 */
#ifndef RLV_SERVER_SLOTS_H
#define RLV_SERVER_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/shard.h"

#include "base/error.h"
#include "base/process.h"

struct slot_entry {
	bool taken;
	bool settling; /* its owner is dead; not every shard has been settled */
	uint64_t client_id;
};

struct slots {
	uint32_t n; /* max_clients */
	struct slot_entry *entries;
	struct shard **shards; /* borrowed; NULL where not attached */
	const bool *lost;      /* borrowed; for ever: its memory is gone */
	uint32_t n_shards;
	uint32_t own; /* owner id of the server itself, 0 = none */
};

/* Who wants a slot. */
struct slot_holder {
	uint64_t client_id;
	struct process_id process;
};

RLV_MUST_CHECK int slots_init(struct slots *slots, const struct table_desc *desc,
			      struct shard **shards, const bool *lost);
void slots_fini(struct slots *slots);

/*
 * Adds what a shard that was just attached says. fn is called for each slot in use there, so that
 * somebody watches over its holder.
 */
RLV_MUST_CHECK int slots_read(struct slots *slots, uint32_t shard,
			      void (*fn)(void *ctx, const struct slot_holder *), void *ctx);

/* -ENOSPC: all are taken. -EHOSTDOWN: a shard is not attached. */
RLV_MUST_CHECK int slots_get(struct slots *slots, const struct slot_holder *holder,
			     uint32_t *owner_out);
/* For the server itself: also when shards are absent; sets slots->own. -ENOSPC. */
RLV_MUST_CHECK int slots_get_own(struct slots *slots, const struct slot_holder *holder);
/* By its holder, who is idle. A free one is a no-op; -EACCES: another's; -EBUSY: not idle. */
RLV_MUST_CHECK int slots_put(struct slots *slots, uint64_t client_id, uint32_t owner);

/*
 * Settles all slots of a client that was proved dead (ds/fence.h). -EAGAIN: a shard is not attached
 * now, or failed: call again. *drift_out: rebuilds may be needed.
 */
RLV_MUST_CHECK int slots_settle(struct slots *slots, uint64_t client_id, bool *drift_out);

/* Does the client hold any? */
bool slots_any(const struct slots *slots, uint64_t client_id);

#endif
