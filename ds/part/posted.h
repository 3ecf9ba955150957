/*
 * Posted: chains of one access that nobody waits for when they are posted: additions to inner
 * nodes, the end of a promise, the close of a block, a raised maximum. Each lives in a list of its
 * own until it has been polled, at the latest when its list is needed again. Then its answers say:
 *
 *   an addition without one    `lost`: the shard is to be marked dirty
 *   a close that found another word    `fenced`
 *   a close without one        is made again: its ticket never comes back
 *   a maximum                  what stands there now
 *
 * The first error of a chain is told once, by the call that finds it.
 */
#ifndef RLV_DS_PART_POSTED_H
#define RLV_DS_PART_POSTED_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/part/wr_list.h"

#include "transport/transport.h"

#include "base/error.h"

#define POSTED_CHAINS 4u /* of an access, at a time */

struct posted {
	struct transport *tr;
	struct {
		struct wr_list list;
		uint64_t ticket; /* 0 = not under way */
	} chains[POSTED_CHAINS];
	uint32_t next;
	bool open; /* chains[next] is being filled */
	bool lost;
	bool fenced;
	uint64_t *max_seen; /* of each view; the access's */
};

/* max_seen is borrowed. Thread: owner, for all. */
void posted_init(struct posted *posted, struct transport *tr, uint64_t *max_seen);
/* Waits for all, and forgets what became of them. */
void posted_fini(struct posted *posted);

/*
 * The list of the next chain: empty, or as it was left when it has not been sent yet. Errors: those
 * of the chain that was in it, which is over then. Cost: none, unless POSTED_CHAINS are under way.
 */
RLV_MUST_CHECK int posted_next(struct posted *posted, struct wr_list **list_out);

/* Posts what the list that posted_next gave holds now; an empty one is not posted. */
RLV_MUST_CHECK int posted_send(struct posted *posted);

/* Waits for all that is under way. Its first error. Cost: 1 phase if something is. */
RLV_MUST_CHECK int posted_wait(struct posted *posted);

#endif
