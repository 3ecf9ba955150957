/*
 * extents.c - extents of a part with several writers.
 */
#include "ds/heap/writers/writers.h"

#include <errno.h>

/* A claim of an extent, whose word was `from`, and what each copy had. */
struct claim {
	const struct heap_copies *copies;
	uint32_t extent;
	uint64_t from, to;
	uint64_t had[HEAP_LINE_MAX];
};

/* Takes the extent in a copy before the last one. *got_out: nobody else had it. */
static int take_in(struct claim *claim, uint32_t i, bool *got_out)
{
	struct heap *copy = claim->copies->at[i];
	uint64_t off = heap_extent_off(copy, claim->extent), had, old;
	int ret = transport_load(copy->tree, off, &had);

	*got_out = false;
	claim->had[i] = had;
	if (ret || extent_owner(had) || (extent_class(had) && !extent_class(claim->from)))
		return ret;
	ret = transport_cas_word(copy->tree, off, had, claim->to, &old);
	*got_out = ret == 0 && old == had;
	return ret;
}

/* In copies from i on, what they had. */
static int take_back(const struct claim *claim, uint32_t i)
{
	uint64_t old;
	int ret = 0;

	for (; ret == 0 && i < claim->copies->n_all; i++) {
		struct heap *copy = claim->copies->at[i];

		ret = transport_cas_word(copy->tree, heap_extent_off(copy, claim->extent),
					 claim->to, claim->had[i], &old);
	}
	return ret;
}

int heap_writers_take(const struct heap_copies *copies, uint32_t extent, uint64_t from, uint64_t to,
		      bool *got_out)
{
	struct claim claim = { .copies = copies, .extent = extent, .from = from, .to = to };
	uint32_t i = copies->n_all - 1;
	struct heap *last = copies->at[i];
	bool got = true;
	int stale = 0, ret = transport_cas_word(last->tree, heap_extent_off(last, extent), from, to,
						&claim.had[i]);

	*got_out = false;
	if (ret || claim.had[i] != from)
		return ret;
	while (ret == 0 && got && i > 0) {
		ret = take_in(&claim, i - 1, &got);
		i -= ret == 0 && got;
	}
	/* Who knows of a loss has put into the others only: their entries are not in the last one. */
	for (uint32_t k = 0; ret == 0 && got && stale == 0 && k < copies->n_all; k++)
		stale = heap_writers_check(copies, copies->at[k]);
	*got_out = ret == 0 && got && stale == 0;
	if (ret || *got_out)
		return ret;
	ret = take_back(&claim, i);
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
