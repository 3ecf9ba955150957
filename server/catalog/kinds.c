/*
 * kinds.c - the object kinds of this server.
 */
#include "server/catalog/kind.h"

#include <stddef.h>

static const struct object_kind *const kinds[] = { &kind_table };

const struct object_kind *object_kind_find(uint32_t id)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (kinds[i]->id == id)
			return kinds[i];
	return NULL;
}
