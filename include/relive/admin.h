/*
 * Relive: what only those need who run a store.
 */
#ifndef RELIVE_ADMIN_H
#define RELIVE_ADMIN_H

#include <relive/relive.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Forgets a node that is down and holds nothing that could come back: its name is free for another one,
 * and it counts no more among the 64 of a store. Errors: -ENOENT, -EBUSY (it is up, or it
 * holds shards that come back with it: start it and drain it), -ENOTSUP. Thread: any. Cost: control
 * plane.
 */
RLV_CHECKED int rlv_store_forget_node(struct rlv_store *store, const char *node);

struct rlv_client_table {
	char name[RLV_NAME_BYTES];
	uint32_t slots;   /* writers and samplers */
	uint32_t streams; /* that its writers may fill at once */
	uint32_t reserved[2];
};

/* A process that has the store open, once for each time; or had, and may still hold something. */
struct rlv_client_info {
	uint64_t id;
	uint32_t pid;      /* on the server's host; 0 = it is on another one */
	uint32_t fenced;   /* 1 = dead, or cut off: what it holds is being settled */
	char role[16];     /* of its token: read, learn, write, admin; "" = it is not connected */
	char address[64];  /* "unix", "HOST:PORT"; "" = it is not connected */
	uint64_t age_ns;   /* since it came, or the server found it */
	uint64_t lease_ns; /* that is left; 0 = over */
	uint32_t slots;    /* client slots (max_clients) in all tables */
	uint32_t streams;  /* max_writers */
	uint32_t n_tables; /* where it has slots, those that are not shown included */
	uint32_t reserved;
	struct rlv_client_table tables[16];
};

/*
 * Who holds what, in the order of their ids: in clients[0..*n_inout), size = sizeof(*clients); out: how
 * many there are. Errors: -ENOTSUP (embed:). Thread: any. Cost: control plane.
 */
RLV_CHECKED int rlv_store_clients(struct rlv_store *store, struct rlv_client_info *clients,
				  size_t size, size_t *n_inout);

/* -------- who waits for what -------- */

enum rlv_wait_kind {
	RLV_WAIT_LIMITER = 1, /* a sampler or writer: for inserts, samples or room */
	RLV_WAIT_REBUILD = 2, /* exact sums: for a client in the middle of a call */
	RLV_WAIT_DRAIN = 3,   /* a shard that leaves its node: for items, or for clients */
	RLV_WAIT_STOPPED =
		4, /* a process in state T (SIGSTOP, a debugger), and a slot that it holds */
};

/* Who waits for what. Members that a kind does not have are 0 or "". */
struct rlv_wait {
	uint32_t kind; /* enum rlv_wait_kind */
	uint32_t pid; /* who waits, or is waited for; 0 = none, or of another host than the server's */
	uint64_t client_id;
	uint32_t slot;     /* that it holds in the table, 1.. */
	uint32_t view;     /* RLV_WAIT_LIMITER; UINT32_MAX: for room in the table */
	uint32_t shard;    /* RLV_WAIT_REBUILD, RLV_WAIT_DRAIN */
	uint32_t stopped;  /* 1: that process is in state T */
	uint64_t since_ns; /* for how long; 0 = not known */
	uint64_t left;     /* RLV_WAIT_DRAIN: items that are to be overwritten elsewhere */
	char table[RLV_NAME_BYTES];
	char node[RLV_NAME_BYTES]; /* RLV_WAIT_DRAIN */
	char words[384];
};

/*
 * What is waited for in a store, as its server knows it: calls that have waited for half a second, by
 * the word of their clients, once a second; rebuilds; drains; stopped processes of the server's host.
 * Fills waits[0..*n_inout), size = sizeof(*waits); out: how many there are. -ENOTSUP (embed:). Thread: any. Cost: control
 * plane.
 */
RLV_CHECKED int rlv_store_waits(struct rlv_store *store, struct rlv_wait *waits, size_t size,
				size_t *n_inout);

/* -------- tokens of roles -------- */

#define RLV_TOKEN_BYTES 128 /* of one of a role, the final NUL included */

/*
 * The token of a role: "read" samples views that do not count samples, "learn" samples all and updates
 * priorities, "write" appends, too, "node" registers memory nodes, "admin" may do everything. What a role
 * does not allow is -EACCES in every call. Errors: -EACCES, -EINVAL (role), -ENOTSUP (embed:). Thread: any.
 * Cost: control plane.
 */
RLV_CHECKED int rlv_store_token(struct rlv_store *store, const char *role,
				char token_out[RLV_TOKEN_BYTES]);
/* Begins a new epoch: tokens of roles of before are refused, and clients that use them cut off. */
RLV_CHECKED int rlv_store_rotate_tokens(struct rlv_store *store, uint32_t *epoch_out);

#ifdef __cplusplus
}
#endif

#endif
