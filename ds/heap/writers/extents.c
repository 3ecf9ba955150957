/*
 * extents.c - extents of a part with several writers.
 */
#include "ds/heap/writers/writers.h"

#include <errno.h>

/* Takes the extent in a copy before the last one. *got_out: nobody else had it; *had_out: its word then. */
static int take_in(struct heap *copy, uint32_t extent, uint64_t from, uint64_t to,
		   uint64_t *had_out, bool *got_out)
{
	uint64_t off = heap_extent_off(copy, extent), old;
	int ret = transport_load(copy->tree, off, had_out);

	*got_out = false;
	if (ret || extent_owner(*had_out) || (extent_class(*had_out) && !extent_class(from)))
		return ret;
	ret = transport_cas_word(copy->tree, off, *had_out, to, &old);
	*got_out = ret == 0 && old == *had_out;
	return ret;
}

/* In copies from i on, what they had. */
static int take_back(const struct heap_copies *copies, uint32_t i, uint32_t extent, uint64_t mine,
		     const uint64_t *had)
{
	uint64_t old;
	int ret = 0;

	for (; ret == 0 && i < copies->n_all; i++)
		ret = transport_cas_word(copies->at[i]->tree,
					 heap_extent_off(copies->at[i], extent), mine, had[i],
					 &old);
	return ret;
}

int heap_writers_take(const struct heap_copies *copies, uint32_t extent, uint64_t from, uint64_t to,
		      bool *got_out)
{
	uint32_t i = copies->n_all - 1;
	struct heap *last = copies->at[i];
	uint64_t had[HEAP_LINE_MAX];
	bool got;
	int ret, stale = 0;

	*got_out = false;
	ret = transport_cas_word(last->tree, heap_extent_off(last, extent), from, to, &had[i]);
	if (ret || had[i] != from)
		return ret;
	for (got = true; ret == 0 && got && i > 0; i -= ret == 0 && got)
		ret = take_in(copies->at[i - 1], extent, from, to, &had[i - 1], &got);
	/* Who knows of a loss has put into the others only: their entries are not in the last one. */
	for (uint32_t k = 0; ret == 0 && got && stale == 0 && k < copies->n_all; k++)
		stale = heap_writers_check(copies, copies->at[k]);
	*got_out = ret == 0 && got && stale == 0;
	if (ret || *got_out)
		return ret;
	ret = take_back(copies, i, extent, to, had);
	return ret ? ret : stale;
}

int heap_writers_give(const struct heap_copies *copies, uint32_t extent, uint64_t from, uint64_t to)
{
	uint64_t old;
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < copies->n_all; i++)
		ret = transport_cas_word(copies->at[i]->tree,
					 heap_extent_off(copies->at[i], extent), from, to, &old);
	return ret;
}
