/*
 * Node: a memory node as the metadata server sees it.
 *
 * The node dials in and registers; from then on that connection carries our requests to it, any
 * number at a time, and its answers in any order. Nothing is waited for: requests are posted, frames
 * are taken in pieces as they come, and what is needed for an answer to somebody else is -EAGAIN until
 * the node has answered. The node is pinged, and hung up on when no whole frame came for its lease.
 * So a node that is dead, slow or hostile costs the others nothing but the few instructions of a look.
 *
 * We attach every region ourselves, by a transport of our own (node_attach.c): to format shards, to
 * settle the dead and to rebuild; and so that the memory of a node that died is still there to be
 * marked as orphaned. A thread opens it, since the address may lead nowhere. Over RDMA the attach
 * itself and operations on the memory do wait, as long as the device does for a link that is cut.
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
#define NODE_WAIT_NS (8 * CLOCK_NS_PER_S)      /* for a grant */
#define NODE_SEND_NS (50 * CLOCK_NS_PER_MS)    /* until a node takes a frame of ours */
#define NODE_WORK_NS (120 * CLOCK_NS_PER_S)    /* to make or free a region */
#define NODE_DEATH_NS (8 * CLOCK_NS_PER_S)     /* for a fence, which may kill */
#define NODE_PERSIST_NS (120 * CLOCK_NS_PER_S) /* for a persist */
#define NODE_PINGS 4                           /* in a lease */
#define NODE_ATTACH_MAX 4                      /* regions at once */

struct event;
struct node;
struct node_asked;
struct node_call;
struct node_reach;
struct node_want;

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
	/* On their way: node_attach.c. */
	struct node_reach *reach;     /* tr, being opened by a thread */
	struct node_want *wants;      /* regions for ourselves */
	struct node_want *attaching;  /* the one that tr is asked for */
	struct node_asked *asked_for; /* grants */
	uint64_t last_tag;
	bool news; /* a client's grant was answered, or regions came: who wants them calls again */
	uint64_t attach_client_id; /* of ours, for tr */
	/* Regions that it was asked to free and has not answered for, and whether one stayed: of the
	   catalog (catalog_leftovers.c). */
	uint32_t freeing;
	bool kept;
};

/* True if clients map its memory, false if they reach it over a wire. */
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

/* -------- grants and attachments -------- */

struct node_wish {
	uint64_t asker; /* a number of its own until node_forget_asker; the top bit is the node's */
	uint64_t client_id;
	struct region_range range;
	uint32_t rights;
};

/*
 * A grant for a client. -EAGAIN: the node was asked, call again. -EHOSTDOWN: the node is down; else the
 * node's own answer. The same for the same wish until the asker is forgotten, or the node is down.
 */
RLV_MUST_CHECK int node_grant(struct node *node, const struct node_wish *wish,
			      struct region_grant *grant_out);
void node_forget_asker(struct node *node, uint64_t asker);

/*
 * Attaches regions for ourselves, all n or none; the same ids, in the same order, are one attempt.
 * -EAGAIN: under way, call again; or the node could not be reached just now, and is not tried again for
 * a while, twice as long each time. -ETIMEDOUT: no answer within the node's lease.
 */
RLV_MUST_CHECK int node_attach(struct node *node, const uint32_t *ids, uint32_t n,
			       struct region **regions_out);
/* True if a requested attachment is outstanding. */
bool node_is_attaching(const struct node *node);
/* Goes on with all of them. Returns when to call again. */
uint64_t node_attach_watch(struct node *node);
/* Gives up all of them, and all grants that were asked for. */
void node_attach_forget(struct node *node);
/* The end: waits for the thread, if there is one, as long as an attempt to connect may take. */
void node_attach_fini(struct node *node);

/* For node*.c. */
static inline uint64_t node_now(const struct node *node)
{
	return clock_now_ns(node->clock);
}

RLV_MUST_CHECK int node_error_down(const struct node *node);

#endif
