/*
 * Meta: the control plane as the client library sees it. Two implementations: embed.c (the
 * catalog lives in this process, over a target of its own) and remote.c (frames to a metadata
 * server). Nothing here is called in steady state, but by heaps of mode central.
 */
#ifndef RLV_CLIENT_META_META_H
#define RLV_CLIENT_META_META_H

#include "ds/replay/shard.h"

#include "relive/admin.h"
#include "relive/relive.h"

#include "base/os/lock.h"

#include <stdatomic.h>

#define META_NODE_URI_BYTES 256
#define META_WEIGHT_FULL 1000u /* weight of a part that takes its full share of new data */

/* An object of the store, of any kind, as requests name it; number 0: by kind and name alone. */
struct meta_object {
	uint32_t kind; /* enum kind_id */
	uint32_t number;
	uint32_t max_clients;
	uint8_t uuid[16];
	char name[RLV_NAME_BYTES];
};

/* Placement of one part, and the grants to attach its regions. */
struct meta_part {
	char node_uri[META_NODE_URI_BYTES]; /* for connect; parts of one node share it */
	char node[RLV_NAME_BYTES];          /* its name, for messages */
	/* by enum region_role and part_place; bytes 0 = not given */
	struct region_grant grants[PART_PLACES];
	uint32_t state;       /* enum rlv_shard_state; without grants unless ACTIVE or DRAINING */
	uint32_t weight;      /* current weight; rises to META_WEIGHT_FULL ... */
	uint64_t ramp_ns;     /* ... within this time */
	uint64_t incarnation; /* of the node that holds it */
};

struct meta_place {
	uint32_t n_parts;        /* part numbers ever used: may exceed those of the descriptor */
	struct meta_part *parts; /* owned: meta_opened_fini */
	uint32_t control;        /* part that keeps the words shared by all parts */
	uint64_t layout;         /* this place includes all changes up to this version */
};

/* An object as the server opened it. */
struct meta_opened {
	struct meta_object object;
	struct meta_place place;
	void *desc; /* owned, as place; of its kind, unchecked */
	size_t desc_bytes;
};

/* A new object: what its kind has of it, and options of tables that the server plans by. */
struct meta_wish {
	uint32_t kind;
	const char *name;
	const void *desc; /* a table's: planned and sealed */
	size_t desc_bytes;
	bool auto_shards;  /* one for each memory node */
	bool crc_by_nodes; /* rows get checksums if any node wants them */
	uint32_t block;
	const uint16_t *fanout;
	const struct meta_load *load; /* NULL = no load */
};

/* An object that a load makes, until commit. */
struct meta_load {
	uint8_t uuid[16]; /* of the new one */
	bool beside;      /* one of that name may be there, which commit drops */
};

/* The grants wanted: a client with a slot also gets its page. */
struct meta_access {
	enum part_access kind;
	uint32_t owner; /* 0 = none: read only */
};

#define META_LOOKS (&(const struct meta_access){ .kind = PART_READS })

/* A client slot; every part records its owner. */
struct meta_slot {
	uint32_t owner; /* 1.. */
	uint64_t lease; /* as the slot names it */
};

#define META_WORDS_BYTES 384

/* A wait of a handle's call. */
struct meta_wait {
	uint32_t view, slot;
	uint64_t began_ns, said_ns; /* of the monotonic clock; 0 = none yet */
	char table[RLV_NAME_BYTES], words[META_WORDS_BYTES];
};

/* How far a handle is: in policy versions of a table, or in generations of weights. Each word is relaxed, as
   it is true of some moment by itself. */
struct meta_progress {
	_Atomic uint64_t newest;     /* that it put or saw */
	_Atomic uint64_t version;    /* of that generation of weights */
	_Atomic uint64_t read_milli; /* what it read last, in 1/1000, ... */
	_Atomic uint64_t oldest;     /* ... and the oldest of that */
	_Atomic uint32_t path; /* how that came to a device: enum rlv_landing_path; 0 = to none */
	_Atomic bool reads;
};

static inline void meta_progress_newest(struct meta_progress *progress, uint64_t newest)
{
	if (newest > atomic_load_explicit(&progress->newest, memory_order_relaxed))
		atomic_store_explicit(&progress->newest, newest, memory_order_relaxed);
}

static inline void meta_progress_read(struct meta_progress *progress, uint64_t read_milli,
				      uint64_t oldest)
{
	atomic_store_explicit(&progress->read_milli, read_milli, memory_order_relaxed);
	atomic_store_explicit(&progress->oldest, oldest, memory_order_relaxed);
	atomic_store_explicit(&progress->reads, true, memory_order_relaxed);
}

/* A handle as the server tracks it: the oldest layout in use, how far it is, and its current wait. */
struct meta_watch {
	struct meta_watch *next;
	const struct meta_object *object; /* borrowed until meta_unwatch */
	_Atomic uint64_t layout;          /* UINT64_MAX: it says nothing of layouts */
	struct meta_progress progress;
	struct meta_wait wait; /* the last one; guarded by meta_role */
};

extern const struct lock_role meta_role;

struct central_call;
struct heap_access;
struct meta;
struct rlv_lag;
struct rlv_wait;
struct rpc;
struct uri;

struct meta_ops {
	/* Creates the object, or opens the one of that name if its signature is the same;
	   -EEXIST if it differs, or if a load is to make it, and not beside it; -EBUSY: a load
	   makes it. The grants only allow to read (META_LOOKS). meta_opened_fini frees *out. */
	int (*create)(struct meta *meta, const struct meta_wish *wish, struct meta_opened *out);
	/* Opens an object by name; or, with its number, refreshes it: new grants and placement.
	   timeout_ns 0 = as long as control calls wait; else it also waits for no other call on
	   the connection (-EAGAIN). -EBUSY: by name, and a load makes it; -ENOENT: no object of that name; -ESTALE: that object was
	   dropped; -EACCES: not the owner's lease. */
	int (*open)(struct meta *meta, const struct meta_object *object,
		    const struct meta_access *access, int64_t timeout_ns, struct meta_opened *out);
	/* Drops the object of that kind and name; if its uuid is not zero, only that one. */
	int (*drop)(struct meta *meta, const struct meta_object *object);
	/* Ends the load of the object: all may open it, and one that it was made beside is dropped,
	   in one step. -ESTALE: it was dropped; -EHOSTDOWN: a part is away; after other errors it may be
	   done. */
	int (*commit)(struct meta *meta, const struct meta_object *object);
	/* Drops the object of a load that failed. -EALREADY: its commit was done, and nothing is. */
	int (*abandon)(struct meta *meta, const struct meta_object *object);
	int (*list)(struct meta *meta, uint32_t kind, char (*names)[RLV_NAME_BYTES],
		    size_t *n_inout);

	/* Connects to a memory node: meta_connect, or a test's substitute for it. */
	int (*connect)(struct meta *meta, const char *node_uri, int64_t timeout_ns,
		       uint64_t replaces, struct transport **tr_out);

	/* Gets a client slot for one handle, live in all parts that are up on return. streams:
	   most blocks that it holds at once. -ENOSPC: all slots are taken, or all streams
	   (max_writers). timeout_ns 0 = as long as control calls wait. */
	int (*slot_get)(struct meta *meta, const struct meta_object *object, uint32_t streams,
			int64_t timeout_ns, struct meta_slot *slot_out);
	/* Returns the slot of a handle that closed cleanly; a no-op if its lease has expired,
	   because fencing frees the slot. -ECONNREFUSED: the request was not sent, and is sent
	   when the server is reachable again. timeout_ns 0 = as long as control calls wait. */
	int (*slot_put)(struct meta *meta, const struct meta_object *object,
			const struct meta_slot *slot, int64_t timeout_ns);

	/* Drains a memory node: its shards get no new data; *out is the progress. This op and
	   the next two are NULL for stores without memory nodes. */
	int (*drain_node)(struct meta *meta, const char *node, struct rlv_drain_info *out);
	int (*remove_node)(struct meta *meta, const char *node, bool forget);
	int (*clients)(struct meta *meta, struct rlv_client_info *clients, size_t *n_inout);
	/* Fits the shards of a table to the memory nodes: adds some, drains others. Either out,
	   the number of such shards, may be NULL. */
	int (*rebalance)(struct meta *meta, const char *table, uint32_t *added_out,
			 uint32_t *draining_out);

	/* Passes the current catalog to take, in pieces. A result of take other than 0 ends the
	   copy and is returned. The op is NULL for stores whose pool holds the catalog. */
	int (*backup)(struct meta *meta, int (*take)(void *ctx, const void *bytes, size_t len),
		      void *ctx);

	/* Gives the token of a role (NULL: of none) and the epoch of tokens; rotate begins a new
	   epoch, in which older tokens are refused. Either out may be NULL. The op is NULL for
	   stores without roles. */
	int (*token)(struct meta *meta, const char *role, bool rotate, char *token_out,
		     uint32_t *epoch_out);

	/* Fills in *out, which the caller has zeroed. */
	int (*info)(struct meta *meta, struct rlv_store_info *out);
	/* Fills at most *n_inout elements of nodes, zeroed before; then *n_inout is the number
	   of all nodes. */
	int (*nodes)(struct meta *meta, struct rlv_node_info *nodes, size_t *n_inout);
	int (*persist)(struct meta *meta);
	void (*close)(struct meta *meta);

	/* Fills at most *n_inout elements of waits; then *n_inout is the number of all waits.
	   The op is NULL for stores without other clients. */
	int (*waits)(struct meta *meta, struct rlv_wait *waits, size_t *n_inout);

	/* The same of heaps, and of lags. */
	int (*heaps)(struct meta *meta, struct rlv_heap_info *heaps, size_t *n_inout);
	int (*lags)(struct meta *meta, struct rlv_lag *lags, size_t *n_inout);

	/* A call of the coordinator of a heap, for the access whose stage takes what the answer
	   points to. -EHOSTDOWN: nothing was done; -ETIMEDOUT, -ECONNRESET, -EIO: not known;
	   -ESTALE: the heap was dropped; errors of central_serve. */
	int (*heap_call)(struct meta *meta, const struct meta_object *object,
			 const struct heap_access *acc, struct central_call *call);
};

/* Head of every implementation. Thread: any; each call takes the implementation's lock. */
struct meta {
	const struct meta_ops *ops;
	struct transport_target *target; /* embed; else NULL */
	struct rpc *rpc;                 /* to the metadata server; embed: NULL */
	bool reader;                /* its token only allows reads: no client slots, no writes */
	_Atomic uint64_t client_id; /* the newest lease at the server; relaxed: a node that was
					    not told of it says no, and is asked for anew */
	_Atomic uint64_t layout;    /* newest known version: a hint to ask, relaxed */
	uint64_t timeout_ns;        /* of data operations; 0 = the transport's own */
	_Atomic uint32_t bell;      /* futex of who reports the watches: how often it was rung */
	struct lock lock;           /* watches */
	struct meta_watch *watches LOCK_GUARDED_BY(meta_role);
};

RLV_MUST_CHECK int meta_embed_open(const char *path, const struct rlv_store_opts *opts,
				   struct meta **meta_out);
RLV_MUST_CHECK int meta_remote_open(const struct uri *uri, const struct rlv_store_opts *opts,
				    struct meta **meta_out);

/* For implementations: sets the ops and initializes the lock of a head that is otherwise zeroed. */
void meta_init(struct meta *meta, const struct meta_ops *ops);
void meta_fini(struct meta *meta);

/* Connects to a memory node; timeout_ns limits connecting. replaces: link of the previous
   connection, 0 = none; none of its operations land after operations on the new one. */
RLV_MUST_CHECK int meta_connect(struct meta *meta, const char *node_uri, int64_t timeout_ns,
				uint64_t replaces, struct transport **tr_out);

/* Adds a handle's watch to the list of the store, whose layouts, progress and waits the server is told.
   The caller owns it, and has set object and layout; meta_unwatch removes it. */
void meta_watch(struct meta *meta, struct meta_watch *watch);
void meta_unwatch(struct meta *meta, struct meta_watch *watch);

/* Reports that a call of a listed watch waits: called twice a second while it does. The first report for a
   while is passed on at once, the others with the next renewals of the lease. */
#define META_WAIT_FRESH_NS (2 * (uint64_t)CLOCK_NS_PER_S) /* said longer ago, it has ended */
#define META_BELL_RING 2                                  /* added to the bell; bit 0 is to stop */
void meta_wait(struct meta *meta, struct meta_watch *watch, const struct meta_wait *wait);

void meta_opened_fini(struct meta_opened *opened);

/* Sets *opened to an object of any kind and a copy of its descriptor, which meta_opened_fini frees;
   without parts. -ENOMEM. */
RLV_MUST_CHECK int meta_opened_init(struct meta_opened *opened, const struct meta_object *object,
				    const void *desc, size_t bytes);

#endif
