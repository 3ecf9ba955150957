/*
 * Kind heap: values under keys (ds/heap/heap.h). The hash of a key chooses its part, so the number of
 * parts is fixed, and a part stays on its node.
 */
#ifndef RLV_CATALOG_KIND_HEAP_H
#define RLV_CATALOG_KIND_HEAP_H

#include "catalog/kind.h"

extern const struct object_kind kind_heap;

#endif
