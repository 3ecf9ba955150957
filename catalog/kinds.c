/*
 * kinds.c - all object kinds, a line each.
 */
#include "catalog/kind_heap.h"
#include "catalog/kind_table.h"

#include <assert.h>

/* A program has a few kinds. */
#define MAX_KINDS 16u

static const struct object_kind *kinds[MAX_KINDS] = {
	&kind_table,
	&kind_heap,
};

void object_kind_register(const struct object_kind *kind)
{
	size_t i = 0;

	while (i < MAX_KINDS && kinds[i] && kinds[i] != kind)
		i++;
	assert(i < MAX_KINDS);
	kinds[i] = kind;
}

const struct object_kind *object_kind_find(uint32_t id)
{
	for (size_t i = 0; i < MAX_KINDS && kinds[i]; i++)
		if (kinds[i]->id == id)
			return kinds[i];
	return NULL;
}
