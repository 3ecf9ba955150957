#include "ds/part/wr_list.h"

#include "base/mem/alloc.h"

#include <errno.h>

int wr_list_reserve(struct wr_list *list, uint32_t n)
{
	uint32_t room = list->room ? list->room : 64;
	void *grown;

	if (n <= list->room)
		return 0;
	while (room < n)
		room *= 2;
	grown = mem_resize(list->wrs, room * sizeof(*list->wrs));
	if (!grown)
		return error_set(-ENOMEM, "cannot allocate a chain of %u operations", n);
	list->wrs = grown;
	grown = mem_resize(list->notes, room * sizeof(*list->notes));
	if (!grown)
		return error_set(-ENOMEM, "cannot allocate a chain of %u operations", n);
	list->notes = grown;
	list->room = room;
	return 0;
}

void wr_list_fini(struct wr_list *list)
{
	mem_free(list->wrs);
	mem_free(list->notes);
	*list = (struct wr_list){ 0 };
}
