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

/* Copies of all parts of a heap. */
struct heap_state {
	uint32_t mode, parts;
	uint32_t wanted;
	uint32_t whole;   /* are reached and have everything; up to `wanted` */
	uint32_t filling; /* are reached, and do not have everything yet */
};

/* Cost: 1 RT for each copy that is being filled. */
struct heap_state kind_heap_state(const struct catalog_object *heap);

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
