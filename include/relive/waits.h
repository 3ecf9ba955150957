/*
 * relive/waits.h - who waits for what in a store: of `relive status --why`.
 */
#ifndef RELIVE_WAITS_H
#define RELIVE_WAITS_H

#include "relive/relive.h"

#ifdef __cplusplus
extern "C" {
#endif

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
 * Fills waits[0..*n_inout); out: how many there are. -ENOTSUP (embed:). Thread: any. Cost: control
 * plane.
 */
RLV_CHECKED int rlv_store_waits(struct rlv_store *store, struct rlv_wait *waits, size_t *n_inout);

#ifdef __cplusplus
}
#endif

#endif
