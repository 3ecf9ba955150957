/*
 * host_store.h - a store on this host: its daemons are started, waited for and stopped here.
 *
 * Each of these holds the store's lock (host_lock.h) from its first look to its last change. They
 * may be killed at any step: the next one goes on from what it finds.
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
#define HOST_STORE_UNSET UINT32_MAX
#define HOST_STORE_LOCK_NS 20000000000 /* longest wait for another command */

/* A value of 0, NULL or HOST_STORE_UNSET: not given, so as it is, or the default. */
struct host_store_opts {
	const char *store;
	uint64_t bytes;       /* of the pool of each node (default 1G, or as it was made) */
	const char *file;     /* directory of the pool */
	const char *dax;      /* on a DAX device */
	uint32_t pages;       /* of memory: 0 auto, 1 huge, 2 small, or UNSET */
	const char *listen;   /* HOST:PORT of the metadata server */
	const char *metrics;  /* [IP:]PORT of its /metrics; node N has PORT + 1 + N */
	const char *tls_cert; /* PEM files of the metadata server's TCP connections */
	const char *tls_key;
	const char *tls_ca;
	const char *group;       /* of users who may connect to all sockets */
	const char *transport;   /* of the nodes: "auto", "shm", "verbs" */
	const char *rdma_listen; /* HOST:PORT where the node's RDMA device accepts */
	int64_t node_lease_ns;   /* of the server, and the next two */
	int64_t node_lost_ns;    /* INT64_MAX = never by itself */
	int64_t slow_start_ns;
	uint32_t stalled;    /* 0 wait, 1 kill, or UNSET */
	uint32_t log_level;  /* of all of them: 0 error, 1 warn, 2 info, 3 debug, or UNSET */
	uint32_t log_format; /* 0 text, 1 JSON, or UNSET */
	bool trust;          /* rows that may be torn and have no checksums: a person's word */
	bool adopt;          /* what the pool holds and the store does not know: another one */
	bool discard;        /* the same */
	bool trust_clients;  /* a device: each client of this host may get all of it */
	bool tied;           /* the daemons end with this process */
	uint32_t nodes;
	int64_t timeout_ns; /* given */
};

struct host_store {
	struct runtime_dir dir;
	char name[RUNTIME_PATH_BYTES];
	char uri[HOST_STORE_URI_BYTES];
	pid_t metad;
	pid_t nodes[HOST_FILES_MAX];
	uint32_t n_nodes;
	uint32_t started;                   /* daemons that were missing */
	bool was_up;                        /* something of it ran before */
	char temp_root[RUNTIME_PATH_BYTES]; /* a private runtime directory, "" if none */
};

/*
 * Starts what is missing of the store: all of it, or what ended, as it was started before. Waits
 * until the server says that every node on this host is up. On failure says why on stderr, with the
 * end of the log at fault, and stops what it started if nothing ran before. -EEXIST: the options
 * contradict what runs; -ETIMEDOUT; -EINTR. Thread: setup.
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
	const char *group;
	uint32_t log_level;
	uint32_t log_format;
	const char *metrics; /* [IP:]PORT */
	bool adopt;
	bool discard;
	bool trust_clients;
	int64_t timeout_ns;
};

/*
 * Starts it and waits until the store says that it is up. On failure says why on stderr, with the
 * end of its log, and stops it. -EBUSY: such a node runs here; -ETIMEDOUT; -EINTR. Thread: setup.
 */
int host_store_add_node(const struct host_node_opts *opts, pid_t *pid_out) RLV_MUST_CHECK;

/* host_store_up does not start that node again. Nothing is done for a store elsewhere. */
int host_store_forget_node(const char *uri, const char *node) RLV_MUST_CHECK;

/* Stops the daemons that host_store_up started; a private store's files go, too. */
void host_store_close(struct host_store *store);

/* What memory nodes hold that would end with them. */
struct host_loss {
	uint32_t tables; /* with items in memory */
	uint64_t items;
	char unknown[160]; /* why that is not all, or cannot be told; "" = it is all */
};

struct host_down_opts {
	const char *store;
	int64_t timeout_ns; /* how long daemons may take before they are killed */
	/* Something would be lost: false = stop nothing. */
	bool (*confirm)(void *ctx, const struct host_loss *loss);
	void *ctx;
};

/*
 * Stops the daemons of a store whoever started them, and removes their files. *stopped_out: how
 * many were running. -ENOENT: no such store here; -ECANCELED: not confirmed. Thread: setup.
 */
int host_store_down(const struct host_down_opts *opts, uint32_t *stopped_out) RLV_MUST_CHECK;

#endif
