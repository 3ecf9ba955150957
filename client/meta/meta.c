#include "client/meta/meta.h"

#include "base/mem/alloc.h"

#include <string.h>

struct meta_object meta_object_of(const struct table_desc *desc)
{
	struct meta_object object = { .number = desc->table_id, .max_clients = desc->max_clients };

	memcpy(object.uuid, desc->uuid, sizeof(object.uuid));
	memcpy(object.name, desc->name, sizeof(object.name));
	return object;
}

void meta_place_fini(struct meta_place *place)
{
	mem_free(place->parts);
	memset(place, 0, sizeof(*place));
}
