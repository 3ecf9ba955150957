/*
 * backend_lease.h - a backend whose physical extents are leased from a pool's broker.
 *
 *   extent_create ──> a spare one, else TAKE and import of the descriptors that come
 *   extent_release ─> GIVE, at the next backend_lease_flush
 *   all else ───────> the backend of the device in this process
 *
 * It keeps what the job holds, to present it to a broker that was started anew, and the last mark of
 * each stream. extent_create is -EAGAIN while the broker has no memory for the job: repeat it after
 * lease_wait. Thread: as device/backend.h.
 */
#ifndef RLV_CLIENT_POOL_BACKEND_LEASE_H
#define RLV_CLIENT_POOL_BACKEND_LEASE_H

#include "client/pool/lease.h"
#include "device/backend.h"

struct backend_lease {
	struct backend base;
	struct backend *inner; /* owned */
	struct lease lease;
	struct lock lock; /* of what is held: the broker may be lost on any thread */
	struct held_extent *held;
	size_t n_held, room;
	struct lease_ref giving[LEASE_REFS];
	uint32_t n_giving;
	uint64_t extent_bytes, device_bytes;
	int32_t cuda;          /* number of the CUDA device; -1 = memory of the host */
	uint32_t device;       /* its number in the pool */
	_Atomic uint32_t want; /* extents that the next extent_create takes at once */
	_Atomic uint64_t marks[LEASE_STREAMS];
	int64_t timeout_ns; /* to wait for a broker that comes back */
};

/*
 * Joins the pool, and makes *inner, whose page of progress the broker is told of, the backend of the device that
 * it answers with: a host's at first, it may be closed for that of a CUDA device with the same page. It is
 * closed with this one, and by the caller after an error. Errors as of rlv_pool_open.
 */
RLV_MUST_CHECK int backend_lease_open(const char *pool, const struct lease_hello *hello,
				      struct backend **inner, struct backend_lease **backend_out);

/* Gives the broker what was released, and spare extents. */
RLV_MUST_CHECK int backend_lease_flush(struct backend_lease *backend);

/* Writes the last marks of all streams. */
void backend_lease_marks(const struct backend_lease *backend, uint64_t marks[LEASE_STREAMS]);

#endif
