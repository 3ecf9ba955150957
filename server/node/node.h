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

#include "transport/transport.h"

#include "wire/channel.h"
#include "wire/control.pb-c.h"
#include "wire/rptr.h"

#include "base/error.h"
#include "base/os/process.h"

#define NODE_NAME_BYTES 64
#define NODE_URI_BYTES 256
#define NODE_LEASE_NS CLOCK_NS_PER_S           /* default */
#define NODE_WAIT_NS (8 * CLOCK_NS_PER_S)      /* deadline of a grant */
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

/* End of a posted request. reply is NULL if code comes from the connection, not from the node. */
typedef void (*node_done)(void *ctx, uint64_t tag, struct node *node, int code,
			  const ProtobufCMessage *reply);

struct node {
	struct node *next;
	char name[NODE_NAME_BYTES];
	char uri[NODE_URI_BYTES];        /* address for attaching */
	char former_uri[NODE_URI_BYTES]; /* address in its former incarnation; empty = unknown */
	uint32_t number;                 /* 0.., valid while this server runs */
	uint64_t incarnation;            /* 0 = not seen since our start */
	uint64_t since;                  /* nodes->generation when this incarnation joined */
	bool persistent;                 /* its regions survive a restart of the node */
	bool sole_opener; /* persistent: no other process had the pool mapped at its start */
	uint8_t pool[16]; /* uuid of a persistent pool, or zero */
	bool draining;    /* gets no new shards */
	bool lost;        /* declared lost; it may return, empty */
	bool up;
	bool told; /* all callers were told that it is down */
	uint64_t down_since;
	/* As last reported by the node. */
	char pages[16];
	char transport[16];
	uint64_t pool_bytes, used_bytes;
	uint64_t agent_cpu_ns, process_cpu_ns;
	uint32_t regions, clients, n_gauges;
	struct node_gauge {
		char name[TARGET_GAUGE_BYTES];
		uint64_t value;
	} gauges[TARGET_GAUGES];
	uint8_t broken[RPTR_MAX_REGION / 8 + 1]; /* bit set of regions that cannot be attached */
	/* The connection, while up. */
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
	struct transport *tr;    /* NULL = nothing of this incarnation was attached yet */
	/* Outstanding attachments: attach.c. */
	struct node_reach *reach;     /* tr, being opened by a thread */
	struct node_want *wants;      /* the server's own attachments */
	struct node_want *attaching;  /* the one using tr */
	struct node_asked *asked_for; /* requested grants */
	uint64_t making_since;        /* it makes pages of client slots since then; 0 = none */
	uint64_t last_tag;
	bool news; /* a grant was answered or regions were attached: requesters call again */
	uint64_t attach_client_id; /* our client id for tr */
	/* Regions that it was asked to free, without an answer yet, and whether one could not be
	   freed: used by the catalog (catalog/regions.c). */
	uint32_t freeing;
	bool kept;
};

/* True if clients map its memory, false if they reach it over a network. */
static inline bool node_is_mapped(const struct node *node)
{
	return strncmp(node->uri, "shm:", strlen("shm:")) == 0;
}

/* Record a region that cannot be attached, as last reported; an invalid number is ignored. */
void node_note_broken(struct node *node, uint32_t region);
bool node_is_broken(const struct node *node, uint32_t region);

/* It registered over ch; takes ch over. readable may be NULL (tests). */
void node_connect(struct node *node, const struct channel *ch, struct event *readable);

/* Disconnect; outstanding calls end with -EHOSTDOWN. Our attachments stay. No callback. */
void node_disconnect(struct node *node);

/* Frees everything without a callback. */
void node_free(struct node *node);

/* Close our transport to it: its regions must be detached before. */
void node_close_transport(struct node *node);

/* -------- posted -------- */

struct node_post {
	uint16_t type;
	const ProtobufCMessage *request;
	const ProtobufCMessageDescriptor *reply; /* field 1 is a Status */
	uint64_t timeout_ns;
	node_done done; /* called once, from node_deliver */
	void *ctx;
	uint64_t tag;
};

/* Post a request. -EHOSTDOWN: the node is down, done is not called. -ENOMEM. */
RLV_MUST_CHECK int node_post(struct node *node, const struct node_post *post);

/* done() passes its result to node_region_of. */
RLV_MUST_CHECK int node_post_region_new(struct node *node, const struct target_region *spec,
					node_done done, void *ctx);
/* Result: the number of the new region, which counts as used from now on; or the node's error. */
RLV_MUST_CHECK int node_region_of(struct node *node, int code, const ProtobufCMessage *reply,
				  uint32_t *id_out);
/* tag of done is the region; done calls node_region_freed. */
RLV_MUST_CHECK int node_post_region_free(struct node *node, uint32_t region, node_done done,
					 void *ctx);
/* Requests the free memory, or logs why the region was not freed. */
void node_region_freed(struct node *node, uint64_t region, int code);

RLV_MUST_CHECK int node_post_fence(struct node *node, uint64_t client_id, enum fence_how how,
				   node_done done, void *ctx);
RLV_MUST_CHECK int node_post_persist(struct node *node, uint64_t tag, node_done done, void *ctx);

/* Read available frames. An invalid answer closes the connection. */
void node_read(struct node *node);
/* Call done() of ended calls. */
void node_deliver(struct node *node);
/* Ping, end late calls, and disconnect a silent node. Returns the time of the next call. */
uint64_t node_watch(struct node *node);

/* -------- grants and attachments -------- */

struct node_wish {
	uint64_t asker; /* unique until node_forget_asker; the top bit marks the node's own */
	uint64_t client_id;
	struct region_range range;
	uint32_t rights;
};

/*
 * Requests a grant for a client. -EAGAIN: the node was asked, call again. -EHOSTDOWN: the node is
 * down; else the node's own error. The result stays the same for the same wish until the asker is
 * forgotten or the node goes down.
 */
RLV_MUST_CHECK int node_grant(struct node *node, const struct node_wish *wish,
			      struct region_grant *grant_out);
void node_forget_asker(struct node *node, uint64_t asker);

/*
 * Attaches regions for the server, all n or none; the same ids in the same order are one attempt.
 * -EAGAIN: in progress, call again; or the node was unreachable, and is retried after a back-off
 * that doubles. -ETIMEDOUT: no answer within the node's lease.
 */
RLV_MUST_CHECK int node_attach(struct node *node, const uint32_t *ids, uint32_t n,
			       struct region **regions_out);
/* True if a requested attachment is outstanding. */
bool node_is_attaching(const struct node *node);
/* Advance all attachments. Returns the time of the next call. */
uint64_t node_attach_watch(struct node *node);
/*
 * Looks at the pages that the node makes (transport_prepare); whoever waits for one calls again at the
 * next tick. Returns the time of the next call.
 */
uint64_t node_pages_watch(struct node *node);
/* Cancel all attachments and requested grants. */
void node_attach_forget(struct node *node);
/* Shut down: waits for the connecting thread, at most for one connect timeout. */
void node_attach_fini(struct node *node);

/* For node*.c. */
static inline uint64_t node_now(const struct node *node)
{
	return clock_now_ns(node->clock);
}

RLV_MUST_CHECK int node_error_down(const struct node *node);

#endif
