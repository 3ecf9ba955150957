/*
 * host_store.h - starts and awaits the daemons of a store on this host.
 *
 * Each command holds the store's lock (host_lock) from its first look to its last change. A kill at
 * any step is safe: the next call continues from the state it finds.
 */
#ifndef RLV_CLI_HOST_HOST_STORE_H
#define RLV_CLI_HOST_HOST_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/os/runtime_dir.h"
#include "cli/host/host_files.h"
#include "program/progress.h"

#define HOST_STORE_MAX_NODES 16
#define HOST_STORE_URI_BYTES 64

/* Options of a memory node. 0 or NULL: not given, so unchanged, or the default. */
struct host_node_opts {
	const char *store;
	const char *metad;       /* `node add`: relive://HOST:PORT; NULL = a store of this host */
	uint64_t bytes;          /* pool size (default 1G, or as created) */
	const char *file;        /* directory or DAX device of the pool */
	const char *pages;       /* of memory: "auto", "huge", "small" */
	const char *transport;   /* "auto", "shm", "verbs", "ofi" */
	const char *rdma_listen; /* HOST:PORT at which the node accepts clients over a wire */
	const char *interface;   /* at whose address it accepts them */
	const char *ports;       /* ofi: LOW-HIGH */
	const char *provider;    /* ofi: of libfabric */
	const char *metrics;     /* [IP:]PORT of /metrics */
	const char *group;       /* user group with access to the sockets */
	const char *log_level;   /* "error", "warn", "info", "debug" */
	const char *log_format;  /* "text", "json" */
	bool adopt;              /* adopt tables in the pool that the store does not know */
	bool discard;            /* discard regions in the pool that the store does not know */
	bool trust_clients;      /* a device: each client of this host may map all of it */
	int64_t timeout_ns;      /* must be set */
};

#define HOST_NODE_OPTS_INIT \
	{ \
		.store = "default", .timeout_ns = 20000000000 \
	}

/* Options of a store, those of its nodes included. */
struct host_store_opts {
	/* Group and log options are those of the server too; metrics: node N has PORT + 1 + N. */
	struct host_node_opts node;
	const char *listen;   /* HOST:PORT of the metadata server */
	const char *announce; /* file in which it says where it listens, and its token */
	const char *tls_cert; /* PEM files for the server's TCP connections */
	const char *tls_key;
	const char *tls_ca;
	int64_t node_lease_ns; /* for the server, as are the next two */
	int64_t node_lost_ns;  /* INT64_MAX = only by hand */
	int64_t slow_start_ns;
	const char *stalled; /* "wait", "kill" */
	bool trust;          /* accept rows that may be torn and have no checksums */
	bool tied;           /* the daemons end with this process */
	uint32_t nodes;      /* number of nodes that it creates; 0 = as it was, or one */
};

struct host_store {
	struct runtime_dir dir;
	char name[RUNTIME_PATH_BYTES];
	char uri[HOST_STORE_URI_BYTES];
	pid_t metad;
	pid_t nodes[HOST_FILES_MAX];
	uint32_t n_nodes;
	uint32_t started;                   /* daemons started by this call */
	bool was_up;                        /* a daemon ran before */
	char temp_root[RUNTIME_PATH_BYTES]; /* private runtime directory, "" if none */
};

/*
 * Starts the missing daemons of the store, with their former options. Waits until the server
 * reports each node of this host as up. On failure prints the reason on stderr, with the end of the
 * log at fault, and stops what it started if nothing ran before. -EEXIST: the options contradict
 * running daemons; -ETIMEDOUT; -EINTR. Thread: setup.
 */
int host_store_up(const struct host_store_opts *opts, struct progress *progress,
		  struct host_store *store_out) RLV_MUST_CHECK;

/*
 * Starts a private store of this process, with that many memory nodes of `bytes` each, in a runtime directory of its own under TMPDIR, which
 * RELIVE_RUNTIME_DIR then names; the daemons end with this process. host_store_close removes it.
 */
int host_store_private(uint32_t nodes, uint64_t bytes, struct host_store *store_out) RLV_MUST_CHECK;

/* Stops the daemons that host_store_up started, and no others; deletes a private store's files. */
void host_store_close(struct host_store *store);

#endif
