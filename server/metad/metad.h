/*
 * Metad: the metadata server. One event loop; never on a data path, but that of heaps of mode central,
 * whose coordinator it is.
 *
 *   conns     connections                  rpc        requests
 *   nodes     memory nodes                 catalog    tables and their shards
 *   liveness  leases and fences            repair     rebuild of sums after deaths
 *   persist   rounds over all nodes        statedb    durable state
 *   http      /metrics and /healthz
 *
 * A restart, also after kill -9, reads the state database, waits for the nodes to register again,
 * attaches their regions, reads the client slots there, and serves. The data path is not affected.
 */
#ifndef RLV_SERVER_METAD_METAD_H
#define RLV_SERVER_METAD_METAD_H

#include <stdbool.h>
#include <stdint.h>

#include "server/catalog/arrival.h"
#include "server/daemon/daemon.h"
#include "server/net/conns.h"
#include "server/net/http.h"
#include "server/node/liveness.h"
#include "server/node/nodes.h"
#include "server/node/persist.h"
#include "server/catalog/repair.h"
#include "server/statedb/statedb.h"

#include "wire/control/announce.h"

#include "base/error.h"
#include "base/os/runtime_dir.h"

struct event;
struct event_base;
struct rpc_backup;
struct rpc_parked;

struct metad_opts {
	const char *store;
	const char *dir;  /* folder of the state database; NULL = the store's directory */
	bool listen;      /* also on TCP */
	const char *host; /* NULL = loopback */
	uint16_t port;    /* 0 = any */
	const char *
		announce; /* file that names host and port (wire/control/announce.h); NULL = none */
	uint64_t lease_ns;      /* 0 = 10 s */
	uint64_t node_lease_ns; /* 0 = 1 s */
	uint64_t node_lost_ns;  /* 0 = 30 s, UINT64_MAX = only by hand */
	uint64_t ramp_ns;       /* ramp-up time of a new shard; 0 = 10 s */
	uint64_t stall_ns;      /* 0 = 60 s */
	bool kill_stalled;
	bool trust;         /* as in struct catalog */
	uint32_t max_conns; /* 0 = 1024 */
	struct daemon_common common;
};

struct metad {
	struct metad_opts opts;
	struct runtime_dir dir;
	int lock_fd;
	char token[RUNTIME_TOKEN_BYTES];
	uint32_t epoch;           /* token epoch */
	uint16_t port;            /* bound port, 0 = none */
	struct announcement news; /* what the file says since metad_open */
	struct catalog_store *store;
	struct event_base *base;
	struct event *tick;
	struct event *stop[2];
	struct conns *conns;
	struct http *http; /* NULL = not served */
	struct event *page;
	struct nodes nodes;
	struct catalog catalog;
	struct liveness live;
	struct repair repair;
	struct persist persist;
	struct rpc_parked *parked;  /* requests that wait for nodes: rpc_table.c */
	uint64_t last_asker;        /* last asker number given to a parked request */
	struct rpc_backup *backups; /* copies of the catalog in transfer: rpc_backup.c */
};

/* Opens the store's state and listens. -EBUSY: the store has a running server (the message has its
   pid); -EINVAL: a TLS certificate without TCP; -ENOMEM; errors of the components. */
RLV_MUST_CHECK int metad_open(const struct metad_opts *opts, struct metad **md_out);

/* Serves until SIGTERM or SIGINT, then returns 0. -EIO: the event loop failed. */
RLV_MUST_CHECK int metad_run(struct metad *md);

void metad_close(struct metad **md);

/* Schedules the server's next tick, with the catalog's upkeep, for now: something has changed. */
void metad_hurry(struct metad *md);

/* The state of the node as enum Relive__NodeState: UP, DRAINING (and up), LOST or DOWN. */
uint32_t metad_node_state(const struct node *node);

/* Writes the content of /metrics; ctx is the struct metad. */
void metad_write_metrics(void *ctx, struct metrics *m);
/* Health of the server, for /healthz: 0 if the catalog is writable, else an error of statedb_check.
   ctx is the struct metad. */
RLV_MUST_CHECK int metad_check_health(void *ctx);

#endif
