/*
 * pool.h - memory of one device, shared by jobs: each tensor's memory is someone else's as soon as
 * the device is done with it, and not before.
 *
 *   job ─alloc─> region of (job, class, stream) ─lease─> ledger: budget, quota, owner of each extent
 *   job ─free──> last tensor of a chunk: a mark on each stream that used it ─reached─> given back
 *
 * Extents lie at addresses of their own for the life of the pool. In *trusted* mode (jobs of one
 * user) they stay mapped: another job takes over an extent without a call of the backend. In
 * *strict* mode an extent is scrubbed and unmapped before it is anybody else's.
 *
 * Several chunks of one tensor: a tensor larger than an extent needs extents in a row. Where none
 * are, free ones are mapped at a range of addresses made for it.
 *
 * Thread: any, for all calls; a lock orders them. No call waits for the device: memory that is still
 * in use is -EAGAIN. Errors of the backend come as they are (device/backend.h).
 */
#ifndef RLV_DEVICE_POOL_H
#define RLV_DEVICE_POOL_H

#include "device/backend.h"
#include "device/region.h"

#define POOL_EXTENT_BYTES ((uint64_t)32 << 20)

struct pool;

struct pool_opts {
	struct backend *backend; /* borrowed until pool_close */
	uint64_t extent_bytes;   /* a multiple of the backend's granularity; 0: POOL_EXTENT_BYTES */
	uint64_t budget;         /* bytes that jobs may hold together; 0: all of the device */
	bool strict;
};

struct pool_job {
	const char *name;
	uint32_t uid;
	uint64_t quota; /* bytes; 0: the budget */
	uint64_t keep;  /* bytes that it keeps for itself while they are quiet */
};

struct pool_tensor {
	uint32_t job, stream;
	enum tensor_class class;
	uint64_t bytes;
};

struct pool_stats {
	uint64_t budget, held, used; /* bytes: allowed, of extents with an owner, of tensors */
	uint64_t created;            /* bytes of physical extents */
	uint64_t handovers;          /* leases of an extent that had another owner before */
	uint64_t backend_calls;      /* but marks and queries of progress */
};

/* -EINVAL, -ENOMEM. Thread: setup. */
RLV_MUST_CHECK int pool_open(const struct pool_opts *opts, struct pool **pool_out);
/* -EBUSY: a job is attached. NULLs *pool. */
RLV_MUST_CHECK int pool_close(struct pool **pool);
/* Ends a pool whose device is lost, whoever is attached; what the backend has of it is left to the
   backend's own end. NULLs *pool. */
void pool_abandon(struct pool **pool);

/* -EEXIST name taken, -ENOSPC too many jobs, -EACCES a trusted pool has jobs of another user. */
RLV_MUST_CHECK int pool_attach(struct pool *pool, const struct pool_job *job, uint32_t *job_out);
/*
 * Frees all tensors of a job and ends it. -EAGAIN: the device still uses some; repeat after progress.
 * Streams of the job are closed with it.
 */
RLV_MUST_CHECK int pool_detach(struct pool *pool, uint32_t job);

/* A stream of a job. native as in backend_ops.stream_open. */
RLV_MUST_CHECK int pool_stream(struct pool *pool, uint32_t job, void *native, uint32_t *stream_out);

/*
 * Memory for a tensor, on a multiple of REGION_ALIGN. -EINVAL, -ENOSPC it can never fit into quota
 * or budget, -EAGAIN others hold too much, or the device still uses it: repeat after progress.
 */
RLV_MUST_CHECK int pool_alloc(struct pool *pool, const struct pool_tensor *tensor,
			      uint64_t *va_out);
/* Work of another stream of the job uses a tensor. The job orders it behind the work that the
   tensor's own stream had at pool_alloc. -EINVAL. */
RLV_MUST_CHECK int pool_use(struct pool *pool, uint32_t job, uint64_t va, uint32_t stream);
/* Work queued so far is the last that uses the tensor. -EINVAL: the job has no tensor there. */
RLV_MUST_CHECK int pool_free(struct pool *pool, uint32_t job, uint64_t va);

/*
 * Reads the progress of the streams, and gives back what is quiet. The other calls do so when they
 * lack memory; call it when a job waits for another's. Returns the first error of the backend;
 * memory that it concerns stays with its job, and the next call tries again.
 */
RLV_MUST_CHECK int pool_poll(struct pool *pool);

/* Bytes of a tensor, a multiple of REGION_ALIGN. -EINVAL: the job has no tensor there. */
RLV_MUST_CHECK int pool_size(struct pool *pool, uint32_t job, uint64_t va, uint64_t *bytes_out);

/* Releases extents that nobody holds, but `keep` bytes of them: the backend has their memory. Errors as
   of pool_poll. */
RLV_MUST_CHECK int pool_trim(struct pool *pool, uint64_t keep);

/* Sets the budget; what jobs hold above it they keep until they free it. -EINVAL: 0. */
RLV_MUST_CHECK int pool_limit(struct pool *pool, uint64_t budget);

/* Bytes that a job may take now: what is free for it, never the device's total. 0: no such job. */
uint64_t pool_room(struct pool *pool, uint32_t job);
void pool_stats(struct pool *pool, struct pool_stats *stats_out);

/* Checks ledger and regions. -EPROTO: an invariant is broken. Cost: walks everything. */
RLV_MUST_CHECK int pool_check(struct pool *pool);

#endif
