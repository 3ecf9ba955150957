/*
 * Memnode: offers a pool of memory, and is passive on the data path.
 *
 *   one thread serves the target's socket (descriptors of regions to clients), one the control
 *   connection: it dials the metadata server, registers, then answers its requests; when the
 *   connection ends it dials again, for ever, with a jittered pause.
 */
#ifndef RLV_SERVER_MEMNODE_H
#define RLV_SERVER_MEMNODE_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct memnode_opts {
	const char *name;
	const char *store;
	uint64_t pool_bytes; /* 0 = size of the file, or 1 GiB of memory */
	const char *path;    /* file or DAX device; NULL = memory */
	const char *host;    /* of the metadata server; NULL = the store's socket on this host */
	uint16_t port;
	const volatile sig_atomic_t *stop; /* non-zero ends memnode_run */
};

struct memnode;

/*
 * Makes the pool and listens. Errors: -EBUSY (another process is this node; the message names it),
 * -ENOMEM, -ENOSPC (the pool), -EPROTO (file of another format), those of the runtime directory.
 */
RLV_MUST_CHECK int memnode_open(const struct memnode_opts *opts, struct memnode **node_out);

/*
 * Serves until stopped: 0. An error only if the first registration is refused for good: -EACCES
 * (token), -EEXIST (the store has such a node), -EPROTO.
 */
RLV_MUST_CHECK int memnode_run(struct memnode *node);

void memnode_close(struct memnode **node);

#endif
