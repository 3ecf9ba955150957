/*
 * Node: a memory node as the metadata server sees it.
 *
 * The node dials in and registers; from then on that connection carries our requests to it. It is
 * asked one thing at a time and answers within milliseconds; one that does not answer within
 * NODE_TIMEOUT is taken for dead and hung up on, so that it cannot hold everybody up again.
 *
 * We attach every region ourselves, by a transport of our own: to format shards, to settle the dead
 * and to rebuild; and so that the memory of a node that died is still there to be marked as
 * orphaned.
 */
#ifndef RLV_SERVER_NODE_H
#define RLV_SERVER_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/transport.h"

#include "wire/channel.h"
#include "wire/control.pb-c.h"

#include "base/error.h"

#define NODE_NAME_BYTES 64
#define NODE_URI_BYTES 256
#define NODE_TIMEOUT_NS (2 * CLOCK_NS_PER_S)
#define NODE_DEATH_NS (6 * CLOCK_NS_PER_S)     /* more, for a fence that kills */
#define NODE_PERSIST_NS (120 * CLOCK_NS_PER_S) /* more, for a persist */

struct event;

struct node {
	struct node *next;
	char name[NODE_NAME_BYTES];
	char uri[NODE_URI_BYTES]; /* where everybody attaches */
	char pages[16];
	uint64_t incarnation; /* 0 = not seen since we started */
	uint64_t pool_bytes, used_bytes;
	uint32_t regions;
	bool persistent;  /* its regions survive it */
	bool sole_opener; /* persistent: nobody else had the pool mapped when it began */
	bool up;
	struct channel channel;    /* while up */
	struct event *hangup;      /* while up: says when the channel ends */
	struct transport *tr;      /* NULL = nothing of this incarnation was attached yet */
	uint64_t attach_client_id; /* of ours, for tr */
};

/* Hangs up. Our attachments stay. Says nothing to anybody. */
void node_disconnect(struct node *node);

/* Detaches from its regions: they must be detached before. */
void node_close_transport(struct node *node);

/*
 * Requests. -EHOSTDOWN: the node is down, or went down by this call (node->up is false then); else
 * the node's own answer.
 */
RLV_MUST_CHECK int node_region_new(struct node *node, struct target_region *spec);
RLV_MUST_CHECK int node_region_free(struct node *node, uint32_t region);
RLV_MUST_CHECK int node_grant(struct node *node, uint64_t client_id, uint32_t region,
			      uint32_t rights, struct region_grant *grant_out);
RLV_MUST_CHECK int node_fence(struct node *node, uint64_t client_id, enum fence_how how,
			      enum fence_result *result_out);
RLV_MUST_CHECK int node_persist(struct node *node);
/* Refreshes pool_bytes, used_bytes, regions, pages. */
RLV_MUST_CHECK int node_stats(struct node *node);

/* Attaches a region for ourselves. */
RLV_MUST_CHECK int node_attach(struct node *node, uint32_t region, struct region **region_out);

#endif
