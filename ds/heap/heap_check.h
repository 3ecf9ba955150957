/*
 * heap_check - walks a heap part and checks all invariants. Exact while no client writes; otherwise it
 * may report changes in progress.
 *
 *   an extent word has a class that fits, and an owner whose client slot is live, or none
 *   a head word names a slot of an extent that is not free; no two name the same
 *   its entry is complete, of this bucket and version, and its key may lie in this bucket
 *   no key lies in two buckets, nor behind a free one that is nearer to its first
 *
 * Of modes with copies: the current copy of each bucket is complete, and its key's; nobody has a lock.
 */
#ifndef RLV_DS_HEAP_HEAP_CHECK_H
#define RLV_DS_HEAP_HEAP_CHECK_H

#include "ds/heap/heap.h"

#define HEAP_CHECK_TEXTS 8u
#define HEAP_CHECK_TEXT_BYTES 160u

struct heap_check_report {
	uint64_t keys,
		deleted; /* buckets by what their heads say; without the hidden keys of stripes */
	uint64_t stale_cells; /* hints that a put or kill left behind: no problem */
	uint64_t live_bytes;  /* of slots that heads name */
	struct heap_use extents;
	uint64_t problems;
	uint32_t n_texts;
	char text[HEAP_CHECK_TEXTS][HEAP_CHECK_TEXT_BYTES];
};

/* -ENOMEM; errors of the transport. Thread: any. Cost: reads heads and current entries one by one. */
RLV_MUST_CHECK int heap_check(struct heap *heap, struct heap_check_report *report_out);

#endif
