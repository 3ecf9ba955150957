/*
 * Memnode service: what the metadata server may ask of a memory node, on the connection that the
 * node has made.
 */
#ifndef RLV_SERVER_MEMNODE_SERVICE_H
#define RLV_SERVER_MEMNODE_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/transport.h"

#include "wire/channel.h"

#include "base/error.h"

#define MEMNODE_CALL_NS (5 * CLOCK_NS_PER_S) /* a frame that has begun must have ended by then */

struct memnode_service {
	struct transport_target *target;
	const char *name;
	const char *uri;
	bool persistent;
	uint64_t term; /* a request of a lower one is a zombie's: -ESTALE */
};

/* Receives one request and answers it. An error is one of the channel: it is dead. */
RLV_MUST_CHECK int memnode_answer(const struct memnode_service *svc, struct channel *ch);

/* All regions of a pool; freed by mem_free. -ENOMEM. */
RLV_MUST_CHECK int memnode_list_regions(struct transport_target *target,
					struct target_region **regions_out, size_t *n_out);

#endif
