/*
 * Node: a memory node as seen by the metadata server.
 *
 * The node dials in and registers. That connection then carries our requests, any number at a time,
 * and its answers in any order. Nothing blocks: requests are posted, frames are read in pieces as
 * they arrive, and a client request that needs an answer returns -EAGAIN until the node has
 * answered. The node is pinged, and disconnected when no complete frame arrived for its lease. So a
 * dead, slow or hostile node costs the other nodes only a few instructions per look.
 *
 * The server attaches every region itself, with a transport of its own (attach.c): to format
 * shards, settle dead clients and rebuild sums, and to keep the memory of a dead node mapped so
 * that it can be marked ORPHANED. A thread opens the transport, since the address may be
 * unreachable. Over RDMA, the attach and operations on the memory do block, as long as the device
 * does for a cut link.
 */
#ifndef RLV_SERVER_NODE_NODE_H
#define RLV_SERVER_NODE_NODE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "catalog/node.h"

#include "wire/control/channel.h"
#include "wire/control.pb-c.h"
#include "wire/rptr.h"

#include "base/error.h"
#include "base/os/process.h"

#define NODE_LEASE_NS CLOCK_NS_PER_S           /* default */
#define NODE_WAIT_NS (8 * CLOCK_NS_PER_S)      /* deadline of a grant */
#define NODE_REACH_NS (2500 * CLOCK_NS_PER_MS) /* deadline to reach its memory, at least */
#define NODE_SEND_NS (50 * CLOCK_NS_PER_MS)    /* deadline for sending a frame */
#define NODE_WORK_NS (120 * CLOCK_NS_PER_S)    /* deadline for creating or freeing a region */
#define NODE_DEATH_NS (8 * CLOCK_NS_PER_S)     /* deadline of a fence, which may kill a process */
#define NODE_PERSIST_NS (120 * CLOCK_NS_PER_S) /* deadline of a persist */
#define NODE_PINGS 4                           /* pings per lease */
#define NODE_ATTACH_MAX 4                      /* regions per attachment */

struct event;
struct node;
struct node_asked;
struct node_call;
struct node_reach;
struct node_want;

/*
 * Called once a posted request has ended: code 0, and the node's reply, freed after the call; or an
 * error, with its message in error_last(), and reply NULL if code comes from the connection, not
 * from the node.
 */
typedef void (*node_done)(void *ctx, uint64_t tag, struct node *node, int code,
			  const ProtobufCMessage *reply);

/* The connection, while up, and what was asked over it. */
struct node_remote {
	struct channel channel;
	struct event *readable;
	const struct clock *clock;
	uint64_t lease_ns;
	uint64_t heard;  /* time when the last frame arrived */
	uint64_t asked;  /* time of our first frame after that; 0 = none: no answer is due */
	uint64_t pinged; /* time of the last ping */
	struct node_call *calls; /* outstanding, and ended but not delivered */
	uint64_t attach_after;   /* no attach attempt before then; 0 = now */
	uint64_t attach_pause;   /* back-off after the next failure; doubles */
	uint64_t link;           /* our last connection to its memory: the next one replaces it */
	/* Outstanding attachments: attach.c. */
	struct node_reach *reach;     /* node->tr, being opened by a thread */
	struct node_want *wants;      /* the server's own attachments */
	struct node_want *attaching;  /* the one using node->tr */
	struct node_asked *asked_for; /* requested grants */
	uint64_t pages_since;         /* it makes pages of client slots since then; 0 = none */
	uint64_t last_tag;
	bool news; /* a grant was answered or regions were attached: requesters call again */
	uint64_t attach_client_id; /* our client id for node->tr */
};

/* A memory node on the network: how the catalog reaches it. */
extern const struct node_ops node_remote_ops;

/* Closes the node's connection: it is down. Outstanding calls end with -EHOSTDOWN, pending
   attachments are cancelled; attached regions stay. Calls nothing back: node_deliver does. */
void node_disconnect(struct node *node);

/* Disconnects the node and frees it with its calls and its transport, without a callback. Waits as
   node_attach_fini. */
void node_free(struct node *node);

/* Closes the server's transport to the node, whose regions must have been detached before. */
void node_close_transport(struct node *node);

/* -------- posted -------- */

struct node_post {
	uint16_t type;
	const ProtobufCMessage *request;
	const ProtobufCMessageDescriptor *reply; /* field 1 is a Status */
	uint64_t timeout_ns;
	node_done done;               /* called once, from node_deliver */
	node_region_done region_done; /* in its place, for requests about a region */
	void *ctx;
	uint64_t tag;
};

/* Sends a request; post->done gets its result later. -EHOSTDOWN: the node is down, or is now, as it
   could not be sent; -ENOMEM. After an error done is not called. */
RLV_MUST_CHECK int node_post(struct node *node, const struct node_post *post);

RLV_MUST_CHECK int node_post_fence(struct node *node, uint64_t client_id, enum fence_how how,
				   node_done done, void *ctx);

/* Reads the frames that have arrived; their calls end. An invalid answer disconnects the node. */
void node_read(struct node *node);
/* Calls done() or region_done() of each call that has ended, and frees the call. */
void node_deliver(struct node *node);
/* Pings the node if due, ends calls past their deadline, and disconnects a node that was silent for
   its lease. Returns the time of the next call; UINT64_MAX: the node is down. */
uint64_t node_watch(struct node *node);

/* -------- grants and attachments -------- */

/* node_ops of it. */
RLV_MUST_CHECK int node_grant(struct node *node, const struct node_wish *wish,
			      struct region_grant *grant_out);
RLV_MUST_CHECK int node_attach(struct node *node, const uint32_t *ids, uint32_t n,
			       struct region **regions_out);
bool node_is_attaching(const struct node *node);

void node_forget_asker(struct node *node, uint64_t asker);
/* Advances all pending attachments; frees results not collected for 10 s. */
void node_attach_watch(struct node *node);
/*
 * Returns the time of the next tick for what is asked of the node: pending attachments, and pages that it
 * makes (transport_prepare). When all pages are made, sets news, so that a caller that needs one repeats
 * its call at the next tick. UINT64_MAX: nothing is asked.
 */
uint64_t node_attach_next(struct node *node);
/* Cancels pending attachments and requested grants. */
void node_attach_forget(struct node *node);
/* Cancels attachments and grants, then waits for the thread that connects to the node's memory, at
   most for one connect timeout. */
void node_attach_fini(struct node *node);

/* For node*.c. */
static inline uint64_t node_now(const struct node *node)
{
	return clock_now_ns(node->remote->clock);
}

RLV_MUST_CHECK int node_error_down(const struct node *node);

#endif
