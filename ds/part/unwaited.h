/*
 * Unwaited chains of one access: additions to inner nodes, the withdrawal of a pin, the
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
#ifndef RLV_DS_PART_UNWAITED_H
#define RLV_DS_PART_UNWAITED_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/part/wr_list.h"

#include "transport/transport.h"

#include "base/error.h"

#define UNWAITED_CHAINS 4u /* outstanding chains of one access */

struct unwaited {
	struct transport *tr;
	struct {
		struct wr_list list;
		uint64_t ticket; /* 0 = not outstanding */
	} chains[UNWAITED_CHAINS];
	uint32_t next;
	bool open; /* chains[next] is being filled */
	bool lost;
	bool fenced;
	uint64_t *max_seen; /* of each view; borrowed from the access */
};

/*
 * Initialises with no chain outstanding. max_seen: one for each view, set by answers; borrowed.
 * Thread: owner, for all.
 */
void unwaited_init(struct unwaited *unwaited, struct transport *tr, uint64_t *max_seen);
/* Waits for all chains, discards their results and frees their lists. */
void unwaited_fini(struct unwaited *unwaited);

/*
 * *list_out: the list of the next chain: empty, or partly filled if it is not sent yet. Waits for
 * the chain that used the list before and returns its error; *list_out is set all the same. Cost:
 * none, unless UNWAITED_CHAINS are outstanding.
 */
RLV_MUST_CHECK int unwaited_next(struct unwaited *unwaited, struct wr_list **list_out);

/* Sends the list from unwaited_next, without waiting for answers; an empty list is not sent. */
RLV_MUST_CHECK int unwaited_send(struct unwaited *unwaited);

/*
 * Waits for all outstanding chains, also after an error. Returns the first error. Cost: 1 phase if
 * any is outstanding.
 */
RLV_MUST_CHECK int unwaited_wait(struct unwaited *unwaited);

#endif
