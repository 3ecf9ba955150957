#include "client/meta/meta.h"

#include "base/mem/alloc.h"

#include <errno.h>
#include <string.h>

int meta_opened_table(const struct table_desc *desc, struct meta_opened *out)
{
	*out = (struct meta_opened){
		.object = { .kind = OBJECT_TABLE,
			    .number = desc->table_id,
			    .max_clients = desc->max_clients },
		.desc = mem_alloc(sizeof(*desc)),
		.desc_bytes = sizeof(*desc),
	};
	if (!out->desc)
		return error_set(-ENOMEM, "table %s: cannot allocate memory", desc->name);
	memcpy(out->desc, desc, sizeof(*desc));
	memcpy(out->object.uuid, desc->uuid, sizeof(desc->uuid));
	memcpy(out->object.name, desc->name, sizeof(desc->name));
	return 0;
}

void meta_opened_fini(struct meta_opened *opened)
{
	meta_place_fini(&opened->place);
	mem_free(opened->desc);
	opened->desc = NULL;
}

void meta_place_fini(struct meta_place *place)
{
	mem_free(place->parts);
	memset(place, 0, sizeof(*place));
}
