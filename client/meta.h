/*
 * Meta: the control plane as the client library sees it. Two implementations: meta_embed.c (the
 * catalog lives in this process, over a target of its own) and meta_remote.c (frames to a metadata
 * server). Nothing here is called in steady state.
 */
#ifndef RLV_CLIENT_META_H
#define RLV_CLIENT_META_H

#include "ds/shard.h"

#include "relive/relive.h"

#define META_NODE_URI_BYTES 256

/* Where one shard lives and what lets this client attach its two regions. */
struct meta_shard {
	char node_uri[META_NODE_URI_BYTES]; /* for transport_open; shards of one node share it */
	struct region_grant tree;
	struct region_grant rows;
};

struct meta_table {
	struct table_desc desc; /* shard 0's */
	uint32_t n_shards;
	struct meta_shard *shards; /* owned: meta_table_fini */
};

struct meta;

struct meta_ops {
	/* Creates, or opens one with the same signature; -EEXIST otherwise. desc is planned. */
	int (*create)(struct meta *meta, const struct table_desc *desc, struct meta_table *out);
	int (*open)(struct meta *meta, const char *name, struct meta_table *out);
	int (*drop)(struct meta *meta, const char *name);
	int (*list)(struct meta *meta, char (*names)[RLV_NAME_BYTES], size_t *n_inout);

	/* A client slot for one handle, live in all shards when this returns: owner id 1.. */
	int (*slot_get)(struct meta *meta, const struct meta_table *table, uint32_t *owner_out);
	/* The handle closed cleanly: its slot is free again. */
	int (*slot_put)(struct meta *meta, const struct meta_table *table, uint32_t owner);

	int (*info)(struct meta *meta, struct rlv_store_info *out);
	int (*persist)(struct meta *meta);
	void (*close)(struct meta *meta);
};

/* Head of every implementation. Thread: any; each call takes the implementation's lock. */
struct meta {
	const struct meta_ops *ops;
	struct transport_target *target; /* embed: for transport_open; else NULL */
	uint64_t client_id;              /* lease at the server */
};

RLV_MUST_CHECK int meta_embed_open(const char *path, const struct rlv_store_opts *opts,
				   struct meta **meta_out);
RLV_MUST_CHECK int meta_remote_open(const char *uri, const struct rlv_store_opts *opts,
				    struct meta **meta_out);

void meta_table_fini(struct meta_table *table);

#endif
