/*
 * Memnode: offers a pool of memory, and is passive on the data path.
 *
 *   agent     serves the target's sockets and connections: attaching, descriptors of regions. It
 *             sleeps while clients do nothing but move data
 *   control   dials the metadata server, registers, then answers its requests; when the connection
 *             ends it dials again, for ever, with a jittered pause
 *   work,     one each for what may take seconds, and for writing the pool out
 *   persist
 *   pages     with --metrics: /metrics and /healthz (http.h)
 *
 * Transport "auto" is verbs when the metadata server is on another host or an address of an RDMA
 * device is given, else shm.
 */
#ifndef RLV_SERVER_MEMNODE_MEMNODE_H
#define RLV_SERVER_MEMNODE_MEMNODE_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "wire/tls.h"

#include "base/mem/alloc.h"
#include "base/error.h"

struct memnode_opts {
	const char *name;
	const char *store;
	uint64_t pool_bytes;  /* 0 = as before, of the device, or 1 GiB of memory */
	const char *path;     /* directory or DAX device; NULL = memory */
	enum page_kind pages; /* of memory; there may be none: see struct target_opts */
	const char *host;     /* of the metadata server; NULL = the store's socket on this host */
	uint16_t port;
	struct tls_files tls;  /* to host; each NULL: RELIVE_TLS_CERT, ..._KEY, ..._CA */
	const char *transport; /* "auto" (NULL), "shm", "verbs" */
	const char *listen;    /* verbs: HOST:PORT to accept clients at; NULL = any */
	const char *group;  /* of users who may connect to the socket; NULL = as the directory is */
	bool trust_clients; /* of this host: each may get all of a device */
	uint32_t claim;     /* enum Relive__PoolClaim: a person's word on the pool */
	const char *metrics;               /* [IP:]PORT of /metrics and /healthz; NULL = none */
	const struct alloc_hooks *buffers; /* as in struct target_opts */
	const volatile sig_atomic_t *stop; /* non-zero ends memnode_run */
};

struct memnode;

/*
 * Makes the pool and listens. Errors: -EINVAL (name, transport), -EBUSY (another process is this
 * node, or has the pool; the message names it), -ENOMEM, -ENOSPC (the pool), -EPROTO (no pool, or of
 * another format), -EBADMSG (damaged), -ENOTDIR (a file), -ENODEV (no DAX device), -EROFS, those of the
 * runtime directory.
 */
RLV_MUST_CHECK int memnode_open(const struct memnode_opts *opts, struct memnode **node_out);

/*
 * Serves until stopped: 0. An error only if the first registration is refused for good: -EACCES
 * (token), -EEXIST (the store has such a node), -EPERM (the pool is another store's, or holds what the
 * catalog does not know, and opts.claim does not say what becomes of it), -EPROTO. Refused later, it
 * says so once and asks again and again.
 */
RLV_MUST_CHECK int memnode_run(struct memnode *node);

void memnode_close(struct memnode **node);

#endif
