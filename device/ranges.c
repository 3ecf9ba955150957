#include "device/ranges.h"

#include "base/mem/alloc.h"

struct range *ranges_find(struct ranges *ranges, uint64_t va)
{
	for (size_t i = 0; i < ranges->n; i++) {
		if (ranges->items[i].va == va)
			return &ranges->items[i];
	}
	return NULL;
}

bool ranges_touch(const struct ranges *ranges, uint64_t va, uint64_t bytes)
{
	for (size_t i = 0; i < ranges->n; i++) {
		const struct range *range = &ranges->items[i];

		if (va < range->va + range->bytes && range->va < va + bytes)
			return true;
	}
	return false;
}

bool ranges_hold(const struct ranges *ranges, uint64_t va, uint64_t bytes)
{
	for (size_t i = 0; i < ranges->n; i++) {
		const struct range *range = &ranges->items[i];

		if (va >= range->va && bytes <= range->bytes &&
		    va - range->va <= range->bytes - bytes)
			return true;
	}
	return false;
}

/* True if [va, va + bytes) consists of whole ranges. */
bool ranges_tile(struct ranges *ranges, uint64_t va, uint64_t bytes)
{
	while (bytes) {
		const struct range *range = ranges_find(ranges, va);

		if (!range || range->bytes > bytes)
			return false;
		va += range->bytes;
		bytes -= range->bytes;
	}
	return true;
}

bool ranges_room(struct ranges *ranges)
{
	size_t room = ranges->room ? 2 * ranges->room : 16;

	if (ranges->n < ranges->room)
		return true;
	if (!mem_grow(&ranges->items, ranges->room, room, sizeof(*ranges->items)))
		return false;
	ranges->room = room;
	return true;
}

void ranges_add(struct ranges *ranges, struct range range)
{
	ranges->items[ranges->n++] = range;
}

void ranges_remove(struct ranges *ranges, struct range *range)
{
	*range = ranges->items[--ranges->n];
}
