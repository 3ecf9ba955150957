#include "ds/heap/space/pins.h"

#include "base/mem/alloc.h"
#include "base/bits.h"

#include <errno.h>
#include <stdlib.h>

#define EPOCH_OFF (HEAP_WORDS_OFF + offsetof(struct heap_words, epoch))
#define LINES_AT_ONCE 64u

static int hold_order(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

bool space_any_hold(const struct space *space, uint64_t first, uint64_t last)
{
	size_t from = 0, n = space->n_holds;

	while (n) {
		size_t half = n / 2;

		if (space->holds[from + half] < first) {
			from += half + 1;
			n -= half + 1;
		} else {
			n = half;
		}
	}
	return from < space->n_holds && space->holds[from] <= last;
}

static int space_add_hold(struct space *space, uint64_t word)
{
	size_t to = space->holds_room + 16;

	if (space->n_holds == space->holds_room) {
		if (!mem_grow(&space->holds, space->holds_room, to, sizeof(space->holds[0])))
			return error_set(-ENOMEM, "heap: cannot allocate memory for holds");
		space->holds_room = to;
	}
	space->holds[space->n_holds++] = space_hold_key(word);
	return 0;
}

/* Takes the line of another client: its holds, and in *least_inout its pins. Our own pin holds back nothing. */
static int space_take_line(struct space *space, const struct heap_pin *line, bool ours,
			   uint64_t *least_inout)
{
	uint64_t any = 0;
	int ret = 0;

	if (line->pin.raw && !ours)
		*least_inout = min_u64(*least_inout, line->pin.raw);
	for (uint32_t i = 0; i < HEAP_HOLDS; i++)
		any |= line->holds[i].raw;
	if (!any)
		return 0;
	for (uint32_t i = 0; ret == 0 && i < HEAP_HOLDS; i++) {
		uint64_t hold = line->holds[i].raw;

		if (hold & HEAP_HELD)
			ret = space_add_hold(space, hold_word(hold));
		else if (hold)
			*least_inout = min_u64(*least_inout, hold);
	}
	return ret;
}

/* Lowers *least to the least pin that another client has in the copy. Adds the holds. */
static int copy_least_pin(struct space *space, struct heap *copy, uint64_t *least)
{
	struct heap_pin lines[LINES_AT_ONCE];
	uint32_t clients = space->heap->desc.max_clients;
	int ret = 0;

	for (uint32_t first = 0; ret == 0 && first < clients; first += LINES_AT_ONCE) {
		uint32_t n = (uint32_t)min_u64(clients - first, LINES_AT_ONCE);

		ret = transport_fetch(copy->tree, heap_pin_off(first + 1), lines,
				      n * (uint32_t)sizeof(lines[0]));
		for (uint32_t i = 0; ret == 0 && i < n; i++)
			ret = space_take_line(space, &lines[i], first + i + 1 == space->owner,
					      least);
	}
	return ret;
}

int space_least_pin(struct space *space, const struct space_epochs *now,
		    struct space_epochs *least_out)
{
	int ret = 0;

	*least_out = *now;
	space->n_holds = 0;
	for (uint32_t c = 0; ret == 0 && c < space_copies(space); c++)
		ret = copy_least_pin(space, space_copy(space, c), &least_out->at[c]);
	/* Clients write what they like into their lines: a look-up stays short. */
	if (space->n_holds > 1)
		qsort(space->holds, space->n_holds, sizeof(space->holds[0]), hold_order);
	return ret;
}

int space_advance(struct space *space, const struct space_epochs *past,
		  struct space_epochs *now_out)
{
	int ret = 0;

	*now_out = (struct space_epochs){ { 0 } };
	for (uint32_t c = 0; ret == 0 && c < space_copies(space); c++) {
		struct region *tree = space_copy(space, c)->tree;
		uint64_t word, old;

		ret = transport_load(tree, EPOCH_OFF, &word);
		if (ret == 0 && past && space_epoch(word) <= past->at[c]) {
			ret = transport_cas_word(tree, EPOCH_OFF, word, word + 1, &old);
			word = old == word || ret ? word + 1 : old; /* another client advanced it */
		}
		now_out->at[c] = space_epoch(word);
	}
	return ret;
}

int space_look(struct space *space, const struct space_epochs *now, struct space_epochs *least_out)
{
	int ret = 0;

	/* H3 pairs with H2: heads were read, then pins. */
	for (uint32_t c = 0; ret == 0 && c < space_copies(space); c++)
		ret = transport_order(space_copy(space, c)->tree->tr);
	return ret ? ret : space_least_pin(space, now, least_out);
}

bool space_is_past(const struct space *space, const struct space_epochs *then,
		   const struct space_epochs *least)
{
	bool past = then->at[0] != 0;

	for (uint32_t c = 0; c < space_copies(space); c++)
		past &= then->at[c] < least->at[c];
	return past;
}
