/*
 * Memnode pages: content of a memory node's /metrics.
 */
#ifndef RLV_SERVER_MEMNODE_PAGES_H
#define RLV_SERVER_MEMNODE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/transport.h"

#include "server/net/metrics.h"

struct memnode_state {
	const char *name;
	const char *store;
	struct transport_target *target;
	bool registered;        /* the metadata server is connected */
	uint64_t registrations; /* number so far */
	uint64_t agent_cpu_ns;
};

void memnode_write_metrics(const struct memnode_state *state, struct metrics *m);

#endif
