/*
 * Heap stripes: the server completes the intents of clients that were killed while they put a value in stripes
 * (ds/heap/stripe/settle.h). It is a client like any other, with a client slot of its own. Heaps with copies are left to
 * their clients, and so are intents of more stripes than take a few ms.
 */
#ifndef RLV_CATALOG_HEAP_STRIPES_H
#define RLV_CATALOG_HEAP_STRIPES_H

#include "catalog/kind.h"

#include "ds/heap/heap.h"

/* The owner died: it may have left an intent. */
static inline void heap_stripes_note(struct heap *heap, uint32_t owner)
{
	if (owner >= 1 && owner <= HEAP_MAX_CLIENTS)
		heap->gone[(owner - 1) / 64] |= UINT64_C(1) << (owner - 1) % 64;
}

/*
 * As object_kind.mend: completes what owners that are gone have left. What cannot be completed now is tried again.
 * Cost: none while nobody died; else 1 RT for each owner, and the deletes.
 */
RLV_MUST_CHECK int heap_stripes_mend(struct catalog_object *object, uint32_t owner,
				     enum mend *found_out);

#endif
