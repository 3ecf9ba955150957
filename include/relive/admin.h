/*
 * Relive: calls for operators of a store.
 */
#ifndef RELIVE_ADMIN_H
#define RELIVE_ADMIN_H

#include <relive/relive.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Forgets a node that is down and holds no shard that could return: its name is free for another
 * node, and it no longer counts among the 64 of a store. Errors: -ENOENT, -EBUSY (it is up, or
 * holds shards that return with it: start it and drain it), -ENOTSUP. Thread: any. Cost: control
 * plane.
 */
RLV_CHECKED int rlv_store_forget_node(struct rlv_store *store, const char *node);

struct rlv_client_table {
	char name[RLV_NAME_BYTES];
	uint32_t slots;   /* writers and samplers */
	uint32_t streams; /* most streams that its writers append at once */
	uint32_t reserved[2];
};

/* A client: a process with the store open (one entry per open), or a former one that may still hold
   slots. */
struct rlv_client_info {
	uint64_t id;
	uint32_t pid;      /* of the server's host; 0 = the client is on another host */
	uint32_t fenced;   /* 1 = dead or cut off; its slots are being settled */
	char role[16];     /* of its token: read, learn, write, admin; "" = not connected */
	char address[64];  /* "unix", "HOST:PORT"; "" = not connected */
	uint64_t age_ns;   /* since it connected, or the server found it */
	uint64_t lease_ns; /* time left of its lease; 0 = expired */
	uint32_t slots;    /* client slots (max_clients) in all tables */
	uint32_t streams;  /* max_writers */
	uint32_t n_tables; /* tables where it has slots, also those not in tables[] */
	uint32_t reserved;
	struct rlv_client_table tables[16];
};

/*
 * Lists clients and their slots by id in clients[0..*n_inout), size = sizeof(*clients); *n_inout
 * becomes their number. Errors: -ENOTSUP (embed:). Thread: any. Cost: control plane.
 */
RLV_CHECKED int rlv_store_clients(struct rlv_store *store, struct rlv_client_info *clients,
				  size_t size, size_t *n_inout);

/* -------- waits of clients and of the server -------- */

enum rlv_wait_kind {
	RLV_WAIT_LIMITER = 1, /* a sampler or writer waits for inserts, samples or room */
	RLV_WAIT_REBUILD = 2, /* a rebuild of exact sums waits for a client inside a call */
	RLV_WAIT_DRAIN = 3,   /* a shard that is drained waits for items or clients */
	RLV_WAIT_STOPPED = 4, /* a process with a slot is in state T (SIGSTOP, a debugger) */
};

/* A wait. Members that its kind does not use are 0 or "". */
struct rlv_wait {
	uint32_t kind; /* enum rlv_wait_kind */
	uint32_t pid;  /* of the waiting or blocking process; 0 = none, or not on the server's
			 host */
	uint64_t client_id;
	uint32_t slot;     /* its client slot in the table, 1.. */
	uint32_t view;     /* RLV_WAIT_LIMITER; UINT32_MAX: waits for room in the table */
	uint32_t shard;    /* RLV_WAIT_REBUILD, RLV_WAIT_DRAIN */
	uint32_t stopped;  /* 1: that process is in state T */
	uint64_t since_ns; /* duration of the wait; 0 = unknown */
	uint64_t left;     /* RLV_WAIT_DRAIN: items that other shards must still take in */
	char table[RLV_NAME_BYTES];
	char node[RLV_NAME_BYTES]; /* RLV_WAIT_DRAIN */
	char words[384];
};

/*
 * Lists the waits that the server knows: calls that have waited for half a second, as their clients
 * report once a second; rebuilds; drains; stopped processes on the server's host.
 * Fills waits[0..*n_inout), size = sizeof(*waits); *n_inout becomes their number. -ENOTSUP
 * (embed:). Thread: any. Cost: control plane.
 */
RLV_CHECKED int rlv_store_waits(struct rlv_store *store, struct rlv_wait *waits, size_t size,
				size_t *n_inout);

/* -------- heaps -------- */

/* Copies of a heap's parts as the server sees them. */
struct rlv_heap_info {
	char name[RLV_NAME_BYTES];
	uint32_t mode; /* enum rlv_kv_mode */
	uint32_t parts;
	uint32_t copies_wanted; /* of all parts */
	uint32_t copies;        /* whole ones that it reaches */
	uint32_t copies_filling;
	uint32_t reserved;
};

/*
 * Fills heaps[0..*n_inout), size = sizeof(*heaps); *n_inout becomes their number. -ENOTSUP (embed:).
 * Thread: any. Cost: control plane.
 */
RLV_CHECKED int rlv_store_heaps(struct rlv_store *store, struct rlv_heap_info *heaps, size_t size,
				size_t *n_inout);

/* -------- lags of readers -------- */

enum rlv_lag_kind {
	RLV_LAG_STALENESS = 1, /* of a table's data, in policy versions: its readers are samplers */
	RLV_LAG_PUBLISH =
		2, /* of weights, in generations: its readers are handles that have fetched */
};

/* How far the readers of a table or of weights are behind its newest version. */
struct rlv_lag {
	uint32_t kind; /* enum rlv_lag_kind */
	uint32_t readers;
	char name[RLV_NAME_BYTES];
	uint64_t newest; /* policy version that was appended, or version that was published */
	double least; /* of the reader that is the least behind; a sampler's is its last batch's mean */
	double mean; /* of the readers */
	double most; /* of the reader that is the furthest behind, or of the oldest item in a last batch */
	uint32_t landings
		[8]; /* of a table: readers by how their last batch came to a device (enum rlv_landing_path of
				 relive/landing.h); those without a device are in none */
};

/*
 * Lists the lags that the server knows: of tables and weights whose clients have told of versions, as they do with
 * each renewal of their leases, three times in the time of a lease. Clients that are silent do not count, nor items
 * without columns. Fills
 * lags[0..*n_inout), size = sizeof(*lags); *n_inout becomes their number. -ENOTSUP (embed:). Thread: any.
 * Cost: control plane.
 */
RLV_CHECKED int rlv_store_lags(struct rlv_store *store, struct rlv_lag *lags, size_t size,
			       size_t *n_inout);

/* -------- tokens of roles -------- */

#define RLV_TOKEN_BYTES 128 /* size of a role's token, with the final NUL */

/*
 * Gives the token of a role: "read" samples views that do not count samples; "learn" samples all
 * views and updates priorities; "write" also appends; "node" registers memory nodes; "admin" may do
 * everything. A call that the role does not allow gives -EACCES. Errors: -EACCES, -EINVAL (role),
 * -ENOTSUP (embed:). Thread: any.
 * Cost: control plane.
 */
RLV_CHECKED int rlv_store_token(struct rlv_store *store, const char *role,
				char token_out[RLV_TOKEN_BYTES]);
/*
 * Begins a new epoch of tokens, *epoch_out: role tokens of older ones are refused, and clients that
 * use them are cut off. Errors: -EACCES, -ENOTSUP (embed:). Thread: any.
 */
RLV_CHECKED int rlv_store_rotate_tokens(struct rlv_store *store, uint32_t *epoch_out);

#ifdef __cplusplus
}
#endif

#endif
