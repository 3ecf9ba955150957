/*
 * memory_transport.h - the smallest transport: some regions over bytes of the test. In place, or as
 * one over a wire, where reads need a view or a buffer; and it can lose an answer on request.
 */
#ifndef RLV_TESTS_SUPPORT_FAKE_MEMORY_TRANSPORT_H
#define RLV_TESTS_SUPPORT_FAKE_MEMORY_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/replay/shard.h"

#include "transport/transport.h"

#define MEMORY_MORE 3

struct memory_transport {
	struct transport tr;
	struct region region; /* attached; base is NULL over a wire */
	uint8_t *bytes;
	struct region more[MEMORY_MORE]; /* region of memory_transport_add */
	uint8_t *more_bytes[MEMORY_MORE];
	uint32_t n_more;
	uint64_t lose_atomic; /* the n-th atomic from now on loses its answer; 0 = none */
	bool lose_undone;     /* the atomic that loses its answer is not executed either */
	uint64_t fail_call;   /* the n-th call from now on gives -ECONNRESET; 0 = none */
};

/* bytes: 64-aligned, borrowed until fini; several transports may share them. */
void memory_transport_init(struct memory_transport *mt, void *bytes, uint64_t size, bool in_place);
/* Adds a region: a shard needs four. */
struct region *memory_transport_add(struct memory_transport *mt, void *bytes, uint64_t size);
/* Init over the tree of a shard whose regions are addressable, and all of them in regions_out. */
void memory_transport_shard(struct memory_transport *mt, const struct part_regions *of,
			    bool in_place, struct part_regions *regions_out);
void memory_transport_fini(struct memory_transport *mt);

#endif
