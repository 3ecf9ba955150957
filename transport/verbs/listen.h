/*
 * listen.h - a target's rdma_cm listener: address, device, connect and disconnect events.
 *
 * A node uses one device, because atomics of two devices are not atomic to each other. With a host
 * it is the device of that address; without, the device of the first address that has one.
 * Connections through other devices are refused.
 */
#ifndef RLV_TRANSPORT_VERBS_LISTEN_H
#define RLV_TRANSPORT_VERBS_LISTEN_H

#include "transport/attach/address.h"
#include "transport/verbs/calls.h"

struct peers;

struct listener {
	const struct verbs_calls *calls;
	struct rdma_event_channel *channel; /* its descriptor does not block */
	struct rdma_cm_id *id;
	struct ibv_context *context; /* the device */
	struct node_address address; /* for clients: the resolved host and port */
	struct peers *peers;         /* borrowed */
};

/*
 * Binds the address; accepts nothing yet. -ENOENT (no such host), -ENODEV (no RDMA device has it,
 * or there is none), -EADDRINUSE, -EADDRNOTAVAIL (in use, or no address of this host). The system
 * resolves host names, with time limits of its own.
 */
RLV_MUST_CHECK int listener_open(const struct verbs_calls *calls,
				 const struct node_address *address,
				 struct listener **listener_out);

/* Starts to listen: listener_serve hands queue pairs to peers, which is borrowed and owns them. */
RLV_MUST_CHECK int listener_start(struct listener *listener, struct peers *peers);

/*
 * Handles up to 64 pending rdma_cm events without waiting: accepts or refuses queue pairs, and
 * takes down links that have ended.
 */
void listener_serve(struct listener *listener);

/*
 * Stops listening and frees the listener, after peers_close. forked: a child only frees. NULL is a
 * no-op.
 */
void listener_close(struct listener *listener, bool forked);

#endif
