/*
 * listen.h - a target's rdma_cm address: which device it is on, who asks to connect, who hangs up.
 *
 * A node uses one device, because the atomics of two know nothing of each other. With a host that is
 * the device of that address; without, the one of the first address that has one, and who comes by
 * another is refused.
 */
#ifndef RLV_TRANSPORT_VERBS_LISTEN_H
#define RLV_TRANSPORT_VERBS_LISTEN_H

#include "transport/verbs/address.h"
#include "transport/verbs/calls.h"

struct peers;

struct listener {
	const struct verbs_calls *calls;
	struct rdma_event_channel *channel; /* its descriptor does not block */
	struct rdma_cm_id *id;
	struct ibv_context *context;  /* the device */
	struct verbs_address address; /* what clients use: host and port are real ones */
	struct peers *peers;          /* borrowed */
};

/*
 * Takes the address, lets nobody in yet. -ENOENT (no such host), -ENODEV (no RDMA device has it, or
 * there is none), -EADDRINUSE, -EADDRNOTAVAIL (in use, or no address of this host). Names of hosts
 * are looked up by the system, with limits of its own.
 */
RLV_MUST_CHECK int listener_open(const struct verbs_calls *calls,
				 const struct verbs_address *address,
				 struct listener **listener_out);

/* From now on clients may come: they are peers'. */
RLV_MUST_CHECK int listener_start(struct listener *listener, struct peers *peers);

/* Does what is pending; never waits. */
void listener_serve(struct listener *listener);

/* The peers are closed. In a forked child (forked) only frees. NULL is a no-op. */
void listener_close(struct listener *listener, bool forked);

#endif
