/*
 * An open store, as the calls of the API share it.
 */
#ifndef RLV_CLIENT_STORE_STORE_H
#define RLV_CLIENT_STORE_STORE_H

#include "client/store/abi.h"
#include "client/store/backoff.h"
#include "client/meta/meta.h"
#include "client/store/uri.h"

#include <stdatomic.h>

struct rlv_store {
	struct meta *meta;
	struct uri uri;
	int64_t timeout_ns, stall_ns;
	bool read_only;
	_Atomic uint32_t open_tables; /* relaxed: nothing is published by it */
};

/* State of a call that waits for memory nodes, within the store's timeout. Nodes of embed: never
   arrive. */
struct store_wait {
	uint64_t deadline_ns;
	struct backoff backoff;
};

struct store_wait store_wait_begin(const struct rlv_store *store);

/* Handles the error of a call. -EHOSTDOWN (nodes are unreachable) before the deadline: sleeps a
   little and returns 0, and the call is made again. Else returns the error. */
RLV_MUST_CHECK int store_wait_nodes(struct store_wait *wait, int error);

#endif
