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

/*
 * Makes a target of `bytes` zeroed bytes, which begin with struct target, and opens its pool; it
 * does not listen yet. opts: clock set. Errors: those of transport_target_open.
 */
RLV_MUST_CHECK int target_new(size_t bytes, const struct target_opts *opts,
			      struct target **target_out);

/* Makes a target of kind shm. opts: clock set. Errors: those of transport_target_open. */
RLV_MUST_CHECK int target_open(const struct target_opts *opts, struct transport_target **tg_out);

/*
 * Registers an initiator of this process; *target is not freed before its target_leave. -EHOSTDOWN
 * (the target is closed), -EEXIST (another process uses the client id), -ENOMEM, -ECHILD.
 */
RLV_MUST_CHECK int target_join(struct target *target, uint64_t client_id);
void target_leave(struct target *target, uint64_t client_id);

/*
 * Checks a grant of a client, fills in *map_out and takes a reference to its region, which
 * target_detach drops. Errors: those of target_check_grant; -EHOSTDOWN: the target is closed.
 * Thread: any.
 */
RLV_MUST_CHECK int target_attach(struct target *target, uint64_t client_id,
				 const struct region_grant *grant, struct target_map *map_out);
void target_detach(struct target *target, struct mempool_region *region);

/*
 * True if the client is in target->clients: it has joined in this process, or has said HELLO over
 * the socket, and has not been removed since.
 */
bool target_knows(struct target *target, uint64_t client_id);

/*
 * Checks a grant of a client and fills in *map_out; its region is borrowed. -EACCES, -EPROTO,
 * -ESTALE: grants_check refuses it. -ENOENT: no such region; -EBADMSG: it is broken. The lock is
 * held.
 */
RLV_MUST_CHECK int target_check_grant(struct target *target, uint64_t client_id,
				      const struct region_grant *grant, struct target_map *map_out)
	LOCK_REQUIRES(target_role);

/* True if pages of a region can be renewed: its role is PAGES, and the pool supports it. */
bool target_can_renew(const struct target *target, const struct mempool_region *region);

/*
 * Replaces the page at off by the memory of fd, or, where the pool makes_pages, by memory that it
 * makes (fd -1); ends all grants of that page alone. Takes over fd, also on an error. -EACCES: map
 * is not all of a region of role PAGES with all rights; -EINVAL: no page is at off; -ENOTSUP: the
 * pool's pages share one file; -EPROTO: fd is no such memory. The lock is held.
 */
RLV_MUST_CHECK int target_renew(struct target *target, const struct target_map *map, uint64_t off,
				int fd) LOCK_REQUIRES(target_role);

/* tg as a struct target if its kind is shm, else NULL and a message. */
struct target *target_of(struct transport_target *tg);

#endif
