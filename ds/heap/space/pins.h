/*
 * pins.h - private to ds/heap: epochs, pins and holds, of all copies into which several writers put, and else of the
 * part alone.
 *
 * Thread: owner, for all.
 */
#ifndef RLV_DS_HEAP_SPACE_PINS_H
#define RLV_DS_HEAP_SPACE_PINS_H

#include "ds/heap/copies.h"
#include "ds/heap/space.h"

/* How many copies have a say: all, if several clients put there. */
static inline uint32_t space_copies(const struct space *space)
{
	return space->copies && space->copies->line ? space->copies->n_all : 1;
}

static inline struct heap *space_copy(const struct space *space, uint32_t i)
{
	return i ? space->copies->at[i] : space->heap;
}

/* The copy whose heads and extent words are ahead. */
static inline struct heap *space_last(const struct space *space)
{
	return space_copy(space, space_copies(space) - 1);
}

/* A head word as it lies among the holds: in the order of the offsets. */
static inline uint64_t space_hold_key(uint64_t word)
{
	return word << 24 | word >> 40;
}

/* True if a client holds a key from `first` to `last`, at the last look. */
bool space_any_hold(const struct space *space, uint64_t first, uint64_t last);

/* Reads the epochs, and advances those that are not above `past`; NULL: none. Cost: 1 RT for each copy, 2 if it
   advances. */
RLV_MUST_CHECK int space_advance(struct space *space, const struct space_epochs *past,
				 struct space_epochs *now_out);

/* *least_out: the epochs below which no other client has a pin, up to `now`. Sets the holds. */
RLV_MUST_CHECK int space_least_pin(struct space *space, const struct space_epochs *now,
				   struct space_epochs *least_out);

/* The same once heads, or words that calls read behind their pins, were read. */
RLV_MUST_CHECK int space_look(struct space *space, const struct space_epochs *now,
			      struct space_epochs *least_out);

/* True if calls that began at those epochs have ended. */
bool space_is_past(const struct space *space, const struct space_epochs *then,
		   const struct space_epochs *least);

#endif
