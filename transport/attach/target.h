/*
 * target.h - a node's pool, its grants and its clients: the target of kind shm, and the first part of the
 * target of any wire. Within transport/ only.
 *
 * A wire's target keeps the pool's memory open to devices, too: it attaches what a grant names, so that
 * the memory is not given to anybody else while a device can still reach it.
 *
 * One lock guards the pool, the grants, the clients and the sockets; the data path never takes it.
 * It is held for moments only: what takes as long as a region is large (zeroing, persisting, giving
 * memory back) is done without it, so that a node answers meanwhile. `making` has makers wait for each
 * other; it is taken first.
 */
#ifndef RLV_TRANSPORT_ATTACH_TARGET_H
#define RLV_TRANSPORT_ATTACH_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/os/lock.h"

#include "transport/attach/clients.h"
#include "transport/attach/grants.h"
#include "transport/pool/mempool.h"
#include "transport/transport.h"

extern const struct lock_role target_role;

struct serve;

/* A wire's target begins with it, and has target_ops with some of them replaced. */
struct target {
	struct transport_target tg;
	struct lock lock;
	struct lock making;
	const struct clock *clock;
	uint32_t forks;        /* fork_generation of its birth */
	_Atomic uint32_t refs; /* 1 of the owner, 1 of each initiator of this process */
	bool closed LOCK_GUARDED_BY(target_role);
	struct mempool *pool; /* guarded by the lock, except in mempool_persist */
	struct grants grants LOCK_GUARDED_BY(target_role);
	struct clients clients LOCK_GUARDED_BY(target_role);
	struct serve *serve LOCK_GUARDED_BY(target_role); /* NULL: does not listen */
	char uri[TRANSPORT_URI_BYTES];                    /* as of listen */
	uint64_t attaches LOCK_GUARDED_BY(target_role);
	uint64_t fences LOCK_GUARDED_BY(target_role);
};

/* Range of a region that an attachment was granted. */
struct target_map {
	struct mempool_region *region;
	uint32_t rights;
	uint64_t off, size; /* the range of it that was granted */
	uint8_t *base;      /* of that range */
};

extern const struct transport_target_ops target_ops;

/* Makes one of `bytes` zeroed bytes. opts: complete. Errors: those of transport_target_open. */
RLV_MUST_CHECK int target_new(size_t bytes, const struct target_opts *opts,
			      struct target **target_out);

/* The target of kind shm. */
RLV_MUST_CHECK int target_open(const struct target_opts *opts, struct transport_target **tg_out);

/* An initiator of this process; the target's memory lives until it leaves. */
RLV_MUST_CHECK int target_join(struct target *target, uint64_t client_id);
void target_leave(struct target *target, uint64_t client_id);

/* Thread: any. -EACCES, -EPROTO, -ESTALE: the grant is not good. */
RLV_MUST_CHECK int target_attach(struct target *target, uint64_t client_id,
				 const struct region_grant *grant, struct target_map *map_out);
void target_detach(struct target *target, struct mempool_region *region);

/* True if the client is known: it is of this process, or has a socket. */
bool target_knows(struct target *target, uint64_t client_id);

/* Checks a grant of a client. The lock is held. map_out->region is borrowed. */
RLV_MUST_CHECK int target_check_grant(struct target *target, uint64_t client_id,
				      const struct region_grant *grant, struct target_map *map_out)
	LOCK_REQUIRES(target_role);

/* True if pages of a region may have memory of their own. All of a region of role PAGES is granted to no client. */
bool target_can_renew(const struct target *target, const struct mempool_region *region);

/*
 * The lock is held. The page at off of a region that map has all of is from now on the memory of fd, which
 * is taken over (-1 where the pool makes_pages); nobody's grant of that page is good any more. -EACCES
 * (rights), -EINVAL (off), -ENOTSUP (a pool whose pages have none), -EPROTO (fd).
 */
RLV_MUST_CHECK int target_renew(struct target *target, const struct target_map *map, uint64_t off,
				int fd) LOCK_REQUIRES(target_role);

/* NULL and a message if the descriptor is not one of ours. */
struct target *target_of(struct transport_target *tg);

#endif
