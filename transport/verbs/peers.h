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

#include "transport/verbs/message.h"
#include "transport/verbs/rights.h"

#include "base/os/clock.h"
#include "base/os/process.h"

#define PEERS_MAX 4096                       /* links */
#define PEERS_UNPROVED_MAX 256               /* of them, without a good grant so far */
#define PEERS_PROOF_NS (30 * CLOCK_NS_PER_S) /* time for it */
#define PEERS_LOOK_NS (2 * CLOCK_NS_PER_S)
#define PROBE_NS (5 * CLOCK_NS_PER_S)        /* between two probes of a link */
#define PROBE_LIMIT_NS (60 * CLOCK_NS_PER_S) /* a device that retries longer is dead */
#define PEERS_FENCED_MAX 4096                /* fenced clients to refuse: the latest ones */

#define PEER_RECEIVES 8
#define PEER_SENDS 3 /* in each send queue: a bind, an answer, a probe */
#define PEER_COMPLETIONS (PEER_RECEIVES + VERBS_LINK_QPS * PEER_SENDS)

/* Work requests of a link, by wr_id: receives have the number of their buffer. */
enum { PEER_ID_SEND = PEER_RECEIVES, PEER_ID_BIND, PEER_ID_PROBE };

/* Message buffers that the device reads and writes. */
struct peer_buffers {
	uint8_t in[PEER_RECEIVES][VERBS_MESSAGE_MAX];
	union verbs_any out;
};

/* A message that waits for its turn. */
struct peer_message {
	uint32_t buffer, bytes;
};

/*
 * One request of a link is worked on at a time; those behind it wait in their receive buffers. Keys
 * are bound by work requests, so an ATTACH is answered when the last of them has completed:
 *
 *   message -> opening, binds posted -> completions -> ATTACHED sent -> completion -> next message
 */
struct peer {
	struct peer *next;
	struct peers *all;
	uint64_t client_id, number;
	uint32_t n_qps, joined;
	struct rdma_cm_id *ids[VERBS_LINK_QPS];
	struct ibv_pd *domain;
	struct ibv_cq *completions;
	struct peer_buffers *buffers; /* in a chunk */
	struct ibv_mr *mr;            /* of buffers, in the link's own domain */
	uint32_t key;                 /* of them, in its domain */
	struct opening *openings;
	uint32_t n_openings;
	struct opening *binding; /* one of them: its keys are being bound */
	uint32_t binds;          /* under way */
	bool sending;            /* buffers->out is in use */
	bool proved;
	uint64_t deadline;                        /* of the proof */
	uint32_t probes;                          /* without an answer */
	uint64_t probed_ns;                       /* the last, or when the link was made */
	struct peer_message queue[PEER_RECEIVES]; /* a ring */
	uint32_t head, waiting;
};

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

/*
 * Makes the table of clients' links over the device of context, and registers the target's regions
 * with it. target, buffers: borrowed. Errors of verbs_device_get and rights_init.
 */
RLV_MUST_CHECK int peers_open(const struct verbs_calls *calls, struct ibv_context *context,
			      struct target *target, const struct alloc_hooks *buffers,
			      struct peers **peers_out);

/* Takes all links down and frees peers. forked: a child only frees. NULL is a no-op. */
void peers_close(struct peers *peers, bool forked);

/*
 * Accepts a queue pair of a link, after taking down the link that this one replaces; the id is
 * owned by the peers from then on, its context is the link. On failure the caller keeps the id and
 * rejects it with the message. -EOWNERDEAD (this client was fenced), -ECONNREFUSED (too many
 * links), -EPROTO (the link has that queue pair already), -ENOTSUP (another device).
 */
RLV_MUST_CHECK int peers_connect(struct peers *peers, struct rdma_cm_id *id,
				 const struct verbs_hello *hello,
				 const struct rdma_conn_param *param);

/* Takes down and frees a link: nothing that it started can land when this returns. */
void peers_drop(struct peers *peers, struct peer *peer);

/*
 * Takes down the links of a client and refuses it until PEERS_FENCED_MAX others were fenced. True
 * if it had any links.
 */
bool peers_fence(struct peers *peers, uint64_t client_id);

bool peers_have(const struct peers *peers, uint64_t client_id);

/* Number of clients that have a link and that target_knows does not know. */
uint32_t peers_count_clients(const struct peers *peers);

/*
 * Closes a client's openings of a region: their keys are invalid on return. A link whose ATTACH of
 * the region is in progress is taken down.
 */
void peers_revoke(struct peers *peers, uint64_t client_id, uint32_t region);

/*
 * Serves the completion channel, probes silent links, and takes down links whose deadline
 * for a proof has passed. Called at least every PEERS_LOOK_NS.
 */
void peers_serve(struct peers *peers);

/* Removes the opening *at from the peer's list and closes it (rights_close). */
void peer_close_opening(struct peer *peer, struct opening **at);

/*
 * Serves the peer's completions: messages and answers (requests.c). After an error, whose message
 * says why, the caller takes the link down.
 */
RLV_MUST_CHECK int requests_serve(struct peer *peer);

#endif
