/*
 * Memnode pages: content of a memory node's /metrics.
 */
#ifndef RLV_SERVER_MEMNODE_PAGES_H
#define RLV_SERVER_MEMNODE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "server/memnode/service.h"
#include "server/net/metrics.h"

struct memnode_registrations {
	bool connected; /* the metadata server is connected, and the node registered */
	uint64_t n;     /* number so far */
};

void memnode_write_metrics(const struct memnode_service *svc, const char *store,
			   const struct memnode_registrations *registrations, struct metrics *m);

#endif
