/*
 * kinds.c - the registry of object kinds. The kinds of this server are listed here; a program may
 * add others.
 */
#include "server/catalog/kind_table.h"

#include <assert.h>
#include <stddef.h>

#define MAX_KINDS 16u

static const struct object_kind *kinds[MAX_KINDS] = { &kind_table };

const struct object_kind *object_kind_find(uint32_t id)
{
	for (size_t i = 0; i < MAX_KINDS && kinds[i]; i++)
		if (kinds[i]->id == id)
			return kinds[i];
	return NULL;
}

void object_kind_register(const struct object_kind *kind)
{
	size_t i = 0;

	while (i < MAX_KINDS && kinds[i] && kinds[i] != kind)
		i++;
	assert(i < MAX_KINDS);
	kinds[i] = kind;
}
