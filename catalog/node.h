/*
 * Node: memory in which the catalog places parts, as the catalog sees it. Its implementations: a memory
 * node that registered with the metadata server (server/node/node.h), and the pool of an embedded
 * store (client/meta/embed.c).
 *
 * Nothing here blocks. An operation that waits for the node returns -EAGAIN, or calls back later; a
 * pool in this process has answered when it returns.
 */
#ifndef RLV_CATALOG_NODE_H
#define RLV_CATALOG_NODE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "transport/transport.h"

#include "wire/rptr.h"

#define NODES_MAX 64u /* names in a store */
#define NODE_NAME_BYTES 64
#define NODE_URI_BYTES 256

struct node;
struct node_remote;

/*
 * Called when a request to create or free a region has ended. code: 0, or its error, whose message
 * is in error_last().
 */
typedef void (*node_region_done)(void *ctx, struct node *node, int code, uint32_t region);

struct node_wish {
	uint64_t asker; /* unique until node_forget_asker; the top bit marks the node's own */
	uint64_t client_id;
	struct region_range range;
	uint32_t rights;
};

struct node_ops {
	/* Creates a region. Returns 0 and calls done once, later or before it returns; or returns
	   -EHOSTDOWN (the node is down) or -ENOMEM, and does not call done. */
	int (*region_new)(struct node *node, const struct target_region *spec,
			  node_region_done done, void *ctx);
	/* Frees a region. Results and done are as for region_new. */
	int (*region_free)(struct node *node, uint32_t region, node_region_done done, void *ctx);
	/*
	 * Grants a client a range of a region. -EAGAIN: the node was asked, call again.
	 * -EHOSTDOWN: the node is down; else the node's own error. The result stays the same for
	 * the same wish until the asker is forgotten or the node goes down.
	 */
	int (*grant)(struct node *node, const struct node_wish *wish,
		     struct region_grant *grant_out);
	/*
	 * Attaches regions for the catalog, all n or none; the same ids in the same order are one
	 * attempt. -EAGAIN: in progress, call again; or the node was unreachable, and is retried
	 * after a back-off that doubles. -ETIMEDOUT: no answer within the node's lease.
	 */
	int (*attach)(struct node *node, const uint32_t *ids, uint32_t n,
		      struct region **regions_out);
	/* True if an attachment that was asked for has no answer yet. NULL: attach never waits. */
	bool (*is_attaching)(const struct node *node);
	/*
	 * Closes the catalog's transport to the node's memory. Its regions must be detached before.
	 */
	void (*close)(struct node *node);
};

struct node {
	struct node *next;
	const struct node_ops *ops;
	char name[NODE_NAME_BYTES];
	char uri[NODE_URI_BYTES];        /* address for attaching */
	char former_uri[NODE_URI_BYTES]; /* address in its former incarnation; empty = unknown */
	uint32_t number;                 /* 0.., valid while this process runs */
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
	char why[96]; /* it serves by that transport */
	uint64_t pool_bytes, used_bytes;
	uint64_t agent_cpu_ns, process_cpu_ns;
	uint32_t regions, clients, n_gauges;
	struct node_gauge {
		char name[TARGET_GAUGE_BYTES];
		uint64_t value;
	} gauges[TARGET_GAUGES];
	uint8_t broken[RPTR_MAX_REGION / 8 + 1]; /* bit set of regions that cannot be attached */
	struct transport *tr;       /* NULL = nothing of this incarnation was attached yet */
	struct node_remote *remote; /* its connection; NULL: it is in this process */
	/* Regions that it was asked to free, without an answer yet, and whether one could not be
	   freed: retire.c. */
	uint32_t freeing;
	bool kept;
};

/* True if clients map its memory, false if they reach it over a network. */
static inline bool node_is_mapped(const struct node *node)
{
	return !node->remote || strncmp(node->uri, "shm:", strlen("shm:")) == 0;
}

/*
 * True if rows there have checksums unless somebody says no: a power loss can tear them, or they cross
 * a network by TCP, whose own checksums are weak.
 */
static inline bool node_wants_checksums(const struct node *node)
{
	return node->persistent || strncmp(node->uri, "ofi:", strlen("ofi:")) == 0;
}

/*
 * Records that a region cannot be attached, as the node last reported; an invalid number is
 * ignored.
 */
static inline void node_note_broken(struct node *node, uint32_t region)
{
	if (region <= RPTR_MAX_REGION)
		node->broken[region / 8] |= (uint8_t)(1u << region % 8);
}

static inline bool node_is_broken(const struct node *node, uint32_t region)
{
	return region <= RPTR_MAX_REGION && (node->broken[region / 8] >> region % 8 & 1);
}

#endif
