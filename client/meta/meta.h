/*
 * Meta: the control plane as the client library sees it. Two implementations: meta_embed.c (the
 * catalog lives in this process, over a target of its own) and meta_remote.c (frames to a metadata
 * server). Nothing here is called in steady state.
 */
#ifndef RLV_CLIENT_META_META_H
#define RLV_CLIENT_META_META_H

#include "ds/replay/shard.h"

#include "relive/admin.h"
#include "relive/relive.h"

#include <stdatomic.h>

#define META_NODE_URI_BYTES 256
#define META_WEIGHT_FULL 1000u /* of a shard that takes its whole share of new blocks */

/* Where one shard lives and what lets this client attach its parts. */
struct meta_shard {
	char node_uri[META_NODE_URI_BYTES]; /* for connect; shards of one node share it */
	char node[RLV_NAME_BYTES];          /* its name, for people */
	/* by enum region_role and part_place; bytes 0 = not given */
	struct region_grant grants[PART_PLACES];
	uint32_t state;       /* enum rlv_shard_state; without grants unless ACTIVE or DRAINING */
	uint32_t weight;      /* now; rises to META_WEIGHT_FULL ... */
	uint64_t ramp_ns;     /* ... within so long */
	uint64_t incarnation; /* of the node's life that has it */
};

struct meta_table {
	struct table_desc desc;    /* shard 0's */
	uint32_t n_shards;         /* numbers ever used: may be more than desc.n_shards */
	struct meta_shard *shards; /* owned: meta_table_fini */
	uint32_t control;          /* shard whose limiter words count */
	uint64_t layout;           /* up to this version of all tables all that is known */
};

/* What of a table's plan the server may have to do again. */
struct meta_wishes {
	bool auto_shards;  /* one for each memory node */
	bool crc_by_nodes; /* rows get checksums if one of them is persistent */
	uint32_t block;
	const uint16_t *fanout;
};

/* What grants are asked for: a client with a slot gets its page. */
struct meta_access {
	enum part_access kind;
	uint32_t owner; /* 0 = none: to look alone */
};

#define META_LOOKS (&(const struct meta_access){ .kind = PART_READS })

/* A client slot: whose it is stands in every shard. */
struct meta_slot {
	uint32_t owner; /* 1.. */
	uint64_t lease; /* as the slot names it */
};

#define META_WORDS_BYTES 384

/* What a call of a handle waits for: all is borrowed. */
struct meta_wait {
	const char *table;
	const char *words;
	uint32_t view;
	uint32_t slot;
	uint64_t began_ns; /* of the monotonic clock, both */
	uint64_t said_ns;
};

/* A handle. It takes layouts up, and the server hears of the oldest one in use; and it may wait. */
struct meta_watch {
	struct meta_watch *next;
	_Atomic uint64_t layout;
	/* Of the last wait; the list's owner guards them. */
	uint32_t view, slot;
	uint64_t began_ns, said_ns; /* 0 = none yet */
	char table[RLV_NAME_BYTES], words[META_WORDS_BYTES];
};

struct meta;
struct rlv_wait;

struct meta_ops {
	/* Creates, or opens one with the same signature; -EEXIST otherwise. desc is planned. Grants
	   of this and of open are as for META_LOOKS. */
	int (*create)(struct meta *meta, const struct table_desc *desc,
		      const struct meta_wishes *wishes, struct meta_table *out);
	int (*open)(struct meta *meta, const char *name, struct meta_table *out);
	/* As open, for who has the table open: fresh grants, and where things are now. Never waits
	   longer, nor for another call (-EAGAIN); timeout_ns 0 = as open. -ESTALE: it was dropped;
	   -EACCES: not the owner's lease. */
	int (*refresh)(struct meta *meta, const struct table_desc *desc,
		       const struct meta_access *access, int64_t timeout_ns,
		       struct meta_table *out);
	int (*drop)(struct meta *meta, const char *name);
	int (*list)(struct meta *meta, char (*names)[RLV_NAME_BYTES], size_t *n_inout);

	/* A connection to a memory node; timeout_ns is for connecting. replaces: link of the one before,
	   0 = none; nothing of that lands behind what is done on this one. */
	int (*connect)(struct meta *meta, const char *node_uri, int64_t timeout_ns,
		       uint64_t replaces, struct transport **tr_out);

	/* A client slot for one handle, live in all shards that are up when this returns. streams:
	   blocks that it will hold at once. -ENOSPC: all slots are taken, or all streams
	   (max_writers). timeout_ns 0 = as open. */
	int (*slot_get)(struct meta *meta, const struct table_desc *desc, uint32_t streams,
			int64_t timeout_ns, struct meta_slot *slot_out);
	/* The handle closed cleanly: its slot is free again. Of one whose lease is over nothing is left
	   to put back: whoever fenced it settles it. -ECONNREFUSED: it is put back when the server is
	   there again. timeout_ns 0 = as open. */
	int (*slot_put)(struct meta *meta, const struct table_desc *desc,
			const struct meta_slot *slot, int64_t timeout_ns);

	/* Of memory nodes; NULL where there are none. */
	int (*drain_node)(struct meta *meta, const char *node, struct rlv_drain_info *out);
	int (*drop_node)(struct meta *meta, const char *node);
	int (*clients)(struct meta *meta, struct rlv_client_info *clients, size_t *n_inout);
	int (*forget_node)(struct meta *meta, const char *node);
	int (*rebalance)(struct meta *meta, const char *table, uint32_t *added_out,
			 uint32_t *draining_out);

	/* Gives the catalog as it is now to take, in pieces; NULL where the pool has it. What take
	   answers, if it is not 0, ends it. */
	int (*backup)(struct meta *meta, int (*take)(void *ctx, const void *bytes, size_t len),
		      void *ctx);

	/* Of tokens of roles: either out may be NULL, and role where no token is wanted. NULL where
	   there are none. */
	int (*token)(struct meta *meta, const char *role, bool rotate, char *token_out,
		     uint32_t *epoch_out);

	/* Into *out, which is zeroed. */
	int (*info)(struct meta *meta, struct rlv_store_info *out);
	/* Fills nodes[0..*n_inout); out: how many there are. */
	int (*nodes)(struct meta *meta, struct rlv_node_info *nodes, size_t *n_inout);
	int (*persist)(struct meta *meta);
	void (*close)(struct meta *meta);

	/* Puts a watch on the list and takes it off; NULL where layouts never change. */
	void (*watch)(struct meta *meta, struct meta_watch *watch);
	void (*unwatch)(struct meta *meta, struct meta_watch *watch);
	/* A call of a watch that is on the list waits: said twice a second, as long as it does. NULL
	   where nobody is to hear of it. */
	void (*wait)(struct meta *meta, struct meta_watch *watch, const struct meta_wait *wait);

	/* Fills waits[0..*n_inout); out: how many there are. NULL where nobody else is. */
	int (*waits)(struct meta *meta, struct rlv_wait *waits, size_t *n_inout);
};

/* Head of every implementation. Thread: any; each call takes the implementation's lock. */
struct meta {
	const struct meta_ops *ops;
	struct transport_target *target; /* embed; else NULL */
	bool reader; /* by its token it only reads: it has no client slots, and writes nothing */
	_Atomic uint64_t client_id; /* the newest lease at the server; relaxed: a node that was
					    not told of it says no, and is asked for anew */
	_Atomic uint64_t layout;    /* the newest heard of: a hint to ask, relaxed */
};

RLV_MUST_CHECK int meta_embed_open(const char *path, const struct rlv_store_opts *opts,
				   struct meta **meta_out);
RLV_MUST_CHECK int meta_remote_open(const char *uri, const struct rlv_store_opts *opts,
				    struct meta **meta_out);

void meta_table_fini(struct meta_table *table);

#endif
