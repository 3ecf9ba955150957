/*
 * wait_set.h - waits together for outstanding work on several transports.
 *
 *   submit a chain on A, a chain on B, reads on both ----> wait: one phase, counted at the first
 *
 * Cost: one phase when it has to wait, none when all was found done; one more for fenced reads.
 * Every further WAIT_LEGS additions cost one more phase.
 */
#ifndef RLV_TRANSPORT_WAIT_SET_H
#define RLV_TRANSPORT_WAIT_SET_H

#include <stddef.h>
#include <stdint.h>

#include "transport/transport.h"

#include "base/error.h"

#define WAIT_LEGS 256u

/* Zeroed = nothing is outstanding. */
struct wait_set {
	uint32_t n;
	int error; /* the first met */
	struct wait_leg {
		struct transport *tr;
		struct transport_span span;
		uint32_t phases; /* of a wait for it */
		int error;       /* the leg's first; kept after the wait */
	} legs[WAIT_LEGS];
};

/* Empties the set; nothing may be outstanding. */
static inline void wait_set_begin(struct wait_set *set)
{
	set->n = 0;
	set->error = 0;
}

/*
 * Submits a chain of any length, in order, as a new leg: its index is the old set->n, or 0 if the
 * set was full: then it first waits for all and empties the set. The leg keeps its error.
 */
void wait_set_chain(struct wait_set *set, struct transport *tr, struct transport_wr *wrs, size_t n);

/*
 * Empties the set and submits any number of reads, in no order, over regions of any transports. On
 * return io may be reused; its destinations may not. After an error some reads may be outstanding:
 * wait for them all the same.
 */
RLV_MUST_CHECK int wait_set_read(struct wait_set *set, const struct transport_io *io, size_t n);

/*
 * wait_set_read that keeps what is in the set. On return set->n is what wait_set_wait_first takes to wait for
 * these reads and all before them.
 */
RLV_MUST_CHECK int wait_set_add_reads(struct wait_set *set, const struct transport_io *io,
				      size_t n);

/*
 * As wait_set_read, for 1 <= n <= TRANSPORT_VECTOR reads of one transport: those from io[fence] on
 * start after all before it.
 */
RLV_MUST_CHECK int wait_set_read_fenced(struct wait_set *set, const struct transport_io *io,
					size_t n, size_t fence);

/* Tests the set: 0 or the first error when all is done; -EAGAIN: not yet. Cost: local. */
RLV_MUST_CHECK int wait_set_look(struct wait_set *set);

/* Waits until all is done. Returns the first error. */
RLV_MUST_CHECK int wait_set_wait(struct wait_set *set);

/*
 * The same for what was added before set->n was n; the rest stays outstanding. The first wait of a set counts the
 * phase of all of it, further ones count nothing.
 */
RLV_MUST_CHECK int wait_set_look_first(struct wait_set *set, uint32_t n);
RLV_MUST_CHECK int wait_set_wait_first(struct wait_set *set, uint32_t n);

#endif
