/*
 * start.h - the two halves of a data call: within transport/ only.
 *
 * start checks, counts and forwards; n > 0. settle waits for what was started, if that succeeded.
 */
#ifndef RLV_TRANSPORT_START_H
#define RLV_TRANSPORT_START_H

#include "transport/transport.h"

RLV_MUST_CHECK int transport_start_view(struct transport *tr, struct transport_view *views,
					size_t n);
RLV_MUST_CHECK int transport_start_read(struct transport *tr, const struct transport_io *io,
					size_t n);
RLV_MUST_CHECK int transport_start_write(struct transport *tr, const struct transport_io *io,
					 size_t n);
RLV_MUST_CHECK int transport_start_cas(struct transport *tr, struct transport_atomic *ops,
				       size_t n);
RLV_MUST_CHECK int transport_start_faa(struct transport *tr, struct transport_atomic *ops,
				       size_t n);

/* As the op post_read, for transports that have none, too. */
RLV_MUST_CHECK int transport_post_read(struct transport *tr, const struct transport_io *io,
				       size_t n, uint64_t *ticket_out);

/* Is a ticket done? -EAGAIN: not yet. Counts no phase: nobody waited. */
RLV_MUST_CHECK int transport_look(struct transport *tr, uint64_t ticket);

/* started: what start answered, which stays the answer when it is an error. */
RLV_MUST_CHECK int transport_settle(struct transport *tr, int started);

#endif
