/*
 * modes.c - where the modes of a heap part: the access of a client, the end of a client, a move, and the end of a part.
 */
#include "ds/heap/access.h"
#include "ds/heap/central.h"
#include "ds/heap/direct.h"

#include "base/mem/alloc.h"

#include <errno.h>

int heap_access_open(struct heap_access *acc, struct heap *heap, uint32_t owner)
{
	static const struct heap_plane *const planes[HEAP_MODES] = {
		[HEAP_DIRECT] = &direct_plane,
		[HEAP_CENTRAL] = &central_plane,
	};

	return heap_access_begin(acc, heap, owner, planes[heap->desc.mode]);
}

int heap_settle_self(struct heap *heap, uint32_t owner)
{
	if (heap->desc.mode != HEAP_DIRECT)
		return heap_settle_extents(heap, owner);
	if (owner == 0 || owner > heap->desc.max_clients)
		return error_set(-EINVAL, "owner %u: the heap has owners 1 to %u", owner,
				 heap->desc.max_clients);
	return direct_settle(heap, owner);
}

int heap_settle(struct heap *heap, uint32_t owner)
{
	static const uint64_t none[HEAP_HOLDS];
	int ret = heap_settle_self(heap, owner);

	return ret ? ret : transport_store(heap->tree, heap_holds_off(owner), none, sizeof(none));
}

int heap_move(struct heap *from, struct heap *to, struct heap_move_at *at, uint64_t bytes,
	      bool *done_out)
{
	switch (from->desc.mode) {
	case HEAP_DIRECT:
		return direct_move(from, to, at, bytes, done_out);
	case HEAP_CENTRAL:
		return central_move(from, to, bytes, done_out);
	default:
		return heap_move_chains(from, to, at, bytes, done_out);
	}
}

void heap_close_part(struct part *part)
{
	central_free(heap_of(part)->central);
	part_close(part);
	mem_free(heap_of(part));
}
