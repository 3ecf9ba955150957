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

RLV_MUST_CHECK int store_drop_object(struct rlv_store *store, uint32_t kind, const char *name);
RLV_MUST_CHECK int store_list_objects(struct rlv_store *store, uint32_t kind,
				      char (*names)[RLV_NAME_BYTES], size_t *n_inout);

/* Makes a handle of an opened object, which it frees in any case. */
typedef int (*store_wrap_fn)(struct rlv_store *store, struct meta_opened *opened,
			     uint64_t deadline_ns, void **handle_out);

/* Creates the object of the wish, or, if wish->desc is NULL, opens it by name; waits for its nodes
   within the store's timeout. */
RLV_MUST_CHECK int store_get_object(struct rlv_store *store, const struct meta_wish *wish,
				    store_wrap_fn wrap, void **handle_out);

#endif
