/*
 * Device pools: the memory of devices, shared by jobs. Each job says what it needs; the pool's broker
 * (relive-poold) chooses a device for it, admits jobs, orders their iterations so that memory
 * suffices, and gives memory that one job has freed to another when the device is done with it.
 *
 *   rlv_pool_open ─> rlv_pool_alloc of what stays (RLV_POOL_PERSISTENT)
 *     each iteration: rlv_pool_iteration_begin ─> alloc, use, free ─> rlv_pool_iteration_end
 *   rlv_pool_close
 *
 * A job that does not fit waits, as long as the call's timeout, and rlv_pool_jobs says where it stands.
 * A process that ends, however it does, gives back all of its memory. A broker that is started anew
 * takes its jobs back: their memory stays, and calls wait for the broker until their timeout.
 *
 * Conventions and errors are as in relive/relive.h; sizes are bytes, times ns. The name of a pool is that
 * of its broker ("0", if not given). Of the codes: -ETIMEDOUT the wait is over, and nothing has changed;
 * -ENOSPC it can never be had; -EHOSTDOWN no broker answers; -ECHILD the handle is of the parent
 * process, whose memory a child does not have. Messages name the job.
 *
 * Thread: any, for all calls with a handle, except rlv_pool_close. Iterations of a job do not overlap.
 */
#ifndef RELIVE_POOL_H
#define RELIVE_POOL_H

#include "relive/relive.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rlv_pool;

/* How long a tensor lives. Tensors of different classes do not share extents. */
enum rlv_pool_class {
	RLV_POOL_PERSISTENT, /* over iterations: weights, states of optimizers */
	RLV_POOL_ITERATION,  /* from forward to backward */
	RLV_POOL_EPHEMERAL,  /* within an operation */
	RLV_POOL_STAGING,    /* batches that arrive; it does not move */
};

enum rlv_pool_job_flags {
	/* Between iterations the pool may park the job while others wait for its place: rlv_pool_iteration_end does as
	   rlv_pool_park, rlv_pool_iteration_begin as rlv_pool_resume. Its tensors are used within iterations only. A job
	   that cannot park goes on, and is asked again after 10 s. */
	RLV_POOL_PARKS = 1,
};

struct rlv_pool_opts {
	uint32_t size;
	uint32_t weight;           /* of the job in order `fair`, in 1/1000; 0 = 1000 */
	int32_t priority;          /* in order `priority`: larger goes first */
	uint32_t device;           /* 1 + the number of the device; 0 = the broker chooses one */
	uint64_t persistent_bytes; /* that stay between iterations, at most */
	uint64_t iteration_bytes;  /* that an iteration needs beside them, at most */
	uint64_t quota_bytes;      /* that the job may ever hold; 0 = the budget */
	uint64_t keep_bytes;       /* that it keeps between iterations when others want memory */
	int64_t duration_ns;       /* of all its iterations, for order `srtf`; 0 = not known */
	int64_t timeout_ns;        /* of calls that have none of their own; 0 = 30 s */
	uint64_t flags;            /* enum rlv_pool_job_flags */
	/* A parked job's tensors go to this heap (relive/kv.h), on the store's memory nodes; NULL, NULL: to memory of
	   this process. Until rlv_pool_close the store stays open: rlv_store_close is -EBUSY. */
	struct rlv_store *store;
	const char *heap;
};
#define RLV_POOL_OPTS_INIT RLV_SIZED(struct rlv_pool_opts)

/*
 * Joins a pool as a job. name: 1 to 63 bytes, one job of it at a time. Needs are exact if extents are
 * small beside them: each class and stream has its own. Errors: -EINVAL (name or opts, no such device), -ENOENT (no such
 * pool on this host), -EHOSTDOWN, -EEXIST (a job has the name), -EACCES (the pool's socket or its
 * trusted jobs are another user's), -ENOSPC (more than the budget, or too many jobs), -EBUSY (the pool
 * is drained), -ENOMEM; with a heap those of rlv_kv_open and rlv_kv_get. Cost: 1 message to the broker and back;
 * with a heap its opening, 1 RT, and 2 for each 16 MiB that a killed job of the name left there.
 */
RLV_CHECKED int rlv_pool_open(const char *pool, const char *name, const struct rlv_pool_opts *opts,
			      struct rlv_pool **pool_out);

/* The number of the job's device in the pool, from 0. Cost: none. */
RLV_CHECKED int rlv_pool_device(const struct rlv_pool *pool, uint32_t *device_out);

/* Number of the CUDA device whose memory the job has, in this process; -1 = memory of the host. Cost: no
   message. */
RLV_CHECKED int rlv_pool_cuda(const struct rlv_pool *pool, int32_t *cuda_out);

/*
 * Leaves the pool; tensors and streams end with the handle. Sets *pool to NULL; NULL is a no-op. After an
 * error the handle is closed, too. -EHOSTDOWN: the broker was not told; it sees when the process ends.
 * Thread: owner. Cost: 1 message.
 */
RLV_CHECKED int rlv_pool_close(struct rlv_pool **pool);

/* A stream of the job: a number for rlv_pool_alloc and rlv_pool_use. native: the CUstream (cudaStream_t) whose work uses
   the tensors; NULL = CUDA's default stream. Memory of a host has none: NULL. -ENOSPC: 64 streams are open; -EINVAL. Cost: no message. */
RLV_CHECKED int rlv_pool_stream(struct rlv_pool *pool, void *native, uint32_t *stream_out);

/*
 * Memory for a tensor, at a multiple of 512 bytes, for work of a stream. It waits for other jobs at most
 * opts.timeout_ns. Contents are undefined. -EINVAL (class, stream, bytes 0; RLV_POOL_STAGING of a job with
 * RLV_POOL_PARKS: batches arrive at any time), -ENOSPC (more than quota or
 * budget), -ETIMEDOUT, -ENOMEM (the device or the host has none). Cost: none from memory that the job
 * has; else 1 message, and mappings of the extents that come.
 */
RLV_CHECKED int rlv_pool_alloc(struct rlv_pool *pool, enum rlv_pool_class tensor_class,
			       uint64_t bytes, uint32_t stream, void **ptr_out);

/* Work of another stream uses the tensor. -EINVAL: the job has no tensor there, or no such stream. */
RLV_CHECKED int rlv_pool_use(struct rlv_pool *pool, const void *ptr, uint32_t stream);

/*
 * Frees a tensor: work that is queued now is the last that uses it. bytes: as given to rlv_pool_alloc, or
 * 0. -EINVAL: the job has no tensor there (freed twice, or foreign), or it has another size; it stays.
 * Cost: no message.
 */
RLV_CHECKED int rlv_pool_free(struct rlv_pool *pool, void *ptr, uint64_t bytes);

/* Begins an iteration when the pool has room for it. It waits at most timeout_ns; 0 polls once, less than
   0 waits without end. -EBUSY: one runs; -ETIMEDOUT. Cost: 1 message, and 1 when it may begin; none for a job beside
   which there is no other, but for its first iteration. */
RLV_CHECKED int rlv_pool_iteration_begin(struct rlv_pool *pool, int64_t timeout_ns);

/* Ends it, and gives free memory back while there are other jobs. -EINVAL: none runs; -ETIMEDOUT: it took
   longer than the broker's limit, and others went on meanwhile; it has ended. Cost: 1 message, and 1 for
   each 64 extents given back; none for a job beside which there is no other; after the fourth, 1 more, which tells the broker what they held over their time. */
RLV_CHECKED int rlv_pool_iteration_end(struct rlv_pool *pool);

/*
 * Pauses the job: its tensors go to memory of this process, those first whose next use is furthest, and its
 * extents to other jobs, of which one more may be resident. Until rlv_pool_resume, rlv_pool_alloc, _use and _free
 * and iterations are -EBUSY; addresses stay. It waits at most timeout_ns for the device. -EBUSY: an iteration
 * runs, or batches land by RDMA in its tensors (relive/landing.h); -ENOMEM: this process has no room; -ETIMEDOUT, -EHOSTDOWN. After an error the tensors are whole, and
 * rlv_pool_resume brings back those that have gone.
 * With a heap no extent goes back before all bytes are there, by pieces of 16 MiB; this process has room for two
 * pieces meanwhile. Errors of rlv_kv_open and rlv_kv_put, too; the store's timeout bounds each piece, and timeout_ns
 * is looked at between them.
 * Cost: 1 message, and 1 for each 64 extents; with a heap its opening, and of each piece a rlv_kv_put.
 */
RLV_CHECKED int rlv_pool_park(struct rlv_pool *pool, int64_t timeout_ns);

/*
 * Waits until the job may be resident again, at most timeout_ns, and brings its tensors back, those first that
 * were used first in the last iteration (named by rlv_pool_use, else in the order of rlv_pool_alloc).
 * -ETIMEDOUT: the job stays parked, in whole or in part; call it again.
 * From a heap a piece is read while the one before it is on its way to the device; then all are deleted there. Errors
 * of rlv_kv_open and rlv_kv_get, too; the job stays parked, the message names the bytes that did not come, and the
 * next call goes on with them. -ENOENT, -EBADMSG: they are lost. Each call brings a piece, however short its timeout.
 * Cost: 1 message until it may, and 1 for each 64 extents; with a heap its opening, and of each piece a rlv_kv_get and
 * a rlv_kv_delete.
 */
RLV_CHECKED int rlv_pool_resume(struct rlv_pool *pool, int64_t timeout_ns);

/* Bytes that the job may take now: what it has free, and what the broker would give. Never the
   device's total. Cost: 1 message. */
RLV_CHECKED int rlv_pool_free_bytes(struct rlv_pool *pool, uint64_t *bytes_out);

/* -------- for PyTorch -------- */

/*
 * The pool and the class of what rlv_torch_alloc gives from now on; pool NULL: it gives nothing. A pool stays
 * bound to what it gave: rlv_torch_free finds it. Close it after torch's memory pool is gone: what is left
 * ends with it. -EINVAL: tensor_class; or the pool's device is no CUDA device. Cost: no message.
 */
RLV_CHECKED int rlv_pool_bind_torch(struct rlv_pool *pool, enum rlv_pool_class tensor_class);

/*
 * The two functions of torch.cuda.memory.CUDAPluggableAllocator, for torch.cuda.MemPool or for all of torch.
 * alloc: memory of the bound pool for work of a stream; NULL: none is bound, another device is meant, or an
 * error of rlv_pool_alloc, which rlv_last_error has. free: work that is queued now is the last that uses it;
 * what they did not give is ignored. Thread: any.
 */
RLV_API void *rlv_torch_alloc(int64_t bytes, int device, void *stream);
RLV_API void rlv_torch_free(void *ptr, int64_t bytes, int device, void *stream);

enum rlv_pool_reason {
	RLV_POOL_READY,           /* it runs */
	RLV_POOL_WAITS_ADMISSION, /* its persistent bytes do not fit beside the others' */
	RLV_POOL_WAITS_MEMORY,    /* its iteration or tensor does not fit now */
	RLV_POOL_WAITS_TURN,      /* another job goes first */
	RLV_POOL_IDLE,            /* it has asked for nothing */
};

/* -------- for operators -------- */

enum rlv_pool_flags { RLV_POOL_STRICT = 1, RLV_POOL_DRAINS = 2 };

struct rlv_pool_info {
	uint32_t size;
	uint32_t flags; /* enum rlv_pool_flags */
	uint32_t jobs;
	uint32_t devices;
	uint64_t device_bytes, budget_bytes; /* of all devices, as what follows */
	uint64_t held_bytes;                 /* by jobs */
	uint64_t extent_bytes;               /* unit in which jobs hold memory */
	uint64_t handovers;                  /* extents that went to another job */
	uint64_t deaths;                     /* jobs whose process ended without rlv_pool_close */
	uint64_t adopted;                    /* jobs that came back, to this or an earlier broker */
	uint64_t iterations;
	uint64_t overshoots; /* iterations that took more than the job said */
	uint64_t cut;        /* iterations that the limit ended */
};
#define RLV_POOL_INFO_INIT RLV_SIZED(struct rlv_pool_info)

struct rlv_pool_device_info {
	char name[64]; /* as the device calls itself */
	uint32_t number, jobs;
	uint64_t device_bytes, budget_bytes, held_bytes;
	uint64_t handovers;
};

enum rlv_pool_job_state {
	RLV_POOL_JOB_IDLE,
	RLV_POOL_JOB_WAITS,
	RLV_POOL_JOB_RUNS,
	RLV_POOL_JOB_LEAVES,
	RLV_POOL_JOB_PARKED, /* rlv_pool_park */
};

struct rlv_pool_job {
	char name[64];
	uint32_t pid, uid;
	uint32_t state;     /* enum rlv_pool_job_state */
	uint32_t reason;    /* that it waits: enum rlv_pool_reason */
	uint32_t position;  /* jobs before it */
	uint32_t connected; /* 0 = its process is there, its connection is not */
	int32_t priority;
	uint32_t device; /* its number */
	uint64_t held_bytes, most_bytes, quota_bytes;
	uint64_t persistent_bytes, iteration_bytes; /* as it said */
	uint64_t iterations;
	uint64_t waited_ns, served_ns;
};

/* What a pool has. -ENOENT: no such pool on this host; -EACCES, -EHOSTDOWN. Thread: any. Cost: 1
   message for each device. */
RLV_CHECKED int rlv_pool_status(const char *pool, struct rlv_pool_info *info_out);

/* Its devices in devices[0..*n_inout), size = sizeof(*devices); *n_inout becomes their number. Errors as of
   rlv_pool_status. Thread: any. Cost: 1 message for each device. */
RLV_CHECKED int rlv_pool_devices(const char *pool, struct rlv_pool_device_info *devices,
				 size_t size, size_t *n_inout);

/* Its jobs, all as they are at one moment, in jobs[0..*n_inout), size = sizeof(*jobs); *n_inout becomes their number.
   Errors as of rlv_pool_status. Thread: any. Cost: 1 message for 14 jobs. */
RLV_CHECKED int rlv_pool_jobs(const char *pool, struct rlv_pool_job *jobs, size_t size,
			      size_t *n_inout);

/*
 * Sets a limit: the budget of each device, or of one; the sum of a user's jobs (bytes 0: none), or the quota
 * of a job (0: none). What is held above it stays until it is freed. -EACCES: only the broker's user and root may;
 * -EINVAL: less than an extent or more than the device; -ENOENT: no such job; -ENOSPC: 32 users have
 * quotas. Thread: any. Cost: 1 message.
 */
RLV_CHECKED int rlv_pool_limit(const char *pool, uint64_t bytes);
RLV_CHECKED int rlv_pool_limit_device(const char *pool, uint32_t device, uint64_t bytes);
RLV_CHECKED int rlv_pool_limit_user(const char *pool, uint32_t uid, uint64_t bytes);
RLV_CHECKED int rlv_pool_limit_job(const char *pool, const char *name, uint64_t bytes);

/* on: no new jobs from now on; those that are there go on. Errors as of rlv_pool_limit. */
RLV_CHECKED int rlv_pool_drain(const char *pool, int on);

#ifdef __cplusplus
}
#endif

#endif
