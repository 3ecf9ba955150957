/*
 * Memnode: serves a pool of memory; passive on the data path.
 *
 *   agent     serves the target's sockets and connections: attaching, descriptors of regions. It
 *             sleeps while clients only move data
 *   control   dials the metadata server, registers, then answers its requests; when the connection
 *             ends it dials again, forever, with a jittered back-off
 *   work      thread for requests that may take seconds
 *   persist   thread for writing the pool out
 *   pages     with --metrics: /metrics and /healthz (http.h)
 *
 * The transport is chosen by choice.h.
 */
#ifndef RLV_SERVER_MEMNODE_MEMNODE_H
#define RLV_SERVER_MEMNODE_MEMNODE_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "wire/control/tls.h"

#include "base/mem/alloc.h"
#include "base/error.h"

struct memnode_opts {
	const char *name;
	const char *store;
	uint64_t pool_bytes;  /* 0 = former size, size of the device, or 1 GiB of memory */
	const char *path;     /* directory or DAX device; NULL = memory */
	enum page_kind pages; /* page kind of memory; may be unavailable: see struct target_opts */
	const char *
		host; /* host of the metadata server, or @FILE (wire/control/announce.h); NULL = the
			     store's socket on this host */
	uint16_t port;
	struct tls_files tls;  /* for host; each NULL: RELIVE_TLS_CERT, ..._KEY, ..._CA */
	const char *transport; /* "auto" (NULL), "shm", "verbs", "ofi" */
	const char *listen;    /* verbs, ofi: HOST:PORT to listen on; NULL = any */
	const char *interface; /* verbs, ofi: listens at an address of it; NULL = any */
	const char *provider;  /* ofi: of libfabric; NULL = none */
	uint16_t ports[2];     /* ofi: first and last port that it may use; 0 = any */
	const char *group;  /* user group with access to the socket; NULL = that of the directory */
	bool trust_clients; /* local clients are trusted: each may map a whole device */
	uint32_t claim;     /* enum Relive__PoolClaim: an operator's decision on the pool */
	const char *metrics;               /* [IP:]PORT of /metrics and /healthz; NULL = none */
	const struct alloc_hooks *buffers; /* as in struct target_opts */
	const volatile sig_atomic_t *stop; /* non-zero ends memnode_run */
};

struct memnode;

/*
 * Creates or opens the pool, listens, and starts the thread that serves clients; does not register
 * yet. Errors: -EINVAL (name, transport), -EBUSY (another process is this node, or uses the pool;
 * the message names it), -ENOMEM, -ENOSPC (the pool), -EPROTO (not a pool, or another format),
 * -EBADMSG (damaged), -ENOTDIR (a file), -ENODEV (not a DAX device), -EROFS, errors of the runtime
 * directory.
 */
RLV_MUST_CHECK int memnode_open(const struct memnode_opts *opts, struct memnode **node_out);

/*
 * Registers with the metadata server and serves until *opts.stop is set, then returns 0. Returns an
 * error only if the first registration is refused for good: -EACCES (token), -EINVAL, -EPROTO,
 * -EPERM (the pool belongs to another store, or holds regions unknown to the catalog, and
 * opts.claim does not decide); after 3 s also -EEXIST (a node of this name is up) and -ENOSPC (too
 * many nodes). Other errors and later refusals are retried, each logged once.
 */
RLV_MUST_CHECK int memnode_run(struct memnode *node);

void memnode_close(struct memnode **node);

#endif
