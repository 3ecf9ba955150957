/*
 * peers.h - the links of clients as the target sees them: their queue pairs, what they ask by SEND,
 * and what is open to them.
 *
 *   CONNECT_REQUEST --peers_connect--> queue pair  (all of them: the link is whole)
 *                                        | ATTACH: a good grant proves the client
 *                                      openings    (transport/verbs/rights.h)
 *   disconnect, garbage, fence, deadline of the proof: everything of the link is taken down at once
 *
 * A HELLO proves nothing: it may name any client. It costs the target a few queue pairs, whose
 * number is bounded and whose time is short; they can touch nothing until an ATTACH.
 *
 * The completion queues carry messages only: the target sees no data operation. Not locked: the
 * target does that.
 */
#ifndef RLV_TRANSPORT_VERBS_PEERS_H
#define RLV_TRANSPORT_VERBS_PEERS_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/verbs/rights.h"
#include "wire/verbs_layout.h"

#include "base/os/clock.h"
#include "base/os/process.h"

#define PEERS_MAX 4096                       /* links */
#define PEERS_UNPROVED_MAX 256               /* of them, without a good grant so far */
#define PEERS_PROOF_NS (30 * CLOCK_NS_PER_S) /* time for it */
#define PEERS_LOOK_NS (2 * CLOCK_NS_PER_S)
#define PROBE_NS (5 * CLOCK_NS_PER_S)        /* between two probes of a link */
#define PROBE_LIMIT_NS (60 * CLOCK_NS_PER_S) /* a device that retries longer is dead */
#define PEERS_FENCED_MAX 4096                /* fenced clients to refuse: the latest ones */

struct peer;

struct peers {
	struct rights rights;
	struct verbs_device *device; /* a reference */
	uint8_t boot_id[PROCESS_BOOT_ID_BYTES];
	struct ibv_comp_channel *channel;  /* its descriptor does not block */
	const struct alloc_hooks *buffers; /* of chunks; borrowed */
	struct peer *first;
	uint32_t n, n_unproved, n_qps;
	uint64_t attaches;
	uint64_t fenced[PEERS_FENCED_MAX];
	uint64_t n_fenced; /* total; fenced holds the latest */
};

/* target, buffers: borrowed. */
RLV_MUST_CHECK int peers_open(const struct verbs_calls *calls, struct ibv_context *context,
			      struct target *target, const struct alloc_hooks *buffers,
			      struct peers **peers_out);

/* Takes all links down. forked: a child only frees. NULL is a no-op. */
void peers_close(struct peers *peers, bool forked);

/*
 * A queue pair of a link asks to join. Takes down the link that this one replaces, and accepts; the
 * id is owned by the peers from then on, its context is the link. On failure the caller keeps the
 * id and rejects it with the message. -EOWNERDEAD (this client was fenced), -ECONNREFUSED (too
 * many), -EPROTO, -ENOTSUP (another device).
 */
RLV_MUST_CHECK int peers_connect(struct peers *peers, struct rdma_cm_id *id,
				 const struct verbs_hello *hello,
				 const struct rdma_conn_param *param);

/* Takes down a link: nothing that it started can land when this returns. */
void peers_drop(struct peers *peers, struct peer *peer);

/* Takes down the links of a client and refuses it from now on. True if there were any. */
bool peers_fence(struct peers *peers, uint64_t client_id);

bool peers_have(const struct peers *peers, uint64_t client_id);

/* Number of connected clients that the target itself does not know. */
uint32_t peers_count_clients(const struct peers *peers);

/* Takes a region back from a client. */
void peers_revoke(struct peers *peers, uint64_t client_id, uint32_t region);

/*
 * Serves the completion channel, probes silent links, and takes down links whose deadline
 * for a proof has passed. Called at least every PEERS_LOOK_NS.
 */
void peers_serve(struct peers *peers);

#endif
