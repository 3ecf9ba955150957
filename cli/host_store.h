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
	uint64_t bytes;     /* of the pool of each node; 0 = as large as the file */
	const char *file;   /* pool on a file, or NULL */
	const char *dax;    /* on a DAX device, or NULL */
	const char *listen; /* HOST:PORT of the metadata server, or NULL */
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

/* Stops the daemons that host_store_up started; a private store's files go, too. */
void host_store_close(struct host_store *store);

/*
 * Stops the daemons of a store whoever started them, and removes their files. *stopped_out: how
 * many were running. -ENOENT: no such store here. Thread: setup.
 */
int host_store_down(const char *name, int64_t timeout_ns, uint32_t *stopped_out) RLV_MUST_CHECK;

#endif
