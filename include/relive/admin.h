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
 * and it counts no more among the RLV_NODES_MAX of a store. Errors: -ENOENT, -EBUSY (it is up, or it
 * holds shards that come back with it: start it and drain it), -ENOTSUP. Thread: any. Cost: control
 * plane.
 */
RLV_CHECKED int rlv_store_forget_node(struct rlv_store *store, const char *node);

struct rlv_client_table {
	char name[RLV_NAME_BYTES];
	uint32_t slots;   /* writers and samplers */
	uint32_t streams; /* that its writers may fill at once */
};

/* A process that has the store open, once for each time; or had, and may still hold something. */
struct rlv_client_info {
	uint64_t id;
	uint32_t pid;    /* on the server's host; 0 = it is on another one */
	uint32_t fenced; /* 1 = dead, or cut off: what it holds is being settled */
	char role[16];
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
 * Who holds what: *n_inout entries of room, in the order of their ids; *n_inout says how many there
 * are. Errors: -ENOTSUP (embed:). Thread: any. Cost: control plane.
 */
RLV_CHECKED int rlv_store_clients(struct rlv_store *store, struct rlv_client_info *clients,
				  size_t *n_inout);

#ifdef __cplusplus
}
#endif

#endif
