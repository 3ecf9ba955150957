/*
 * host_store.h - a store on this host: its daemons are started, waited for and stopped here.
 */
#ifndef RLV_CLI_HOST_STORE_H
#define RLV_CLI_HOST_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/runtime_dir.h"
#include "cli/progress.h"

#define HOST_STORE_MAX_NODES 16
#define HOST_STORE_URI_BYTES 64

struct host_store_opts {
	const char *store;
	uint64_t bytes;          /* of the pool of each node; 0 = as large as the file */
	const char *file;        /* pool on a file, or NULL */
	const char *dax;         /* on a DAX device, or NULL */
	uint32_t pages;          /* of memory: 0 auto, 1 huge, 2 small */
	const char *listen;      /* HOST:PORT of the metadata server, or NULL */
	const char *transport;   /* of the nodes: "auto" (NULL), "shm", "verbs" */
	const char *rdma_listen; /* HOST:PORT where the node's RDMA device accepts, or NULL */
	int64_t node_lease_ns;   /* 0 = the server's default, and the next two */
	int64_t node_lost_ns;    /* INT64_MAX = never by itself */
	int64_t slow_start_ns;
	bool kill_stalled;
	bool tied; /* the daemons end with this process */
	uint32_t nodes;
	int64_t timeout_ns;
};

struct host_store {
	struct runtime_dir dir;
	char name[RUNTIME_PATH_BYTES];
	char uri[HOST_STORE_URI_BYTES];
	pid_t metad;
	pid_t nodes[HOST_STORE_MAX_NODES];
	uint32_t n_nodes;
	char temp_root[RUNTIME_PATH_BYTES]; /* a private runtime directory, "" if none */
};

/*
 * Starts a metadata server and the nodes and waits until a client sees them all. On failure says
 * why on stderr, with the end of the log at fault, and stops what it started. -EBUSY: it is up
 * already; -ETIMEDOUT; -EINTR. Thread: setup.
 */
int host_store_up(const struct host_store_opts *opts, struct progress *progress,
		  struct host_store *store_out) RLV_MUST_CHECK;

/*
 * A store of this process alone, in a runtime directory of its own under TMPDIR; the daemons end
 * with this process. host_store_close removes all of it.
 */
int host_store_private(uint64_t bytes, int64_t timeout_ns, struct host_store *store_out)
	RLV_MUST_CHECK;

/* One more memory node of a store that runs, here or elsewhere. */
struct host_node_opts {
	const char *store;
	const char *name;
	const char *metad; /* relive://HOST:PORT; NULL = the store runs on this host */
	uint64_t bytes;    /* and the following as in host_store_opts */
	const char *file;
	uint32_t pages;
	const char *transport;
	const char *rdma_listen;
	int64_t timeout_ns;
};

/*
 * Starts it and waits until the store says that it is up. On failure says why on stderr, with the
 * end of its log, and stops it. -EBUSY: such a node runs here; -ETIMEDOUT; -EINTR. Thread: setup.
 */
int host_store_add_node(const struct host_node_opts *opts, pid_t *pid_out) RLV_MUST_CHECK;

/* Stops the daemons that host_store_up started; a private store's files go, too. */
void host_store_close(struct host_store *store);

/*
 * Stops the daemons of a store whoever started them, and removes their files. *stopped_out: how
 * many were running. -ENOENT: no such store here. Thread: setup.
 */
int host_store_down(const char *name, int64_t timeout_ns, uint32_t *stopped_out) RLV_MUST_CHECK;

#endif
