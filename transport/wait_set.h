/*
 * wait_set.h - what is under way on several transports, waited for together.
 *
 *   submit a chain on A, a chain on B, reads on both ----> wait: one phase, counted at the first
 *
 * Cost: one phase when somebody waits, none when all was found done; each fence of the reads of the
 * transport that the phase is counted at is one more. Past WAIT_LEGS additions a phase more each time.
 */
#ifndef RLV_TRANSPORT_WAIT_SET_H
#define RLV_TRANSPORT_WAIT_SET_H

#include <stddef.h>
#include <stdint.h>

#include "transport/transport.h"

#include "base/error.h"

#define WAIT_LEGS 256u

/* Zero = nothing is under way. */
struct wait_set {
	uint32_t n;
	int error; /* the first met */
	struct wait_leg {
		struct transport *tr;
		struct transport_span span;
		uint32_t fences;
		int error; /* the leg's first: stays when the set has been waited for */
	} legs[WAIT_LEGS];
};

/* Forgets what was: nothing may be under way. */
static inline void wait_set_begin(struct wait_set *set)
{
	set->n = 0;
	set->error = 0;
}

/* Adds a chain of any length, in order: leg set->n of before. Its error is the leg's, too. */
void wait_set_chain(struct wait_set *set, struct transport *tr, struct transport_wr *wrs, size_t n);

/*
 * Begins anew with any number of reads, over regions of any transports, in no order but that of their
 * fences. Those with fences are of one transport and at most TRANSPORT_VECTOR. Of io only what is read
 * into is needed from then on. After an error some may be under way: they are waited for all the same.
 */
RLV_MUST_CHECK int wait_set_read(struct wait_set *set, const struct transport_io *io, size_t n);

/* Is all of it over? 0 or the first error; -EAGAIN: not yet. Cost: local. */
RLV_MUST_CHECK int wait_set_look(struct wait_set *set);

/* Waits until it is. The first error. */
RLV_MUST_CHECK int wait_set_wait(struct wait_set *set);

#endif
