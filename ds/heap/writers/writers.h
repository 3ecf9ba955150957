/*
 * Writers: a part with copies into which several clients put at once (docs/decisions/0020-copies.md),
 * after SNAPSHOT of FUSEE.
 *
 *   look     in all copies: pin, which copies are lost, the heads                      1 RT
 *   decide   in the last copy: the entry, then CAS of the head; who loses looks again   1 RT
 *   follow   in each copy before it, the primary last: the same                         1 RT each
 *
 * Heads that differ are those of a put under way, or of a client that died: what the last copy has, whoever
 * sees it brings to the others, from the back. So nobody waits for another client.
 *
 * The line only gets shorter. A client whose line lacks a copy says so in all others (`lost`) before it puts;
 * each call reads that behind its pins, and ends if its own line has that copy still.
 *
 * An extent belongs to the client that has its words in all copies. They are taken from the last copy on and given
 * back from the first on, so the last one is a lock: while it is free, all are. Words of a dead client may differ;
 * each copy is settled by itself.
 *
 * Thread: owner, for all.
 */
#ifndef RLV_DS_HEAP_WRITERS_WRITERS_H
#define RLV_DS_HEAP_WRITERS_WRITERS_H

#include "ds/heap/copies.h"
#include "ds/heap/find.h"

#include "transport/wait_set.h"

/* What a client needs for one part. */
struct heap_writers {
	const struct heap_copies *copies;
	struct heap_access *at[HEAP_COPIES_MAX]; /* of each copy, for pins */
	struct wait_set wait;
	uint64_t lost[HEAP_COPIES_MAX];
	struct heap_head heads[HEAP_COPIES_MAX][HEAP_RECORDS_AT_ONCE];
	struct transport_wr wrs[HEAP_COPIES_MAX][4];
};

/*
 * Lets the access of the primary put into all copies; it has no extents, and copies->line is set. All that is
 * passed lasts until the primary's access is reset, closed, or heap_writers_leave. -EAGAIN: another client says
 * that one of the copies is lost. Cost: 1 RT for each copy; 1 more if one is lost.
 */
RLV_MUST_CHECK int heap_writers_join(struct heap_writers *writers, const struct heap_copies *copies,
				     struct heap_access *const *at);

/* Before the access ends, or one that join got: puts go nowhere, and its extents stay ours until heap_settle. */
void heap_writers_leave(struct heap_access *acc);

/*
 * Finds the key behind pins in all copies, where its heads are the same. Errors: as heap_find; -EAGAIN: others
 * change it again and again, or a copy is lost (acc->away). Cost: 1 RT if the cursor is warm and the
 * cell or the cursor has the version.
 */
RLV_MUST_CHECK int heap_writers_find(struct heap_access *acc, const struct chain_key *key,
				     struct heap_found *found);

/*
 * Writes entry and head in each copy, the primary last. *won_out: false, another put was first, and nothing of
 * this one was seen. An error: it is not known whether; if the call clears acc->in_doubt, it was not
 * put, but its entry may be read. Cost: 1 RT for each copy.
 */
RLV_MUST_CHECK int heap_writers_put(struct heap_access *acc, const struct copies_put *put,
				    bool *won_out);

/* Ends the pins in the copies behind the primary, and counts a new key there; not waited for. */
void heap_writers_unpin(struct heap_access *acc, bool new_key);

/*
 * Takes the extent that has the word `from` in the last copy, which is free or an orphan; *got_out: false:
 * it is another client's somewhere. -EAGAIN: a copy is lost. Cost: 1 RT in the last copy, 2 in the others, and
 * 1 for each.
 */
RLV_MUST_CHECK int heap_writers_take(const struct heap_copies *copies, uint32_t extent,
				     uint64_t from, uint64_t to, bool *got_out);

/* Gives back an extent of ours. Cost: 1 RT for each copy. */
RLV_MUST_CHECK int heap_writers_give(const struct heap_copies *copies, uint32_t extent,
				     uint64_t from, uint64_t to);

/* -EAGAIN if the copy says that one of the line is lost. Cost: 1 RT. */
RLV_MUST_CHECK int heap_writers_check(const struct heap_copies *copies, struct heap *copy);

#endif
