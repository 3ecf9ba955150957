/*
 * Kind heap: values under keys (ds/heap/heap.h). The hash of a key chooses its part, so the number of
 * parts is fixed: part s of the catalog is what clients call part s % n_parts, or a copy of it. When a node is
 * drained, its parts are copied to other nodes, key by key.
 */
#ifndef RLV_CATALOG_KIND_HEAP_H
#define RLV_CATALOG_KIND_HEAP_H

#include "catalog/kind.h"

struct catalog;
struct catalog_object;
struct central_call;

extern const struct object_kind kind_heap;

/* Copies of all parts that a heap has: *whole_out counts those that are reached and have everything, up to
   *wanted_out, those that it is to have. Cost: 1 RT for each copy that is being filled. */
void kind_heap_copies(const struct catalog_object *heap, uint32_t *whole_out, uint32_t *wanted_out);

/* A heap of mode central, by number and uuid, and a part of it. */
struct heap_part_name {
	uint32_t object, part;
	const uint8_t *uuid;
	size_t uuid_bytes;
};

/*
 * Makes a call of the coordinator: that is who has the catalog. -ESTALE: the heap was dropped;
 * -EHOSTDOWN: its part is not attached; errors of central_serve.
 */
RLV_MUST_CHECK int kind_heap_call(struct catalog *cat, const struct heap_part_name *name,
				  struct central_call *call);

#endif
