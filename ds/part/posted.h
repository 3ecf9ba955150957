/*
 * Posted: unwaited chains of one access: additions to inner nodes, the withdrawal of a pin, the
 * close of a block, a raised maximum. Each keeps its list until it is polled, at the latest when
 * the list is needed again. Its answers then mean:
 *
 *   addition, no answer        `lost`: the shard must be marked dirty
 *   close found another word   `fenced`
 *   close, no answer           retried: its ticket is never reused
 *   maximum                    max_seen = the value now stored
 *
 * The first error of a chain is reported once, by the call that finds it.
 */
#ifndef RLV_DS_PART_POSTED_H
#define RLV_DS_PART_POSTED_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/part/wr_list.h"

#include "transport/transport.h"

#include "base/error.h"

#define POSTED_CHAINS 4u /* outstanding chains of one access */

struct posted {
	struct transport *tr;
	struct {
		struct wr_list list;
		uint64_t ticket; /* 0 = not outstanding */
	} chains[POSTED_CHAINS];
	uint32_t next;
	bool open; /* chains[next] is being filled */
	bool lost;
	bool fenced;
	uint64_t *max_seen; /* of each view; borrowed from the access */
};

/* max_seen is borrowed. Thread: owner, for all. */
void posted_init(struct posted *posted, struct transport *tr, uint64_t *max_seen);
/* Waits for all chains and discards their results. */
void posted_fini(struct posted *posted);

/*
 * Gives the list of the next chain: empty, or partly filled if not sent yet. Errors: those of the
 * chain that used the list before, which has ended. Cost: none, unless POSTED_CHAINS are
 * outstanding.
 */
RLV_MUST_CHECK int posted_next(struct posted *posted, struct wr_list **list_out);

/* Posts the list from posted_next; an empty list is not posted. */
RLV_MUST_CHECK int posted_send(struct posted *posted);

/* Waits for all chains. Returns the first error. Cost: 1 phase if any is outstanding. */
RLV_MUST_CHECK int posted_wait(struct posted *posted);

#endif
