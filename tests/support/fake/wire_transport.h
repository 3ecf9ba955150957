/*
 * wire_transport.h - a transport as one over a wire, over any other. Nothing happens when it is
 * started: vectors are done in a random order when they are waited for, chains in their order at
 * some later call, or when they are polled. Until then what is read, old words and statuses are
 * garbage. Within a chain it takes the liberties that a queue pair takes: a write passes earlier
 * reads and atomics unless it carries a fence flag, and so do reads each other.
 */
#ifndef RLV_TESTS_SUPPORT_FAKE_WIRE_TRANSPORT_H
#define RLV_TESTS_SUPPORT_FAKE_WIRE_TRANSPORT_H

#include "transport/transport.h"

/*
 * Takes inner over; regions must be attached through the new one. Regions have no address. Fails
 * the test, never returns NULL.
 */
struct transport *wire_wrap(struct transport *inner);

/* The same, and words are changed by a NIC: regions are of another atomic domain. */
struct transport *wire_wrap_nic(struct transport *inner);

/*
 * Words are changed by a NIC, and regions are mapped: attached with the right for atomics they are
 * mapped for reading only, so that code which changes one in place dies. inner's regions are shared
 * memory.
 */
struct transport *wire_wrap_mapped(struct transport *inner);

/* From now on it takes guarded requests, and chains of up to 1088. */
void wire_guards(struct transport *tr);

/* From now on requests execute only in waits, all outstanding ones at once. */
void wire_lockstep(struct transport *tr);

/* Outstanding requests never happen, and never complete. */
void wire_forget(struct transport *tr);

/* What transport_reach of all of them returns, for memory that is a dma-buf and that is not. */
extern struct wire_reach {
	int dmabuf_code, address_code;
	uint32_t calls;
} wire_reach;

/* Restarts the random order of completions from a seed. */
void wire_seed(struct transport *tr, uint64_t seed);

#endif
