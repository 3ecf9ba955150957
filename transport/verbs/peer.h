/*
 * peer.h - one link of a client, as peers.c keeps it and requests.c serves it.
 *
 * One request of a link is worked on at a time; those behind it wait in their receive buffers. Keys
 * are bound by work requests, so an ATTACH is answered when the last of them has completed:
 *
 *   message -> opening, binds posted -> completions -> ATTACHED sent -> completion -> next message
 */
#ifndef RLV_TRANSPORT_VERBS_PEER_H
#define RLV_TRANSPORT_VERBS_PEER_H

#include "transport/verbs/message.h"
#include "transport/verbs/peers.h"

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

/* Prepares queue pair 0 for messages, before it is accepted. */
RLV_MUST_CHECK int requests_start(struct peer *peer);

/* Serves its completions. An error ends the link; the message says why. */
RLV_MUST_CHECK int requests_serve(struct peer *peer);

#endif
