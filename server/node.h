/*
 * Node: a memory node as the metadata server sees it.
 *
 * The node dials in and registers; from then on that connection carries our requests to it, any
 * number at a time, and its answers in any order. What takes long is posted, and done() hears of
 * the answer from the event loop. What must be known at once is asked and waited for; meanwhile the
 * node is pinged, and one of which nothing is heard for its lease is hung up on. So nobody waits
 * longer than a lease for a node that is dead or stopped, and only once.
 *
 * We attach every region ourselves, by a transport of our own: to format shards, to settle the dead
 * and to rebuild; and so that the memory of a node that died is still there to be marked as
 * orphaned.
 */
#ifndef RLV_SERVER_NODE_H
#define RLV_SERVER_NODE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "transport/transport.h"

#include "wire/channel.h"
#include "wire/control.pb-c.h"
#include "wire/rptr.h"

#include "base/error.h"
#include "base/process.h"

#define NODE_NAME_BYTES 64
#define NODE_URI_BYTES 256
#define NODE_LEASE_NS CLOCK_NS_PER_S           /* default */
#define NODE_WAIT_NS (8 * CLOCK_NS_PER_S)      /* most for one answer that is waited for */
#define NODE_WORK_NS (120 * CLOCK_NS_PER_S)    /* to make or free a region */
#define NODE_DEATH_NS (8 * CLOCK_NS_PER_S)     /* for a fence, which may kill */
#define NODE_PERSIST_NS (120 * CLOCK_NS_PER_S) /* for a persist */
#define NODE_PINGS 4                           /* in a lease */

struct event;
struct node;
struct node_call;

/* The end of a posted request. reply is NULL when code is of the connection, not the node's. */
typedef void (*node_done)(void *ctx, uint64_t tag, struct node *node, int code,
			  const ProtobufCMessage *reply);

struct node {
	struct node *next;
	char name[NODE_NAME_BYTES];
	char uri[NODE_URI_BYTES];        /* where everybody attaches */
	char former_uri[NODE_URI_BYTES]; /* the same in its life before; empty = not known */
	uint32_t number;                 /* 0.., while we run */
	uint64_t incarnation;            /* 0 = not seen since we started */
	uint64_t since;                  /* nodes->generation when this incarnation came */
	bool persistent;                 /* its regions survive it */
	bool sole_opener; /* persistent: nobody else had the pool mapped when it began */
	uint8_t pool[16]; /* uuid of a pool that survives it, or zero */
	bool draining;    /* gets no new shards */
	bool lost;        /* it was declared so; it may come back, empty */
	bool up;
	bool told; /* whoever must know has heard that it is down */
	uint64_t down_since;
	/* What it said last. */
	char pages[16];
	char transport[16];
	uint64_t pool_bytes, used_bytes;
	uint64_t agent_cpu_ns, process_cpu_ns;
	uint32_t regions, clients, qps, mrs, windows;
	uint8_t broken[RPTR_MAX_REGION / 8 + 1]; /* a bit each: regions that nobody can attach */
	/* The connection, while up. */
	struct channel channel;
	struct event *readable;
	const struct clock *clock;
	uint64_t lease_ns;
	uint64_t heard;          /* a frame of it came */
	uint64_t asked;          /* first frame of ours after that; 0 = none: it owes nothing */
	uint64_t pinged;         /* the last ping was sent */
	struct node_call *calls; /* under way, and ended ones that nobody was told of */
	uint64_t attach_after;   /* no attempt to attach before; 0 = now */
	uint64_t attach_pause;   /* after the next failure: it doubles */
	uint64_t link;        /* of our last connection to its memory: the next one replaces it */
	struct transport *tr; /* NULL = nothing of this incarnation was attached yet */
	uint64_t attach_client_id; /* of ours, for tr */
	/* Regions that it was asked to free and has not answered for, and whether one stayed: of the
	   catalog (catalog_leftovers.c). */
	uint32_t freeing;
	bool kept;
};

/* Is its memory mapped by who uses it? Else it is reached over a wire. */
static inline bool node_is_mapped(const struct node *node)
{
	return strncmp(node->uri, "shm:", strlen("shm:")) == 0;
}

/* Which of its regions nobody can attach, as it said last; a number that is none is not one. */
void node_note_broken(struct node *node, uint32_t region);
bool node_is_broken(const struct node *node, uint32_t region);

/* It has registered over ch, which is taken over. readable may be NULL (tests). */
void node_connect(struct node *node, const struct channel *ch, struct event *readable);

/* Hangs up; calls under way end with -EHOSTDOWN. Our attachments stay. Tells nobody. */
void node_disconnect(struct node *node);

/* Frees all, without a word to anybody. */
void node_free(struct node *node);

/* Detaches from its regions: they must be detached before. */
void node_close_transport(struct node *node);

/* -------- posted -------- */

struct node_post {
	uint16_t type;
	const ProtobufCMessage *request;
	const ProtobufCMessageDescriptor *reply; /* its field 1 is a Status */
	uint64_t timeout_ns;
	node_done done; /* called once, from node_deliver */
	void *ctx;
	uint64_t tag;
};

/* -EHOSTDOWN: it is down, done is not called. -ENOMEM. */
RLV_MUST_CHECK int node_post(struct node *node, const struct node_post *post);

/* done() gives what it is told to node_region_of. */
RLV_MUST_CHECK int node_post_region_new(struct node *node, const struct target_region *spec,
					node_done done, void *ctx);
/* The number of the region that it made, which counts as used from now on; or why it did not. */
RLV_MUST_CHECK int node_region_of(struct node *node, int code, const ProtobufCMessage *reply,
				  uint32_t *id_out);
/* tag of done is the region; it calls node_region_freed. */
RLV_MUST_CHECK int node_post_region_free(struct node *node, uint32_t region, node_done done,
					 void *ctx);
/* Asks how much is free now, or logs why the region stayed. */
void node_region_freed(struct node *node, uint64_t region, int code);

RLV_MUST_CHECK int node_post_fence(struct node *node, uint64_t client_id, enum fence_how how,
				   node_done done, void *ctx);
RLV_MUST_CHECK int node_post_persist(struct node *node, uint64_t tag, node_done done, void *ctx);

/* Takes what can be read now. An answer that cannot be is the end of the connection. */
void node_read(struct node *node);
/* Tells the callers of calls that ended. */
void node_deliver(struct node *node);
/* Pings, ends late calls, and hangs up on a silent node. Returns when to call again. */
uint64_t node_watch(struct node *node);

/* -------- asked, and waited for -------- */

/*
 * -EHOSTDOWN: the node is down, or went down by this call (node->up is false then); else the node's
 * own answer.
 */
RLV_MUST_CHECK int node_grant(struct node *node, uint64_t client_id,
			      const struct region_range *range, uint32_t rights,
			      struct region_grant *grant_out);

/*
 * Attaches a region for ourselves. When the node could not be reached it is not tried again for a
 * while, so that it costs us its timeout now and then, not all our time: -EAGAIN.
 */
RLV_MUST_CHECK int node_attach(struct node *node, uint32_t region, struct region **region_out);

#endif
