/*
 * openings.h - what grants have opened to a link: a range of a region each, and with a provider its
 * registration in the link's port, which is opened at the first grant.
 *
 * Not locked: the target does that.
 */
#ifndef RLV_TRANSPORT_OFI_OPENINGS_H
#define RLV_TRANSPORT_OFI_OPENINGS_H

#include <stdint.h>

#include "transport/ofi/peers.h"

/*
 * Opens what a grant names, and proves the client. An error is for the answer; the link stays. -EACCES and
 * other errors of target_attach; -ENOSPC, -ENOMEM; those of the port.
 */
RLV_MUST_CHECK int ofi_opening_grant(struct ofi_peer *peer, const struct ofi_attach *ask,
				     uint32_t *number_out);

/* Fills in what the client has to know of the opening answer->opening. */
void ofi_opening_describe(const struct ofi_peer *peer, struct ofi_attached *answer);

/* The number of the opening that an ATTACH made; peer->openings.room: none. */
uint32_t ofi_opening_find(const struct ofi_peer *peer, uint32_t request);

/* Ends what it permits, and its key. The link still holds the region. A second call is a no-op. */
void ofi_opening_close(struct ofi_peer *peer, struct ofi_opening *opening);

/* Frees an opening that is closed; the link no longer holds the region. */
void ofi_opening_free(struct ofi_peer *peer, uint32_t number);

#endif
